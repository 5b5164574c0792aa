"""Describe device memory in words: what an evaluation needed, and what the device has."""

from __future__ import annotations

from optimizer.models import Evaluation, EvaluationState, EvaluationStatus, Run
from runners.job import JobResult, MemoryUse

GIB = 1 << 30


def gib(size_bytes: int) -> str:
    """Return a size in GiB with one decimal, in MiB below a tenth of that: `93.1 GiB`."""
    if size_bytes < GIB / 10:
        return f"{size_bytes / (1 << 20):.0f} MiB"
    return f"{size_bytes / GIB:.1f} GiB"


def too_large_text(memory: MemoryUse | None) -> str:
    """Return the sentence that names both figures, or one without them where the runner did not say."""
    if memory is None or not memory.needed_bytes or not memory.available_bytes:
        return "This problem does not fit into the device's memory."
    return f"This problem needs {gib(memory.needed_bytes)}, the device has {gib(memory.available_bytes)}."


def memory_text(result: JobResult | None) -> str:
    """Return how much device memory an evaluation used; empty where nothing was measured."""
    memory = result.memory if result else None
    if memory is None or not memory.peak_bytes:
        return ""
    beside = f"; inputs, weights and outputs take {gib(memory.footprint_bytes)}" if memory.footprint_bytes else ""
    own = f", the reference's intermediate results {gib(memory.reference_bytes)}" if memory.reference_bytes else ""
    return f"{gib(memory.peak_bytes)} at its peak{beside}{own}"


def shortage_of(run: Run) -> str:
    """Return why the run's problem cannot be measured on its device, or an empty string.

    The footprint is the problem's, so one seed that does not fit speaks for all kernels of the run.
    """
    ended = Evaluation.objects.filter(kernel__run=run, state=EvaluationState.DONE)
    found = ended.filter(status=EvaluationStatus.TOO_LARGE, kernel__author_kind="seed").order_by("pk").first()
    if found is None:
        return ""
    result = found.as_readable_result()
    return too_large_text(result.memory if result else None)
