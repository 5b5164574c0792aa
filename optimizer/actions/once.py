"""Start a run once per idempotency key, however often a client sends the request."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from django.db import IntegrityError, transaction

from optimizer.models import IdempotencyKey, Run, User


class KeyReusedError(ValueError):
    """Report that the key was sent before with another request."""

    def __str__(self) -> str:
        return "This Idempotency-Key was used for another request; a new request needs a new key."


def do_once(user: User, key: str, request: Mapping[str, Any], start: Callable[[], Run]) -> tuple[Run, bool]:
    """Call `start` unless the key was used before. Return the run and whether it was created now.

    Of two concurrent requests the second waits for the first one's commit. Raises KeyReusedError and whatever `start`
    raises, which leaves the key unused.
    """
    if not key:
        return start(), True
    digest = hashlib.sha256(json.dumps(request, sort_keys=True, default=str).encode()).hexdigest()
    try:
        with transaction.atomic():
            # Insert first: a concurrent request with this key blocks on the unique index until this transaction
            # ends.
            row = IdempotencyKey.objects.create(user=user, key=key, request_hash=digest)
            row.run = start()
            row.save(update_fields=["run"])
            return row.run, True
    except IntegrityError as error:
        earlier = IdempotencyKey.objects.filter(user=user, key=key).first()
        if earlier is None:  # it was another constraint, and is a bug
            raise
        return _earlier(earlier, digest, error), False


def _earlier(row: IdempotencyKey, digest: str, error: IntegrityError) -> Run:
    # A different request under the same key is a mistake of the client, not a repetition.
    if row.request_hash != digest or row.run_id is None:
        raise KeyReusedError from error
    return Run.objects.for_dashboard().get(pk=row.run_id)
