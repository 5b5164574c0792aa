"""Providers' keys at rest: encrypted with secrets that lie outside the database."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings

REDACTED = "[key]"


class UnreadableKeyError(Exception):
    """A stored key was encrypted with a secret that this installation no longer has."""


def encrypt(key: str) -> str:
    """`key` as text for the database; different each time."""
    return _cipher().encrypt(key.encode()).decode() if key else ""


def decrypt(token: str) -> str:
    """The key behind `token`; empty for an empty token. Raises UnreadableKeyError."""
    if not token:
        return ""
    try:
        return _cipher().decrypt(token.encode()).decode()
    except InvalidToken as error:
        raise UnreadableKeyError("the key was encrypted with a secret that is gone: enter it again") from error


def rotated(token: str) -> str:
    """The same key encrypted with the newest secret. Raises UnreadableKeyError."""
    return encrypt(decrypt(token))


def redact(text: str, key: str) -> str:
    """`text` without the key: servers repeat it in error messages, and a hostile one in its answers."""
    return text.replace(key, REDACTED) if len(key) >= 6 else text


class Scrubber:
    """Redacts a key from text that comes in pieces: what may be the key's beginning is held back."""

    def __init__(self, key: str, emit: Callable[[str], None]) -> None:
        self._key, self._emit, self._held = key, emit, ""

    def feed(self, piece: str) -> None:
        """Pass on all that cannot be part of the key."""
        text = redact(self._held + piece, self._key)
        keep = next((n for n in range(min(len(self._key) - 1, len(text)), 0, -1) if self._begins(text[-n:])), 0)
        self._held = text[len(text) - keep :]
        if ready := text[: len(text) - keep]:
            self._emit(ready)

    def close(self) -> None:
        """Pass on the rest."""
        if self._held:
            self._emit(self._held)
        self._held = ""

    def _begins(self, tail: str) -> bool:
        return self._key.startswith(tail)


def _cipher() -> MultiFernet:
    """The first secret encrypts, all decrypt. Secrets are text of any length."""
    digests = (hashlib.sha256(secret.encode()).digest() for secret in settings.PROVIDER_KEY_SECRETS)
    return MultiFernet([Fernet(base64.urlsafe_b64encode(digest)) for digest in digests])
