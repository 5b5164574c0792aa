"""Hand promising kernels over to parameter tuning.

A kernel that became the run's best and declares tunables is tuned before the agents continue (GPU Kernel Scientist,
conclusion: autotuners as a complement).
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from optimizer.search.base import History, KernelView, fastest
from optimizer.search.flow import Flow


class TuneSettings(BaseModel):
    """Define how much tuning a promising kernel gets."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    evaluations: int = Field(0, ge=0, le=500, description="Configurations tried for each new best kernel; 0: none.")
    sampler: str = Field("gp", description="Which sampler proposes them.")


def is_promising(kernel: KernelView, history: History) -> bool:
    """Return True for a correct kernel that was faster than every kernel before it."""
    # Look only at kernels up to this one, so that a later record does not change the decision in a replay.
    leader = fastest(other for other in history.kernels if other.number <= kernel.number)
    return leader is not None and leader.key == kernel.key


def tune_promising(flow: Flow, kernel: KernelView | None, settings: TuneSettings) -> None:
    """Tune a promising kernel; its configurations become kernels `<key>.t<n>`. Raises Waiting until done."""
    if not settings.evaluations or kernel is None or not is_promising(kernel, flow.history):
        return
    # Import late: the samplers pull in SciPy, which strategies without tuning never need.
    from optimizer.search.machinery.tuning import tune_kernel

    tune_kernel(flow, kernel, settings.sampler, settings.evaluations, prefix=f"{kernel.key}.t")
