"""Put files into a spool directory as its users would: signed with the keys of this user."""

from __future__ import annotations

from runners.dispatch.spool import SIGNERS, Spool
from runners.signing import envelope


def put(spool: Spool, folder: str, name: str, message: str | bytes) -> None:
    """Sign a message, whatever it is, and put it there."""
    data = message.encode() if isinstance(message, str) else message
    purpose = f"{'jobs' if folder == 'claimed' else folder}/{name}"
    (spool.root / folder / name).write_bytes(envelope.sealed(spool.keyring.secret(SIGNERS[folder]), purpose, data))
