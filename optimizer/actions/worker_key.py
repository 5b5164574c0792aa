"""Register the keys with which the workers of a token sign, and forget them."""

from __future__ import annotations

import logging

from optimizer.models import WorkerKey
from runners.signing.keyring import name_of

logger = logging.getLogger(__name__)


def do_register_worker_key(token_digest: str, public_key: str) -> str:
    """Register a key for a token that has none, and return the token's key: the first one that came stays."""
    row, is_new = WorkerKey.objects.get_or_create(token_digest=token_digest, defaults={"public_key": public_key})
    if is_new:
        logger.info("the token %s is bound to the runner %s", token_digest[:12], name_of(public_key))
    return row.public_key


def do_forget_worker_key(token_digest: str) -> bool:
    """Let the next worker that uses a token register its key. Return whether one was registered."""
    return bool(WorkerKey.objects.filter(token_digest=token_digest).delete()[0])
