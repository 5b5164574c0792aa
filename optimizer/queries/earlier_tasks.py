"""Find what earlier runs measured of a run's problem on other targets, and of other versions of it."""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache

from django.db.models import QuerySet

from optimizer.models import Evaluation, EvaluationStatus, Run
from optimizer.queries.earlier_runs import newest_ids, shared_with
from optimizer.search.earlier import EarlierTask
from runners.job import Language, Variant

# The newest measurements that are read.
MOST = 5_000


def earlier_tasks(run: Run) -> tuple[EarlierTask, ...]:
    """Return one task for each other target, version of the problem and language, in order of the targets' titles.

    Only what was measured before the run was created counts, so the answer stays the same while the run goes on.
    """
    return _read(run.pk)


@lru_cache(maxsize=64)
def _read(run_id: int) -> tuple[EarlierTask, ...]:
    run = Run.objects.select_related("target", "problem_version").get(pk=run_id)
    fields = (
        "kernel__run__target__title", "kernel__run__problem_version__number", "kernel__language", "kernel__tunables",
        "kernel__flags", "time_us",
    )  # fmt: skip
    rows = list(_measured(run).order_by("-pk").values_list(*fields)[:MOST])
    groups: dict[tuple[str, int, str], list[tuple[Variant, float]]] = defaultdict(list)
    for target, version, language, tunables, flags, time_us in reversed(rows):
        groups[target, version, language].append((Variant(tunables, tuple(flags)), time_us))
    return tuple(
        EarlierTask(_title(run, target, version), Language(language), tuple(measured))
        for (target, version, language), measured in sorted(groups.items(), key=lambda pair: pair[0])
    )


def _measured(run: Run) -> QuerySet[Evaluation]:
    """Return the correct first evaluations of kernels with tunables on another target, or of another version."""
    earlier = shared_with(run).filter(problem_version__problem=run.problem_version.problem_id, pk__lt=run.pk)
    # What was measured of the same cases on the same target is no other task.
    others = earlier.exclude(target=run.target_id, problem_version=run.problem_version_id)
    return Evaluation.objects.filter(
        first_of__run__in=newest_ids(others), status=EvaluationStatus.CORRECT, unconfirmed=False, time_us__isnull=False,
        finished_at__lt=run.created_at,
    ).exclude(kernel__tunables={})  # fmt: skip


def _title(run: Run, target: str, version: int) -> str:
    if version == run.problem_version.number:
        return f"on {target}"
    return f"of version {version} of the problem on {target}"
