"""What a search strategy is: a pure function from a run's history to the next steps.

`decide(history)` looks at what is there and says what should exist. It keeps nothing between calls, draws
randomness only from `history.rng(key)`, and may be called twice, after a crash, or on a recorded history without a
database or a model. Every step carries a `key` that is unique in the run: a step whose key exists already is not
taken again, so a strategy may simply repeat what it said before.
"""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from optimizer.search.ranking import leader_of
from runners.job import JobResult, Objective, Source, Status

Own = TypeVar("Own", bound="StrategySettings")


class StrategySettings(BaseModel):
    """Settings every strategy has; each strategy adds its own. Unknown settings are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    concurrency: int = Field(
        1, ge=1, le=64, description="Kernels evaluated at the same time; 1 for external evaluators."
    )
    confirm: bool = Field(True, description="Measure the leaders again in cold processes before the run ends.")
    settle: int = Field(
        3, ge=1, le=10, description="Leaders that are measured against each other before the run ends."
    )
    profile: Literal["never", "on_gpus", "always"] = Field(
        "on_gpus",
        description="Look closer at kernels that pass: shares of the ceilings and, where tools are, counters. Agents "
        "read it. On a CPU perf's counters are read, which many virtual machines do not have.",
    )

    def narrow(self, cls: type[Own]) -> Own:
        """These settings as the strategy's own class. Raises TypeError for another strategy's."""
        if not isinstance(self, cls):
            raise TypeError(f"{type(self).__name__} are not {cls.__name__}")
        return self


@dataclass(frozen=True)
class KernelView:
    """A kernel as a strategy sees it. `times_us` maps case name to median; `time_us` is their geometric mean and None
    until the kernel is known to be correct, and for good where its claim was not confirmed or was refuted; both are
    the speedup over the baseline that was timed beside them, turned back into time (`optimizer.loop.drift`).
    `bound_us` is the same for the lower end of the speedup's interval: the time that is shown, which ranks.
    `beaten_by` holds the keys of kernels proven faster in a direct comparison. `finished` says the evaluation has
    ended."""

    key: str
    number: int
    parent_keys: tuple[str, ...]
    author_kind: str
    source: Source
    finished: bool
    status: Status | None = None
    result: JobResult | None = None
    time_us: float | None = None
    times_us: Mapping[str, float] = field(default_factory=dict)
    hypothesis_key: str | None = None
    title: str = ""
    report: str = ""
    meta: Mapping[str, Any] = field(default_factory=dict)
    bound_us: float | None = None
    beaten_by: frozenset[str] = frozenset()

    @property
    def ranking_us(self) -> float:
        """The time by which it ranks, infinite where it has none that counts."""
        if self.time_us is None:
            return math.inf
        return self.time_us if self.bound_us is None else self.bound_us

    @property
    def correct(self) -> bool:
        """True once the harness accepted every case."""
        return self.status == Status.CORRECT

    @property
    def counts(self) -> bool:
        """True for a correct kernel with a time that something may be built on."""
        return self.correct and self.time_us is not None

    @property
    def failed(self) -> bool:
        """Return True when it was evaluated and not accepted, for reasons of its own: there is something to repair."""
        return self.finished and not self.correct and self.is_judged

    @property
    def is_judged(self) -> bool:
        """Return False where its evaluation ended without its doing: the machine failed, its memory does not suffice,
        or the parent or the baseline did not work."""
        if self.status in {Status.INFRA_ERROR, Status.TOO_LARGE}:
            return False
        sides = {failure.side for failure in self.result.failures} if self.result else set()
        return self.correct or not sides or "candidate" in sides


def fastest(kernels: Iterable[KernelView]) -> KernelView | None:
    """Return the kernel that leads among these, ties to the older; None when none counts. This is the run's own order:
    by lower bounds, unless a direct comparison contradicts them (`optimizer.search.ranking`)."""
    counting = {kernel.key: kernel for kernel in kernels if kernel.counts}
    quickest = min(counting.values(), key=lambda kernel: (kernel.ranking_us, kernel.number), default=None)
    if quickest is None or not quickest.beaten_by:  # nobody beat it, so a long run need not be sorted
        return quickest
    ordered = sorted(counting.values(), key=lambda kernel: (kernel.ranking_us, kernel.number))
    leader = leader_of([kernel.key for kernel in ordered], {key: one.beaten_by for key, one in counting.items()})
    return counting[leader] if leader is not None else None


def is_ahead(one: KernelView, other: KernelView) -> bool:
    """Return True when `one` ranks before `other`: by a direct comparison, or else by its bound."""
    if (other.key in one.beaten_by) != (one.key in other.beaten_by):
        return one.key in other.beaten_by
    return one.ranking_us < other.ranking_us


@dataclass(frozen=True)
class CallView:
    """An agent's call. `context` is what the `Ask` said. `answer` is the parsed, validated answer; None while it is
    open or when it failed for good (`error` says why)."""

    key: str
    role: str
    finished: bool
    context: Mapping[str, Any] = field(default_factory=dict)
    answer: Mapping[str, Any] | None = None
    error: str = ""
    model: str = ""
    cost_usd: float | None = None


@dataclass(frozen=True)
class HypothesisView:
    """A hypothesis on record, with what was measured (`measured_gain` in per cent) once its kernel was timed."""

    key: str
    kind: str
    title: str
    basis_key: str | None
    chosen: bool
    measured_gain: float | None = None
    description: str = ""
    rubric: str = ""
    predicted_min: float | None = None
    predicted_max: float | None = None
    innovation: int | None = None
    round: int = 0


@dataclass(frozen=True)
class GuidanceView:
    """What a person tells the agents. `ref` leads from a prompt back to it. With `lineage` it holds for prompts about
    one of those kernels (keys); None is the whole run."""

    ref: str
    text: str
    author: str = ""
    lineage: frozenset[str] | None = None

    def holds_for(self, keys: Iterable[str]) -> bool:
        """Whether it belongs into a prompt about these kernels."""
        return self.lineage is None or not self.lineage.isdisjoint(keys)


@dataclass(frozen=True)
class History:
    """A run as a strategy sees it: an immutable snapshot. Kernels are in order of their number, seeds first.
    `objective` is the time that speedups, and so the kernels' times, compare."""

    problem: Any
    target: str
    settings: StrategySettings
    seed: int
    kernels: Sequence[KernelView] = ()
    calls: Mapping[str, CallView] = field(default_factory=dict)
    hypotheses: Mapping[str, HypothesisView] = field(default_factory=dict)
    evaluations_left: int | None = None
    findings: Sequence[str] = ()
    guidance: Sequence[GuidanceView] = ()
    objective: Objective = Objective.DEVICE

    def rng(self, key: str) -> random.Random:
        """A generator that depends on the run's seed and `key` alone."""
        return random.Random(f"{self.seed}/{key}")

    @cached_property
    def kernels_by_key(self) -> Mapping[str, KernelView]:
        """Kernels by their key."""
        return {kernel.key: kernel for kernel in self.kernels}

    def kernel(self, key: str) -> KernelView | None:
        """The kernel with that key, or None."""
        return self.kernels_by_key.get(key)

    def best(self) -> KernelView | None:
        """The fastest correct kernel so far."""
        return fastest(self.kernels)

    def open_kernels(self) -> list[KernelView]:
        """Kernels whose evaluation has not ended."""
        return [kernel for kernel in self.kernels if not kernel.finished]


@dataclass(frozen=True)
class Ask:
    """Ask an agent. `role` names prompt, model and temperature. `context` is small JSON that says what the prompt is
    about (keys of kernels and hypotheses, never sources): `optimizer.agents.prompting` turns it into messages, and
    the strategy reads it back from `CallView.context`. `answer_schema` names the class in `optimizer.agents.answers`
    that the answer must fit."""

    key: str
    role: str
    context: Mapping[str, Any]
    answer_schema: str
    temperature: float | None = None
    model: str | None = None
    """Overrides the role's model (a bandit's choice); None leaves it to the run's providers."""


@dataclass(frozen=True)
class Hypothesise:
    """Put a hypothesis on record (paper: avenue, experiment or instruction). Gains in per cent of speed."""

    key: str
    kind: str
    title: str
    description: str = ""
    rubric: str = ""
    basis_key: str | None = None
    reference_key: str | None = None
    predicted_min: float | None = None
    predicted_max: float | None = None
    innovation: int | None = None
    chosen: bool = False
    chosen_why: str = ""
    round: int = 0
    call_key: str | None = None


@dataclass(frozen=True)
class Draft:
    """A kernel to evaluate. `author_kind` is seed, agent, tuner or person."""

    key: str
    source: Source
    parent_keys: tuple[str, ...] = ()
    author_kind: str = "agent"
    hypothesis_key: str | None = None
    call_key: str | None = None
    title: str = ""
    report: str = ""
    meta: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Note:
    """A finding or meta note that the run adds to its documents; `supersedes` names the note it replaces."""

    key: str
    text: str
    scope: str = "run"
    supersedes: str | None = None
    call_key: str | None = None


@dataclass(frozen=True)
class Finish:
    """The run is over: nothing more is to be gained."""

    reason: str


Step = Ask | Hypothesise | Draft | Note | Finish


class Strategy(ABC):
    """A way to search. Registered in `optimizer.search.STRATEGIES`."""

    name: ClassVar[str]
    title: ClassVar[str]
    summary: ClassVar[str]
    Settings: ClassVar[type[StrategySettings]] = StrategySettings
    needs_model: ClassVar[bool] = True
    default_evaluations: ClassVar[int] = 30
    roles: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def decide(self, history: History) -> list[Step]:
        """The steps that should be taken next. An empty list means: wait for what is open."""
