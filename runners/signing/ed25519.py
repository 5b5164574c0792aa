"""Sign and verify with Ed25519 (RFC 8032, section 5.1): by `cryptography`, or without it in Python.

Machines that only measure have torch and nothing else, and have to check jobs too. The arithmetic below takes some
milliseconds for a signature. It does not hide how long it takes, so it signs only what its own machine measured; keys
that matter more are used where `cryptography` is installed.
"""

from __future__ import annotations

import hashlib

try:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
except ImportError:
    HAS_LIBRARY = False
else:
    HAS_LIBRARY = True

KEY_BYTES, SIGNATURE_BYTES = 32, 64

# The curve -x² + y² = 1 + d x² y² over the field of P elements; L is the order of the base point.
P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
ROOT_OF_MINUS_1 = pow(2, (P - 1) // 4, P)
# Extended coordinates (X, Y, Z, T) with x = X/Z, y = Y/Z, x y = T/Z.
Point = tuple[int, int, int, int]
NEUTRAL: Point = (0, 1, 1, 0)


def public_of(secret: bytes) -> bytes:
    """Return the public key, 32 bytes, of a secret of 32 random bytes."""
    if HAS_LIBRARY:
        return Ed25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()
    return plain_public_of(secret)


def sign(secret: bytes, message: bytes) -> bytes:
    """Return the signature of a message, 64 bytes."""
    if HAS_LIBRARY:
        return Ed25519PrivateKey.from_private_bytes(secret).sign(message)
    return plain_sign(secret, message)


def is_signed(public: bytes, signature: bytes, message: bytes) -> bool:
    """Return whether that key has signed that message. Never raises for what is malformed."""
    if len(public) != KEY_BYTES or len(signature) != SIGNATURE_BYTES:
        return False
    if not HAS_LIBRARY:
        return plain_is_signed(public, signature, message)
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def plain_public_of(secret: bytes) -> bytes:
    """Do what `public_of` does, without a library."""
    return _encoded(_times(_expanded(secret)[0], BASE))


def plain_sign(secret: bytes, message: bytes) -> bytes:
    """Do what `sign` does, without a library."""
    scalar, prefix = _expanded(secret)
    public = _encoded(_times(scalar, BASE))
    nonce = _hashed(prefix, message)
    committed = _encoded(_times(nonce, BASE))
    response = (nonce + _hashed(committed, public, message) * scalar) % L
    return committed + response.to_bytes(32, "little")


def plain_is_signed(public: bytes, signature: bytes, message: bytes) -> bool:
    """Do what `is_signed` does, without a library."""
    key = _decoded(public)
    response = int.from_bytes(signature[32:], "little")
    # A response of L or more would be a second signature of the same message.
    if key is None or response >= L:
        return False
    challenge = _hashed(signature[:32], public, message)
    opposite = (-key[0] % P, key[1], key[2], -key[3] % P)
    return _encoded(_sum(_times(response, BASE), _times(challenge, opposite))) == signature[:32]


def _expanded(secret: bytes) -> tuple[int, bytes]:
    digest = hashlib.sha512(secret).digest()
    # Clamping: a multiple of eight, with the highest bit set (RFC 8032, 5.1.5).
    scalar = int.from_bytes(digest[:32], "little") & ((1 << 254) - 8) | (1 << 254)
    return scalar, digest[32:]


def _hashed(*parts: bytes) -> int:
    return int.from_bytes(hashlib.sha512(b"".join(parts)).digest(), "little") % L


def _sum(one: Point, two: Point) -> Point:
    a = (one[1] - one[0]) * (two[1] - two[0]) % P
    b = (one[1] + one[0]) * (two[1] + two[0]) % P
    c = 2 * one[3] * two[3] * D % P
    d = 2 * one[2] * two[2] % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % P, g * h % P, f * g % P, e * h % P


def _times(scalar: int, point: Point) -> Point:
    result = NEUTRAL
    while scalar:
        if scalar & 1:
            result = _sum(result, point)
        point = _sum(point, point)
        scalar >>= 1
    return result


def _encoded(point: Point) -> bytes:
    inverse = pow(point[2], -1, P)
    x, y = point[0] * inverse % P, point[1] * inverse % P
    return (y | (x & 1) << 255).to_bytes(32, "little")


def _decoded(encoded: bytes) -> Point | None:
    """Return the point of its encoding: y, and the lowest bit of x at the top. None if there is none."""
    number = int.from_bytes(encoded, "little")
    sign, y = number >> 255, number & ((1 << 255) - 1)
    if y >= P:
        return None
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * ROOT_OF_MINUS_1 % P
    if (x * x - square) % P or (x == 0 and sign):
        return None
    x = P - x if x & 1 != sign else x
    return x, y, 1, x * y % P


def _base() -> Point:
    point = _decoded((4 * pow(5, -1, P) % P).to_bytes(32, "little"))
    if point is None:
        raise ArithmeticError("the base point is not on the curve")
    return point


BASE = _base()
