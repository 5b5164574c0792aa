"""Read and check every setting that an installation may change through the environment."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured
from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

LOCAL_HOSTS = "localhost,127.0.0.1,[::1]"


def text(name: str, default: str = "") -> str:
    """Return the variable, or the content of the file that `NAME_FILE` names, or `default` where both are blank.

    Secrets belong into files: every process that a worker starts inherits its environment. Raises
    `ImproperlyConfigured` for a file that cannot be read.
    """
    return os.environ.get(name, "").strip() or _from_file(os.environ.get(f"{name}_FILE", "").strip()) or default


def _from_file(path: str) -> str:
    if not path:
        return ""
    try:
        return Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ImproperlyConfigured(f"the secret in {path} cannot be read: {error}") from error


def flag(name: str, default: bool = False) -> bool:
    """Return the variable as a boolean. Raises `ImproperlyConfigured` for anything else."""
    value = text(name, "1" if default else "0").lower()
    if value not in ("0", "1", "true", "false", "yes", "no", "on", "off"):
        raise ImproperlyConfigured(f"{name} is {value!r}: write 1 or 0")
    return value in ("1", "true", "yes", "on")


def count(name: str) -> int:
    """Return the variable as a number from 0 to 9, 0 when absent. Raises `ImproperlyConfigured` for anything else."""
    value = text(name, "0")
    if not re.fullmatch(r"[0-9]", value):
        raise ImproperlyConfigured(f"{name} is {value!r}: write how many, 0 to 9")
    return int(value)


def number(name: str, default: int) -> int:
    """Return the variable as a whole number. Raises `ImproperlyConfigured` for anything else."""
    value = text(name, str(default))
    if not re.fullmatch(r"[0-9]{1,9}", value):
        raise ImproperlyConfigured(f"{name} is {value!r}: write a whole number")
    return int(value)


def days(name: str) -> float:
    """Return the variable as a number of days, 0 when absent. Raises `ImproperlyConfigured` for anything else."""
    value = text(name, "0")
    if not re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,3})?", value):
        raise ImproperlyConfigured(f"{name} is {value!r}: write a number of days, such as 7 or 0.5")
    return float(value)


def words(name: str, default: str = "") -> list[str]:
    """Return the variable as a comma-separated list."""
    return [word.strip() for word in text(name, default).split(",") if word.strip()]


def allowed_hosts() -> list[str]:
    """Return ALLOWED_HOSTS. Raises `ImproperlyConfigured` for `*`, which would open the sockets to every web site."""
    hosts = words("ALLOWED_HOSTS", LOCAL_HOSTS)
    # The origin check of websockets relies on this list.
    if any(host in ("*", ".") for host in hosts):
        raise ImproperlyConfigured("ALLOWED_HOSTS may not be '*': name the hosts that people type")
    return hosts


def database(url: str, *, pooled: bool) -> dict[str, Any]:
    """Return Django's entry for a libpq URL. Raises `ImproperlyConfigured` for anything but PostgreSQL."""
    if not url.startswith(("postgresql://", "postgres://")):
        raise ImproperlyConfigured("DATABASE_URL must start with postgresql:// (no other database will do)")
    try:
        parts = conninfo_to_dict(url)
    except ProgrammingError as error:
        raise ImproperlyConfigured("DATABASE_URL cannot be read; special characters need %-escapes") from error
    names = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}
    entry: dict[str, Any] = {name: str(parts.pop(key, "") or "") for name, key in names.items()}
    options: dict[str, Any] = {"connect_timeout": 10, **parts}
    if pooled:
        # Twelve per web process stays well below PostgreSQL's 100 connections with several processes.
        options["pool"] = {"min_size": 1, "max_size": 12, "timeout": 10}
    return {"ENGINE": "django.db.backends.postgresql", "OPTIONS": options, "CONN_MAX_AGE": 0, **entry}


def celery_broker(url: str) -> str:
    """Return the URL in Celery's spelling: a Redis socket is `redis+socket://` there and `unix://` elsewhere."""
    if url.startswith("unix://"):
        return "redis+socket://" + url.removeprefix("unix://").replace("?db=", "?virtual_host=")
    return url


def openid_connect(server: str, name: str) -> dict[str, Any]:
    """Return allauth's entry for the OpenID Connect server, with PKCE.

    Raises `ImproperlyConfigured` without https (except on this machine) or without a client.
    """
    parts = urlsplit(server)
    # Without TLS, anybody on the way could read the code and sign in as the person.
    if parts.scheme != "https" and parts.hostname not in ("localhost", "127.0.0.1"):
        raise ImproperlyConfigured("OIDC_SERVER must start with https://")
    if not (client := text("OIDC_CLIENT_ID")):
        raise ImproperlyConfigured("OIDC_SERVER needs OIDC_CLIENT_ID, and OIDC_SECRET where the server gave one")
    app = {"provider_id": "company", "name": name, "client_id": client, "secret": text("OIDC_SECRET")}
    return {"openid_connect": {"APPS": [{**app, "settings": {"server_url": server, "oauth_pkce_enabled": True}}]}}


def origin(url: str) -> str:
    """Return scheme and host of an address, in the form of a content security policy; "" for none."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}" if parts.netloc else ""
