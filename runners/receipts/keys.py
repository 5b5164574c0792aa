"""Keep the installation's signing key for receipts (Ed25519, RFC 8032), and read the keys of others.

The private key is made at first use, in a file that only its owner can read. Public keys travel as 64 hexadecimal
digits; the first 16 of their SHA-256 are the key's name in texts for people.
"""

from __future__ import annotations

import os
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from runners.signing.keyring import KeyFileError, name_of, secret_of
from runners.signing.keyring import read_public_key as read_digits
from runners.state import state_dir

__all__ = [
    "KeyFileError",
    "default_key_file",
    "installation_key",
    "is_signed",
    "name_of",
    "public_key_of",
    "read_public_key",
]

FILE = "receipts.key"


def default_key_file() -> Path:
    """Return where the key lies: KERNELSCI_RECEIPT_KEY, else the folder of everything that outlives evaluations."""
    return Path(os.environ.get("KERNELSCI_RECEIPT_KEY") or state_dir("keys") / FILE)


def installation_key(path: Path) -> Ed25519PrivateKey:
    """Return the private key of that file, which is made if it is missing. Raises KeyFileError."""
    return Ed25519PrivateKey.from_private_bytes(secret_of(path))


def public_key_of(key: Ed25519PrivateKey) -> str:
    """Return the public half in hexadecimal."""
    return key.public_key().public_bytes_raw().hex()


def read_public_key(text: str) -> str:
    """Return the public key that is written in hexadecimal, or in the file of that name. Raises KeyFileError."""
    return read_digits(text)


def is_signed(public_key: str, signature: str, message: bytes) -> bool:
    """Return whether the signature (hexadecimal) of the message is that key's. Never raises for what is malformed."""
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(public_key)).verify(bytes.fromhex(signature), message)
    except (InvalidSignature, ValueError):
        return False
    return True
