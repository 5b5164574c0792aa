"""Start a run or campaign once per idempotency key, however often a client sends the request."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from django.db import IntegrityError, transaction

from optimizer.models import Campaign, IdempotencyKey, Run, User

Started = TypeVar("Started", Run, Campaign)


class KeyReusedError(ValueError):
    """Report that the key was sent before with another request."""

    def __str__(self) -> str:
        return "This Idempotency-Key was used for another request; a new request needs a new key."


def do_once(user: User, key: str, request: Mapping[str, Any], start: Callable[[], Started]) -> tuple[Started, bool]:
    """Call `start` unless the key was used before. Return what was started, and whether it was now.

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
            started = start()
            row.keep(started)
            return started, True
    except IntegrityError as error:
        earlier = IdempotencyKey.objects.filter(user=user, key=key).select_related("run", "campaign").first()
        if earlier is None:  # it was another constraint, and is a bug
            raise
        # A different request under the same key is a mistake of the client, not a repetition.
        if earlier.request_hash != digest or earlier.started is None:
            raise KeyReusedError from error
        # The hash is of the same request, so what it started is of the same kind.
        return cast(Started, _whole(earlier.started)), False


def _whole(started: Run | Campaign) -> Run | Campaign:
    """Return the row with the joins that an answer needs."""
    if isinstance(started, Run):
        return Run.objects.for_dashboard().get(pk=started.pk)
    return Campaign.objects.select_related("suite", "target", "team", "created_by").get(pk=started.pk)
