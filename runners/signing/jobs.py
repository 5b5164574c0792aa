"""Sign jobs where they are made, so that a worker can tell them from jobs that others put into the queue.

The signature covers a canonical text of the complete job, the problem's files included, because a job passes through
databases that store neither the order of its keys nor whether 2.0 was written with its point. A field that was added to
jobs later is covered only where it is set, so that jobs that wait during an upgrade stay valid.
"""

from __future__ import annotations

import json
from typing import Any

from runners import wire
from runners.job import JobSpec
from runners.signing import ed25519
from runners.signing.envelope import EnvelopeError, StrangerError
from runners.signing.keyring import Keyring, Role, name_of

_PURPOSE = b"kernelsci-job/1\0"
# Fields that were added to jobs since they are signed, with the default that a signature leaves out.
_ADDED = {"for_target": ""}


def signature_of(spec: JobSpec, keyring: Keyring) -> str:
    """Return the site's public key and its signature of a job, both in hexadecimal. Raises KeyFileError."""
    secret = keyring.secret(Role.SITE)
    return f"{ed25519.public_of(secret).hex()} {ed25519.sign(secret, _covered(spec)).hex()}"


def check_signed(spec: JobSpec, signature: str, keyring: Keyring) -> None:
    """Raise EnvelopeError for a job that no trusted site has signed as it is, StrangerError for one of another site."""
    try:
        public, signed = (bytes.fromhex(part) for part in signature.split())
    except ValueError as error:
        raise EnvelopeError("the job is not signed") from error
    if not ed25519.is_signed(public, signed, _covered(spec)):
        raise EnvelopeError("the job's signature is wrong: somebody has altered the job")
    if not keyring.trusts(Role.SITE, public.hex()):
        raise StrangerError(f"the job is signed by the site {name_of(public.hex())}, which is not trusted here")


def _covered(spec: JobSpec) -> bytes:
    plain = wire.to_plain(spec)
    canonical = _canonical(
        {name: value for name, value in plain.items() if name not in _ADDED or value != _ADDED[name]}
    )
    return _PURPOSE + json.dumps(canonical, sort_keys=True, separators=(",", ":")).encode()


def _canonical(plain: Any) -> Any:
    """Write whole numbers without a point, since PostgreSQL stores 1e16 as an integer."""
    if isinstance(plain, float) and plain.is_integer():
        return int(plain)
    if isinstance(plain, dict):
        return {key: _canonical(item) for key, item in plain.items()}
    return [_canonical(item) for item in plain] if isinstance(plain, list) else plain
