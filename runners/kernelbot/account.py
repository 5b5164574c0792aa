"""Who we are at KernelBot. The identity is a secret that a person obtained with KernelBot's own client."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from urllib.parse import urlsplit

URL_VARIABLE = "POPCORN_API_URL"
ID_VARIABLE = "POPCORN_CLI_ID"


class NotConfiguredError(RuntimeError):
    """The environment does not say where KernelBot is or who we are there."""


@dataclass(frozen=True)
class Account:
    """Base URL without a slash at its end, and the identity, which appears in no representation or message."""

    url: str
    cli_id: str = field(repr=False)

    @property
    def lock_name(self) -> str:
        """A name for "one submission at a time" that tells accounts apart and gives none away."""
        return f"kernelbot:{hashlib.sha256(f'{self.url} {self.cli_id}'.encode()).hexdigest()[:16]}"

    def without_secret(self, text: str) -> str:
        """Text of the server with the identity taken out, should it be echoed."""
        return text.replace(self.cli_id, "…")


def account_from_environment() -> Account:
    """From POPCORN_API_URL and POPCORN_CLI_ID. Raises NotConfiguredError."""
    url, cli_id = os.environ.get(URL_VARIABLE, "").strip().rstrip("/"), os.environ.get(ID_VARIABLE, "").strip()
    if not url or not cli_id:
        raise NotConfiguredError(f"KernelBot needs {URL_VARIABLE} and {ID_VARIABLE} in the worker's environment")
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
        raise NotConfiguredError(f"{URL_VARIABLE} is no http or https address")
    if not cli_id.isascii() or not cli_id.isprintable():
        raise NotConfiguredError(f"{ID_VARIABLE} has characters that no identity has")
    return Account(url, cli_id)


def is_configured() -> bool:
    """Whether this process could talk to KernelBot."""
    try:
        account_from_environment()
    except NotConfiguredError:
        return False
    return True
