"""Hand promising kernels over to parameter tuning.

A kernel that became the run's best and declares tunables is tuned before the agents continue (GPU Kernel Scientist,
conclusion: autotuners as a complement). Every configuration that is tried carries its values in its text, so the
fastest one is a kernel to build upon. Where the timed shapes want different configurations, one more kernel chooses
among them by shape.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from statistics import geometric_mean

from pydantic import BaseModel, ConfigDict, Field

from optimizer.search.base import Draft, History, KernelView, fastest
from optimizer.search.flow import Flow
from optimizer.search.machinery.tuned_source import Choice, dispatched, shapes_of
from optimizer.search.machinery.winners import configurations, tuned_winners

# Shares of time that a configuration of its own must save: in a shape, and over all shapes together. Smaller gains are
# within the noise of trials that were measured once.
LEAST_GAIN = 0.03
SHAPES = "shapes"


class TuneSettings(BaseModel):
    """Define how much tuning a promising kernel gets."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    evaluations: int = Field(6, ge=0, le=500, description="Configurations tried for each new best kernel; 0: none.")
    share: float = Field(
        0.3, ge=0, le=1, description="Part of the run's evaluations that tuning may take altogether."
    )
    sampler: str = Field("gp", description="Which sampler proposes them.")
    # So many the default sampler chooses without a model (`STARTS`), so measuring them one by one would gain nothing.
    width: int = Field(
        8,
        ge=1,
        le=64,
        description="Configurations built and queued at the same time, beside the kernels of agents; 1 for external "
        "evaluators.",
    )


def is_promising(kernel: KernelView, history: History) -> bool:
    """Return True for a correct kernel that was faster than every kernel before it."""
    # Look only at kernels up to this one, so that a later record does not change the decision in a replay.
    leader = fastest(other for other in history.kernels if other.number <= kernel.number)
    return leader is not None and leader.key == kernel.key


def tune_promising(flow: Flow, kernel: KernelView | None, settings: TuneSettings, reserved: int = 0) -> None:
    """Tune a promising kernel; its configurations become kernels `<key>.t<n>`. Raises Waiting until done.

    `reserved` evaluations are left for kernels that are being written.
    A replay measures the recorded configurations, whether or not the kernel is promising on this machine.
    """
    if kernel is not None and flow.history.recorded:
        made = flow.history.recorded_tuning.get(kernel.key, ())
        flow.lanes(partial(flow.evaluate, draft) for draft in made)
        return
    if not settings.evaluations or kernel is None or not is_promising(kernel, flow.history):
        return
    # Import late: the samplers pull in SciPy, which strategies without tuning never need.
    from optimizer.search.machinery.tuning import tune_kernel

    trials = _trials(flow.history, kernel, settings, reserved)
    tune_kernel(flow, kernel, settings.sampler, trials, prefix=f"{kernel.key}.t", width=settings.width)
    draft = shape_dispatch(flow.history, kernel)
    # Do not wait for one that was refused because no evaluations are left.
    if draft is not None and (flow.history.kernel(draft.key) or flow.can_spare(reserved)):
        flow.evaluate(draft)


def shape_dispatch(history: History, kernel: KernelView) -> Draft | None:
    """Return a kernel that runs every shape with its fastest configuration; None where one configuration serves all."""
    winner = tuned_winners(history).get(kernel.key, kernel)
    key = f"{kernel.key}.{SHAPES}"
    trials = [one for one in (kernel, *configurations(history).get(kernel.key, ())) if one.key != key]
    # A file has one set of compiler flags, so configurations that differ in theirs cannot be combined.
    combinable = [one for one in trials if one.counts and one.source.flags == winner.source.flags]
    best = _best_by_case(winner, combinable)
    if winner.key == key or not _pays(winner, best):
        return None
    shapes = shapes_of(history.problem, history.target)
    # Import late, as above.
    from optimizer.search.machinery.tuning import config_of, space_of

    space = space_of(kernel.source)
    choice = Choice(
        config_of(space, winner.source),
        {shapes[case]: config_of(space, one.source) for case, one in best.items() if case in shapes},
    )
    source = dispatched(winner.source, history.problem, choice) if choice.by_shape else None
    if source is None:
        return None
    title = f"Tuned by shape: {len(choice.variants)} configurations"
    return Draft(key, source, (kernel.key,), "tuner", title=title)


def _trials(history: History, kernel: KernelView, settings: TuneSettings, reserved: int) -> int:
    """Return how many configurations this kernel may have tried, so that agents keep their part of the budget."""
    if history.evaluations_left is None:
        return settings.evaluations
    counted = [one for one in history.kernels if one.author_kind in {"agent", "tuner"}]
    tuned = [one for one in counted if one.author_kind == "tuner"]
    mine = sum(one.parent_keys[:1] == (kernel.key,) for one in tuned)
    share = int(settings.share * (history.evaluations_left + len(counted))) - (len(tuned) - mine)
    return max(0, min(settings.evaluations, share, mine + history.evaluations_left - reserved))


def _best_by_case(winner: KernelView, trials: Sequence[KernelView]) -> dict[str, KernelView]:
    """Map each case in which another configuration clearly beats the winner to the fastest one there."""
    found = {}
    for case, time_us in winner.times_us.items():
        best = min(
            (one for one in trials if case in one.times_us), key=lambda one: one.times_us[case], default=winner
        )
        if best.times_us[case] < (1 - LEAST_GAIN) * time_us:
            found[case] = best
    return found


def _pays(winner: KernelView, best: Mapping[str, KernelView]) -> bool:
    """Return True where choosing by shape would save enough over all cases together."""
    if not best:
        return False
    ratios = [best.get(case, winner).times_us[case] / time_us for case, time_us in winner.times_us.items()]
    return geometric_mean(ratios) < 1 - LEAST_GAIN
