"""Delete data that an installation no longer needs, of runs that ended long ago.

Deleted are raw samples (medians and intervals stay), prompts (answers, tokens and cost stay) and live logs (the
stages' logs in the results stay). Kernels that are or were released, their ancestors, and the calls that produced
them are never touched: they are the evidence for a release.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

from django.db import connection
from django.db.models import Q, QuerySet

from optimizer.models import JobLog, LlmCall, Measurement, Run, RunState

# Rows per transaction, so that no lock is held for long.
AT_ONCE = 1000
ENDED = [state for state in RunState if state.is_terminal]

_EVIDENCE = """
WITH RECURSIVE evidence (id) AS (
  SELECT kernel_id FROM optimizer_release WHERE state IN ('asked', 'released') OR released_at IS NOT NULL
  UNION
  SELECT link.parent_id FROM optimizer_kernelparent link JOIN evidence ON link.kernel_id = evidence.id
)
SELECT id FROM evidence
"""


def kept_kernels() -> list[int]:
    """Return the kernels whose evidence stays: released and requested ones, and all their ancestors."""
    with connection.cursor() as cursor:
        cursor.execute(_EVIDENCE)
        return [row[0] for row in cursor.fetchall()]


def droppable(kind: str, before: dt.datetime) -> QuerySet[Any]:
    """Return the deletable rows of that kind, of runs that ended before `before`."""
    return KINDS[kind][0](before)


def drop(kind: str, before: dt.datetime) -> int:
    """Delete them in batches, each in its own transaction, and return how many."""
    rows, change = KINDS[kind]
    dropped = 0
    while batch := list(rows(before).order_by("pk").values_list("pk", flat=True)[:AT_ONCE]):
        # Filter by id again: the condition of the first query would be evaluated a second time at great cost.
        change(rows(before).model._default_manager.filter(pk__in=batch))
        dropped += len(batch)
    return dropped


def _samples(before: dt.datetime) -> QuerySet[Any]:
    old = Measurement.objects.exclude(samples_us=[]).filter(
        evaluation__kernel__run__state__in=ENDED, evaluation__kernel__run__finished_at__lt=before
    )
    # Evidence of a release must stay complete, whatever its age.
    return old.exclude(evaluation__kernel__in=kept_kernels())


def _prompts(before: dt.datetime) -> QuerySet[Any]:
    old = LlmCall.objects.exclude(messages=[]).filter(run__state__in=ENDED, run__finished_at__lt=before)
    return old.exclude(pk__in=LlmCall.objects.filter(kernels__in=kept_kernels()).values("pk"))


def _logs(before: dt.datetime) -> QuerySet[Any]:
    ended = Run.objects.filter(state__in=ENDED, finished_at__lt=before)
    # A job belongs to an evaluation, a tool call or a batch compiled ahead.
    old = JobLog.objects.filter(
        Q(job__evaluation__kernel__run__in=ended)
        | Q(job__tool_call__run__in=ended)
        | Q(job__ahead_batch__run__in=ended)
    )
    kept = kept_kernels()
    return old.exclude(job__evaluation__kernel__in=kept).exclude(job__tool_call__turn__call__kernels__in=kept)


KINDS: dict[str, tuple[Callable[[dt.datetime], QuerySet[Any]], Callable[[QuerySet[Any]], object]]] = {
    "samples": (_samples, lambda rows: rows.update(samples_us=[])),
    "prompts": (_prompts, lambda rows: rows.update(messages=[])),
    "logs": (_logs, lambda rows: rows.delete()),
}
