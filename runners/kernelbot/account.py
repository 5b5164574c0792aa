"""Read the account at KernelBot. Its identity is a secret that a person obtained with KernelBot's own client."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from urllib.parse import urlsplit

URL_VARIABLE = "POPCORN_API_URL"
ID_VARIABLE = "POPCORN_CLI_ID"


class NotConfiguredError(RuntimeError):
    """Report that the environment does not say where KernelBot is or who we are there."""


@dataclass(frozen=True)
class Account:
    """Hold the base URL without a trailing slash, and the identity, which appears in no representation or message."""

    url: str
    cli_id: str = field(repr=False)

    @property
    def lock_name(self) -> str:
        """Return a lock name for "one submission at a time". It tells accounts apart and hides the identity."""
        return f"kernelbot:{hashlib.sha256(f'{self.url} {self.cli_id}'.encode()).hexdigest()[:16]}"

    def without_secret(self, text: str) -> str:
        """Remove the identity from a text of the server, which might echo it."""
        return text.replace(self.cli_id, "…")


def account_from_environment() -> Account:
    """Read the account from POPCORN_API_URL and POPCORN_CLI_ID. Raises NotConfiguredError."""
    url, cli_id = os.environ.get(URL_VARIABLE, "").strip().rstrip("/"), os.environ.get(ID_VARIABLE, "").strip()
    if not url or not cli_id:
        raise NotConfiguredError(f"KernelBot needs {URL_VARIABLE} and {ID_VARIABLE} in the worker's environment")
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
        raise NotConfiguredError(f"{URL_VARIABLE} is not an http or https address")
    # It is sent as a header, where line breaks would add headers of their own.
    if not cli_id.isascii() or not cli_id.isprintable():
        raise NotConfiguredError(f"{ID_VARIABLE} has characters that an identity cannot have")
    return Account(url, cli_id)


def is_configured() -> bool:
    """Return whether the environment names an account."""
    try:
        account_from_environment()
    except NotConfiguredError:
        return False
    return True
