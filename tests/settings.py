"""Define the site's settings for a test run: a `var` folder of its own, and password hashing that costs nothing."""

from __future__ import annotations

import os
import tempfile

# A pytest that starts others (pytest-xdist) hands its folder down through the environment. Each of them has a folder
# and therefore servers of its own: names of channels hold row numbers, which two databases have in common.
if "KERNELSCI_TEST_VAR" not in os.environ:
    os.environ["KERNELSCI_TEST_VAR"] = tempfile.mkdtemp(prefix="kernelsci-test-")
TEST_VAR = os.environ["KERNELSCI_TEST_VAR"]
os.environ["KERNELSCI_VAR"] = os.path.join(TEST_VAR, os.environ.get("PYTEST_XDIST_WORKER", "main"))  # noqa: PTH118
# All evaluations of a run share what the harness keeps, whichever process makes them, and leave the user's own alone.
os.environ["KERNELSCI_STATE"] = os.path.join(TEST_VAR, "harness")  # noqa: PTH118

# Threads of two test processes that wait for each other by spinning take each other's core.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from kernelsci_site.settings import *  # noqa: E402, F403

# Tables are emptied between tests, the audit log too, which the database refuses to everybody else.
DATABASES["default"]["OPTIONS"]["options"] = "-c kernelsci.may_empty_audit=on"  # noqa: F405
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}  # a run leaves nothing behind

# Tests of the rate switch it on, those that start a server by its variable; others call the API as fast as they can.
API_RATE = int(os.environ.get("KERNELSCI_API_RATE", "0"))
