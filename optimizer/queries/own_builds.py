"""Complete the result of a kernel that was measured elsewhere with this site's own static build of it.

KernelBot says how fast a kernel is, and nothing of its machine code.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from django.db.models import QuerySet

from optimizer.models import Evaluation, EvaluationStatus
from runners.job import BuildReport, Effort, JobResult


def with_own_build(result: JobResult | None, kernel_id: int) -> JobResult | None:
    """Return a kernel's result with the report of its newest static build where the result itself carries none."""
    if result is None or result.build is not None:
        return result
    return replace(result, build=own_build(kernel_id))


def own_build(kernel_id: int) -> BuildReport | None:
    """Return the report of the kernel's newest static build that succeeded, None without one."""
    for built in _own([kernel_id]).order_by("-pk"):
        if (result := built.as_readable_result()) and result.build:
            return result.build
    return None


def own_resources(kernel_ids: Collection[int]) -> Mapping[int, object]:
    """Return by kernel the stored resources of its newest static build that succeeded. No assembly is read."""
    rows = _own(kernel_ids).order_by("pk") if kernel_ids else Evaluation.objects.none()
    return dict(rows.values_list("kernel_id", "result__build__kernels"))


def _own(kernel_ids: Collection[int]) -> QuerySet[Evaluation]:
    return Evaluation.objects.filter(
        kernel__in=kernel_ids, effort=Effort.BUILD.value, status=EvaluationStatus.CORRECT
    )
