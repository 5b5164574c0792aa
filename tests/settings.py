"""The site's settings for a test run: a `var` folder of its own, and password hashing that costs nothing."""

from __future__ import annotations

import os
import tempfile

# A pytest that starts others (xdist) hands its folder down through the environment.
TEST_VAR = os.environ.setdefault("KERNELSCI_TEST_VAR", tempfile.mkdtemp(prefix="kernelsci-test-"))
os.environ["KERNELSCI_VAR"] = TEST_VAR

from kernelsci_site.settings import *  # noqa: E402, F403

# Tables are emptied between tests, the audit log too, which the database refuses to everybody else.
DATABASES["default"]["OPTIONS"]["options"] = "-c kernelsci.may_empty_audit=on"  # noqa: F405
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}  # a run leaves nothing behind
