"""Define Django's settings. An installation changes them only through the environment.

Without any variable the site uses the servers that `manage.py up` runs under `var/`. docs/operations.md lists the
variables.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from kernelsci_site import environment as env
from kernelsci_site.security_policy import policy_towards
from kernelsci_site.services import postgres, redis_server
from kernelsci_site.services.var import Var, default_root

BASE_DIR = Path(__file__).resolve().parent.parent
# A package carries templates and static files beside this file, a clone beside manage.py.
IS_CLONE = (BASE_DIR / "manage.py").is_file()
SHIPPED = BASE_DIR if IS_CLONE else BASE_DIR / "kernelsci_site"
SITE_COMMAND = "manage.py" if IS_CLONE else "kernelsci"  # what people type, as pages and messages show it
VAR = Var.at(env.text("KERNELSCI_VAR", str(default_root(BASE_DIR))))

# Secrets: made at first use and kept in var/secrets (0600), unless the environment brings them.
SECRET_KEY = env.text("SECRET_KEY") or VAR.secret("django")
# Fernet keys that encrypt what providers' keys need; the first encrypts, all decrypt. Derived text, any length.
PROVIDER_KEY_SECRETS = env.words("PROVIDER_KEY_SECRETS") or [VAR.secret("provider_keys")]
RECEIPT_KEY = env.text("KERNELSCI_RECEIPT_KEY") or str(VAR.folder("secrets") / "receipts.key")  # signs verdicts
# Digests of the tokens with which measuring workers ask for jobs, a line each (optimizer/secrets/worker_tokens.py).
WORKER_TOKENS = env.text("KERNELSCI_WORKER_TOKENS") or str(VAR.folder("secrets") / "worker_tokens")

DEBUG = env.flag("DEBUG")
ALLOWED_HOSTS = env.allowed_hosts()
CSRF_TRUSTED_ORIGINS = env.words("CSRF_TRUSTED_ORIGINS")

# Daphne's `runserver` knows sockets. Every other process is spared Twisted, a sixth of the time that it takes to start.
RUNS_SERVER = sys.argv[1:2] == ["runserver"]

INSTALLED_APPS = [
    *(["daphne"] if RUNS_SERVER else []),
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "channels",
    "django_htmx",
    "allauth",
    "allauth.account",
    "allauth.mfa",
    "allauth.usersessions",
    "kernelsci_site.apps.SiteConfig",
    "optimizer.apps.OptimizerConfig",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "kernelsci_site.security_policy.content_security_policy",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "optimizer.views.seen.record_last_seen",
]

ROOT_URLCONF = "kernelsci_site.urls"
ASGI_APPLICATION = "kernelsci_site.asgi.application"

TEMPLATES: list[dict[str, Any]] = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [SHIPPED / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "optimizer.views.frame.frame",
            ]
        },
    }
]

# People
AUTH_USER_MODEL = "optimizer.User"
LOGIN_URL = "/sign-in/"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "/sign-in/"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]
AUTHENTICATION_BACKENDS = [
    "django.contrib.auth.backends.ModelBackend",
    "allauth.account.auth_backends.AuthenticationBackend",
]

# django-allauth (kernelsci_site/accounts.py): the second factor, and a company's OpenID Connect server if there is one.
ACCOUNT_ADAPTER = "kernelsci_site.accounts.AccountAdapter"
ACCOUNT_LOGIN_METHODS = {"username"}
ACCOUNT_SIGNUP_FIELDS = ["username*", "email", "password1*", "password2*"]
ACCOUNT_EMAIL_VERIFICATION = "none"
# Five wrong passwords for an account from one address, fifty from an address. Counted before the password is checked.
ACCOUNT_RATE_LIMITS = {"login_failed": "5/15m/key,50/15m/ip"}
MFA_ADAPTER = "kernelsci_site.accounts.SecondFactorAdapter"
MFA_SUPPORTED_TYPES = ["totp", "recovery_codes"]
MFA_TOTP_ISSUER = "Kernel Scientist"
OIDC_SERVER = env.text("OIDC_SERVER")
POLICY_TOWARDS_COMPANY = policy_towards(OIDC_SERVER)
OIDC_NAME = env.text("OIDC_NAME", "the company's sign-in")
if OIDC_SERVER:
    INSTALLED_APPS += ["allauth.socialaccount", "allauth.socialaccount.providers.openid_connect"]
    SOCIALACCOUNT_ADAPTER = "kernelsci_site.company_accounts.SocialAdapter"
    SOCIALACCOUNT_PROVIDERS = env.openid_connect(OIDC_SERVER, OIDC_NAME)
    SOCIALACCOUNT_EMAIL_AUTHENTICATION = False  # an address in a token proves no claim to an account of ours

# PostgreSQL. Only Daphne pools (kernelsci_site/asgi.py asks for it): a pool must not survive a worker's fork.
DATABASE_URL = env.text("DATABASE_URL")
DATABASES = {
    "default": env.database(DATABASE_URL or postgres.embedded_url(VAR), pooled=env.flag("KERNELSCI_DATABASE_POOL"))
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# Redis: broker and channel layer. Losing it costs latency, never data.
REDIS_URL = env.text("REDIS_URL")
REDIS_SERVER_URL = REDIS_URL or redis_server.embedded_url(VAR)
CHANNEL_LAYERS = {
    "default": {
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        "CONFIG": {"hosts": [REDIS_SERVER_URL], "prefix": "kernelsci"},
    }
}
# What processes share and may lose: failed sign-ins, who looks at what. A stalled Redis holds no page up for long.
CACHES = {
    "default": {
        "BACKEND": "kernelsci_site.cache.ForgivingRedisCache",
        "LOCATION": REDIS_SERVER_URL,
        "KEY_PREFIX": "kernelsci",
        "OPTIONS": {"socket_timeout": 1, "socket_connect_timeout": 1},
    }
}

# Mail: only where an SMTP server is named. Links in mails need to know where people find the site.
EMAIL_HOST = env.text("SMTP_HOST")
EMAIL_PORT = int(env.text("SMTP_PORT", "587"))
EMAIL_HOST_USER = env.text("SMTP_USER")
EMAIL_HOST_PASSWORD = env.text("SMTP_PASSWORD")
EMAIL_USE_TLS = env.flag("SMTP_TLS", default=True)
EMAIL_TIMEOUT = 20
DEFAULT_FROM_EMAIL = env.text("MAIL_FROM", "kernel-scientist@localhost")
SITE_ADDRESS = env.text("SITE_ADDRESS", "http://localhost:8000").rstrip("/")
DIGEST_EVERY_S = 900

# Celery. A message says "look at the queue"; the Job row is the truth. So: acknowledge early, hoard nothing,
# store no result, and let an unread tick expire when the next one is due.
SWEEP_EVERY_S = 5
WATCH_EVERY_S = 60
CELERY_BROKER_URL = env.text("CELERY_BROKER_URL") or env.celery_broker(REDIS_SERVER_URL)
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
# Whoever rings while Redis is away does not wait for it (kombu's own patience is six seconds a message): the row is
# stored, the sweep rings again. Consumers are patient by other settings.
CELERY_BROKER_TRANSPORT_OPTIONS = {"max_retries": 1, "interval_start": 0, "interval_step": 0.2}
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = False
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_WORKER_SEND_TASK_EVENTS = False
CELERY_TASK_DEFAULT_QUEUE = "agents"
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TIMEZONE = "UTC"
CELERY_BEAT_SCHEDULE = {
    "sweep": {
        "task": "optimizer.sweep",
        "schedule": SWEEP_EVERY_S,
        "options": {"queue": "timer", "expires": SWEEP_EVERY_S},
    },
    "digest": {
        "task": "optimizer.mail_digests",
        "schedule": DIGEST_EVERY_S,
        "options": {"queue": "timer", "expires": DIGEST_EVERY_S},
    },
    "watch": {
        "task": "optimizer.watch_releases",
        "schedule": WATCH_EVERY_S,
        "options": {"queue": "timer", "expires": WATCH_EVERY_S},
    },
}

# The regression watch times released kernels again when a runner has a new driver or compiler, and by schedule.
RETIME_ON_CHANGE = env.flag("KERNELSCI_RETIME_ON_CHANGE", default=True)
RETIME_DAYS = env.days("KERNELSCI_RETIME_DAYS")

# A claimed job is its worker's for LEASE_S after each beat; a lost worker's job waits that long. Beats come often,
# because a cancellation is seen at a beat. Tests of faults shorten both.
LEASE_S = float(env.text("KERNELSCI_LEASE_S", "60"))
BEAT_S = min(5.0, LEASE_S / 4)

# What joins the two halves: the runners reach the queue through a class named here, and evaluate with a function.
KERNELSCI_JOB_SOURCE = "optimizer.job_source.DatabaseJobSource"
KERNELSCI_EVALUATE = env.text("KERNELSCI_EVALUATE", "runners.harness.evaluate")

# Static files come from packages and static/. `manage.py up` serves copies under names with content hashes
# (kernelsci_site/collected.py); everything else serves them as they lie.
STATIC_URL = "/static/"
STATIC_FOLDER = VAR.root / "static"
STATIC_COLLECTED = env.flag("KERNELSCI_STATIC_COLLECTED")
STATIC_ROOT = STATIC_FOLDER if STATIC_COLLECTED else None
STATIC_STORAGE = (
    "kernelsci_site.collected.CollectedStorage"
    if STATIC_COLLECTED
    else "django.contrib.staticfiles.storage.StaticFilesStorage"
)
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": STATIC_STORAGE},
}
STATICFILES_DIRS = [SHIPPED / "static"]
STATICFILES_FINDERS = [
    "django.contrib.staticfiles.finders.FileSystemFinder",
    "django.contrib.staticfiles.finders.AppDirectoriesFinder",
    "kernelsci_site.static_finders.PlotlyFinder",
    "kernelsci_site.static_finders.NpmFinder",
]
WHITENOISE_USE_FINDERS = not STATIC_COLLECTED
WHITENOISE_AUTOREFRESH = DEBUG

# The web's dangers
HTTPS = env.flag("KERNELSCI_HTTPS")
SECURE_SSL_REDIRECT = HTTPS
SECURE_HSTS_SECONDS = 31_536_000 if HTTPS else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = HTTPS
SECURE_HSTS_PRELOAD = HTTPS
SESSION_COOKIE_SECURE = HTTPS
CSRF_COOKIE_SECURE = HTTPS
PROXIES = env.count("KERNELSCI_BEHIND_PROXY")  # how many of our own every request comes through
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if PROXIES else None
# Measuring workers may be in a private network with the web server; elsewhere they refuse an address without TLS.
SECURE_REDIRECT_EXEMPT = [r"^(healthz|live|ready|metrics)$", r"^work/"]
METRICS_TOKEN = env.text("KERNELSCI_METRICS_TOKEN")
SECURE_REFERRER_POLICY = "same-origin"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
CSRF_COOKIE_HTTPONLY = False  # htmx reads nothing from it, but small scripts send it with their requests
X_FRAME_OPTIONS = "DENY"
DATA_UPLOAD_MAX_MEMORY_SIZE = 4 * 1024 * 1024
API_RATE = env.number("KERNELSCI_API_RATE", 1200)  # requests of one token a minute, by the API and by MCP

# Language and time
LANGUAGE_CODE = "en-gb"
TIME_ZONE = "UTC"
USE_TZ = True
USE_I18N = False

# One line a record: for people as it is, for machines as JSON (kernelsci_site/json_log.py), with the run and the job
# that it is about.
LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {"work": {"()": "runners.log_context.WorkFilter"}},
    "formatters": {
        "plain": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s%(work)s"},
        "json": {"()": "kernelsci_site.json_log.JsonFormatter"},
    },
    "handlers": {
        "console": {
            "class": "logging.StreamHandler",
            "filters": ["work"],
            "formatter": "json" if env.flag("KERNELSCI_JSON_LOGS") else "plain",
        }
    },
    "root": {"handlers": ["console"], "level": env.text("KERNELSCI_LOG_LEVEL", "INFO")},
    "loggers": {name: {"level": "WARNING"} for name in ("httpx", "httpx2", "daphne", "django.server", "celery")},
}
