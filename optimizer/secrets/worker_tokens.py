"""Keep the tokens of measuring workers: each is for one queue, and the site stores only its digest, in a file.

The file has a line for each token: queue, SHA-256 of the token, name. It is read for every request, so that a token
is valid as soon as it was added, and no longer when its line is gone. Tokens carry 256 random bits and need no salt.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

PREFIX = "kw_"
_LINE = re.compile(r"(?P<queue>[\w.-]{1,60})\s+(?P<digest>[0-9a-f]{64})(?:\s+(?P<name>[\w.@-]{1,100}))?")
_NAME = re.compile(r"[\w.@-]{1,100}")


class WorkerTokenError(ValueError):
    """Report a name or queue that cannot be used."""


@dataclass(frozen=True)
class WorkerToken:
    """Hold one line of the file."""

    queue: str
    digest: str
    name: str


def tokens() -> list[WorkerToken]:
    """Return all tokens. Lines that hold none are skipped."""
    text = ""
    with suppress(OSError, UnicodeDecodeError):
        text = _file().read_text()
    found = (_LINE.fullmatch(line.strip()) for line in text.splitlines())
    return [WorkerToken(one["queue"], one["digest"], one["name"] or one["digest"][:12]) for one in found if one]


def token_of(secret: str) -> WorkerToken | None:
    """Return the line of a token, or None for no token of ours."""
    digest = hashlib.sha256(secret.encode()).hexdigest()
    # Digests of random tokens tell an attacker who times the comparison nothing that helps to find a token.
    return next((token for token in tokens() if token.digest == digest), None)


def token_named(name: str) -> WorkerToken | None:
    """Return the token of that name, or None."""
    return next((token for token in tokens() if token.name == name), None)


def add_token(queue: str, name: str) -> str:
    """Store a new token for a queue and return it; it cannot be read again. Raises WorkerTokenError."""
    if not re.fullmatch(r"build|bench\.[\w-]{1,50}", queue):
        raise WorkerTokenError(f"{queue!r} is no queue of measuring workers: build, or bench.TARGET")
    if not _NAME.fullmatch(name) or token_named(name):
        raise WorkerTokenError(
            f"{name!r} is taken, or has characters other than letters, digits, “.”, “_”, “-”, “@”"
        )
    secret = PREFIX + secrets.token_urlsafe(32)
    _write([*tokens(), WorkerToken(queue, hashlib.sha256(secret.encode()).hexdigest(), name)])
    return secret


def revoke_token(name: str) -> bool:
    """Remove the token of that name. Return whether there was one."""
    if token_named(name) is None:
        return False
    _write([token for token in tokens() if token.name != name])
    return True


def _file() -> Path:
    return Path(settings.WORKER_TOKENS)


def _write(kept: list[WorkerToken]) -> None:
    path = _file()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.writelines(f"{token.queue} {token.digest} {token.name}\n" for token in kept)
    draft.replace(path)
