"""Put a signature before a message: one line with the public key and the signature, then the message as it is.

The signature covers the message's purpose too, such as `job 7.2.json`: what was signed as one thing can't be presented
as another, or under another name.
"""

from __future__ import annotations

import re

from runners.signing import ed25519

FORMAT = "kernelsci-signed/1"
_HEAD = re.compile(rb"kernelsci-signed/1 ([0-9a-f]{64}) ([0-9a-f]{128})\n")


class EnvelopeError(ValueError):
    """Report that a message is not signed, or not by the key that it names."""


class StrangerError(EnvelopeError):
    """Report that a message is signed by a key that is not trusted here."""


def sealed(secret: bytes, purpose: str, message: bytes) -> bytes:
    """Return the message with its signature before it."""
    signature = ed25519.sign(secret, _covered(purpose, message))
    return f"{FORMAT} {ed25519.public_of(secret).hex()} {signature.hex()}\n".encode() + message


def opened(envelope: bytes, purpose: str) -> tuple[str, bytes]:
    """Return the public key that signed, in hexadecimal, and the message. Whether to trust the key is the caller's to
    decide. Raises EnvelopeError."""
    head = _HEAD.match(envelope)
    if head is None:
        raise EnvelopeError("is not signed")
    message = envelope[head.end() :]
    public, signature = (bytes.fromhex(part.decode()) for part in head.groups())
    if not ed25519.is_signed(public, signature, _covered(purpose, message)):
        raise EnvelopeError("its signature is wrong")
    return public.hex(), message


def _covered(purpose: str, message: bytes) -> bytes:
    return f"{FORMAT}\0{purpose}\0".encode() + message
