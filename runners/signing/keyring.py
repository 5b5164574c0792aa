"""Keep this user's signing keys, and the keys of others that this user trusts.

A key has a role: a *site* signs jobs, a *runner* signs results. Secret keys are made at first use, in files that only
their owner can read, below the folder of everything that outlives evaluations. A trusted key is a file of 64
hexadecimal digits below `trusted/ROLE/`, so that pinning one takes no more than a copy.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
from enum import StrEnum
from pathlib import Path

from runners.signing import ed25519
from runners.state import state_dir

_NAME = re.compile(r"[\w.-]{1,100}")
# More than any installation has, and few enough to be read for every job.
MOST_TRUSTED = 1000


class KeyFileError(ValueError):
    """Report that a key cannot be read. The message names the file or text, never the key."""


class Role(StrEnum):
    """List who signs: a site its jobs, a runner its results."""

    SITE = "site"
    RUNNER = "runner"


class Keyring:
    """Hold the keys of this user, in a folder of its own."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or state_dir("keys")
        # An installation keeps the key that signs jobs with its other secrets.
        self._site_key = os.environ.get("KERNELSCI_SITE_KEY", "") if folder is None else ""

    def secret(self, role: Role) -> bytes:
        """Return our own secret key of that role, which is made if it is missing. Raises KeyFileError."""
        named = self._site_key if role is Role.SITE else ""
        return secret_of(Path(named) if named else self._folder / f"{role}.key")

    def public(self, role: Role) -> str:
        """Return our own public key of that role in hexadecimal."""
        return ed25519.public_of(self.secret(role)).hex()

    def trusts(self, role: Role, public: str) -> bool:
        """Return whether a public key is our own or was pinned for that role."""
        return public == self.public(role) or public in self.trusted(role).values()

    def trusted(self, role: Role) -> dict[str, str]:
        """Return the pinned public keys of that role by name. Files that hold none are skipped."""
        found = {}
        for path in sorted((self._folder / "trusted" / role).glob("*.pub"))[:MOST_TRUSTED]:
            with contextlib.suppress(KeyFileError):
                found[path.stem] = read_public_key(str(path))
        return found

    def trust(self, role: Role, public: str, name: str = "") -> str:
        """Pin a public key under a name, by default its short one, and return the name. Raises KeyFileError."""
        public = read_public_key(public)
        name = name or name_of(public)
        if not _NAME.fullmatch(name):
            raise KeyFileError(f"{name!r} is not a name: letters, digits, dots, - and _ only")
        folder = self._folder / "trusted" / role
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / f"{name}.pub").write_text(f"{public}\n")
        return name

    def forget(self, role: Role, name: str) -> bool:
        """Remove a pinned key. Return whether there was one of that name."""
        path = self._folder / "trusted" / role / f"{name}.pub"
        if not _NAME.fullmatch(name) or not path.is_file():
            return False
        path.unlink()
        return True


def secret_of(path: Path) -> bytes:
    """Return the secret key of that file, which is made if it is missing. Raises KeyFileError."""
    if not path.exists():
        _make(path)
    try:
        key = bytes.fromhex(path.read_text().strip())
    except (OSError, ValueError):
        key = b""
    if len(key) != ed25519.KEY_BYTES:
        raise KeyFileError(f"{path}: not a signing key of {ed25519.KEY_BYTES} bytes in hexadecimal")
    return key


def read_public_key(text: str) -> str:
    """Return the public key that is written in hexadecimal, or in the file of that name. Raises KeyFileError."""
    path = Path(text)
    with contextlib.suppress(OSError, ValueError):
        text = path.read_text() if path.is_file() else text
    try:
        key = bytes.fromhex(text.strip())
    except ValueError:
        key = b""
    if len(key) != ed25519.KEY_BYTES:
        raise KeyFileError(f"{path}: not a public key, which has 64 hexadecimal digits")
    return key.hex()


def name_of(public: str) -> str:
    """Return the short name of a public key: the first 16 digits of its SHA-256."""
    return hashlib.sha256(bytes.fromhex(public)).hexdigest()[:16]


def _make(path: Path) -> None:
    """Write a new key. Of two processes that come at once one wins, and both read the same key."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(secrets.token_bytes(ed25519.KEY_BYTES).hex() + "\n")
        file.flush()
        # What a key that a power failure took had signed could never be told from what was forged.
        os.fsync(file.fileno())
    # `link` fails where the file exists, unlike `rename`.
    with contextlib.suppress(FileExistsError):
        os.link(draft, path)
    draft.unlink()
