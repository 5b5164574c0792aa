"""Keep the installation's signing key (Ed25519, RFC 8032), and read the keys of others.

The private key is made at first use, in a file that only its owner can read. Public keys travel as 64 hexadecimal
digits; the first 16 of their SHA-256 are the key's name in texts for people.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from runners.state import state_dir

FILE = "receipts.key"
KEY_BYTES = 32


class KeyFileError(ValueError):
    """Report that a key cannot be read. The message names the file or text, never the key."""


def default_key_file() -> Path:
    """Return where the key lies: KERNELSCI_RECEIPT_KEY, else the folder of everything that outlives evaluations."""
    return Path(os.environ.get("KERNELSCI_RECEIPT_KEY") or state_dir("keys") / FILE)


def installation_key(path: Path) -> Ed25519PrivateKey:
    """Return the private key of that file, which is made if it is missing. Raises KeyFileError."""
    if not path.exists():
        _make(path)
    try:
        return Ed25519PrivateKey.from_private_bytes(bytes.fromhex(path.read_text().strip()))
    except (OSError, ValueError) as error:
        raise KeyFileError(f"{path}: not a signing key of {KEY_BYTES} bytes in hexadecimal") from error


def public_key_of(key: Ed25519PrivateKey) -> str:
    """Return the public half in hexadecimal."""
    return key.public_key().public_bytes_raw().hex()


def read_public_key(text: str) -> str:
    """Return the public key that is written in hexadecimal, or in the file of that name. Raises KeyFileError."""
    path = Path(text)
    with contextlib.suppress(OSError):
        text = path.read_text() if path.is_file() else text
    try:
        key = bytes.fromhex(text.strip())
        Ed25519PublicKey.from_public_bytes(key)
    except ValueError as error:
        raise KeyFileError(f"{path}: not a public key, which has 64 hexadecimal digits") from error
    return key.hex()


def name_of(public_key: str) -> str:
    """Return the short name of a public key."""
    return hashlib.sha256(bytes.fromhex(public_key)).hexdigest()[:16]


def is_signed(public_key: str, signature: str, message: bytes) -> bool:
    """Return whether the signature (hexadecimal) of the message is that key's. Never raises for what is malformed."""
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(public_key)).verify(bytes.fromhex(signature), message)
    except (InvalidSignature, ValueError):
        return False
    return True


def _make(path: Path) -> None:
    """Write a new key. Of two processes that come at once one wins, and both read the same key."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(Ed25519PrivateKey.generate().private_bytes_raw().hex() + "\n")
        file.flush()
        # Receipts of a key that a power failure took could never be told from forged ones.
        os.fsync(file.fileno())
    # `link` fails where the file exists, unlike `rename`.
    with contextlib.suppress(FileExistsError):
        os.link(draft, path)
    draft.unlink()
