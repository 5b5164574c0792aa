"""Encrypt secrets at rest with keys that are kept outside the database."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from typing import Any

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings

REDACTED = "[key]"


class UnreadableKeyError(Exception):
    """Report that a stored secret was encrypted with a key that this installation no longer has."""


def encrypt(key: str) -> str:
    """Encrypt `key` as text for the database. The result is different each time."""
    return _cipher().encrypt(key.encode()).decode() if key else ""


def decrypt(token: str) -> str:
    """Return the plain text of `token`, empty for an empty token. Raises UnreadableKeyError."""
    if not token:
        return ""
    try:
        return _cipher().decrypt(token.encode()).decode()
    except InvalidToken as error:
        raise UnreadableKeyError("the key was encrypted with a secret that is gone: enter it again") from error


def rotated(token: str) -> str:
    """Encrypt the same plain text with the newest key. Raises UnreadableKeyError."""
    return encrypt(decrypt(token))


def redact(text: str, key: str) -> str:
    """Remove the key from `text`, since servers repeat it in error messages and hostile ones in their answers."""
    # A very short key would occur in ordinary words, and is no secret anyway.
    return text.replace(key, REDACTED) if len(key) >= 6 else text


def redact_values(value: Any, key: str) -> Any:
    """Remove the key from every text in a JSON value."""
    if isinstance(value, str):
        return redact(value, key)
    if isinstance(value, dict):
        return {redact(str(name), key): redact_values(item, key) for name, item in value.items()}
    return [redact_values(item, key) for item in value] if isinstance(value, list) else value


class Scrubber:
    """Redact a key from text that arrives in pieces, holding back what may be the beginning of the key."""

    def __init__(self, key: str, emit: Callable[[str], None]) -> None:
        self._key, self._emit, self._held = key, emit, ""

    def feed(self, piece: str) -> None:
        """Pass on everything that cannot be part of the key."""
        text = redact(self._held + piece, self._key)
        # The longest suffix that could be the start of the key, as the next piece may complete it.
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
    """Build the cipher: the first secret encrypts, all secrets decrypt. Secrets are text of any length."""
    # Fernet needs exactly 32 bytes, and secrets are texts of any length.
    digests = (hashlib.sha256(secret.encode()).digest() for secret in settings.PROVIDER_KEY_SECRETS)
    return MultiFernet([Fernet(base64.urlsafe_b64encode(digest)) for digest in digests])
