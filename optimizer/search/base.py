"""Define the interface of a search strategy: a pure function from a run's history to the next steps.

`decide(history)` reads the history and returns the steps that should exist. It keeps no state between calls, draws
randomness only from `history.rng(key)`, and may be called twice, after a crash, or on a recorded history without a
database or a model. Every step carries a `key` that is unique in the run. A step whose key exists already is not
taken again, so a strategy may simply repeat itself.
"""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

from optimizer.search.compiled import CompileAhead, CompiledBatch, Upcoming
from optimizer.search.earlier import EarlierTask
from optimizer.search.guidance import GuidanceView
from optimizer.search.ranking import leader_of
from runners.job import JobResult, Objective, Source, Status

Own = TypeVar("Own", bound="StrategySettings")


# What the published systems (arXiv 2506.20807 and 2510.16996) do not have, switched off. A strategy without one of
# these settings ignores it.
AS_PUBLISHED: Mapping[str, Any] = {
    "tools": "none",
    "tune": {"evaluations": 0},
    "warm_start": False,
    "profile": "never",
    "stop_at_roofline": 0.0,
}


class StrategySettings(BaseModel):
    """Define the settings that every strategy has; each strategy adds its own. Unknown settings are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    preset: Literal["default", "as_published"] = Field(
        "default",
        description="As published: tools, tuning, warm start, profiling and the stop at the roofline are off, whatever "
        "the other settings say.",
    )
    warm_start: bool = Field(
        True,
        description="Start from all seeds and the best kernels of earlier runs that the team can see, and read the "
        "findings of other runs.",
    )
    stop_at_roofline: float = Field(
        0.95,
        ge=0,
        le=1,
        description="The run ends when its best kernel reaches this share of the measured roofline in every case; "
        "0: never. Products that matrix units of a lower precision can compute faster do not end it.",
    )
    concurrency: int = Field(
        1,
        ge=1,
        le=64,
        description="Kernels evaluated at the same time; 1 for external evaluators. Tuning after a kernel has a width "
        "of its own.",
    )
    confirm: bool = Field(True, description="Measure the leaders again in cold processes before the run ends.")
    settle: int = Field(3, ge=1, le=10, description="Leaders measured against each other before the run ends.")
    profile: Literal["never", "on_gpus", "always"] = Field(
        "always",
        description="Profile correct kernels: shares of the ceilings and, where tools exist, counters. Agents "
        "read it. On a CPU these are cores in use, page faults and, where perf may read them, its counters.",
    )

    @model_validator(mode="before")
    @classmethod
    def _apply_preset(cls, given: Any) -> Any:
        """Put the preset's values in place of the given ones."""
        if not isinstance(given, Mapping) or given.get("preset") != "as_published":
            return given
        settings = dict(given)
        for name in AS_PUBLISHED.keys() & cls.model_fields.keys():
            value = AS_PUBLISHED[name]
            settings[name] = {**settings.get(name, {}), **value} if isinstance(value, Mapping) else value
        return settings

    def narrow(self, cls: type[Own]) -> Own:
        """Return these settings typed as the strategy's own class. Raises TypeError for those of another strategy."""
        if not isinstance(self, cls):
            raise TypeError(f"{type(self).__name__} are not {cls.__name__}")
        return self


@dataclass(frozen=True)
class KernelView:
    """Describe a kernel as a strategy sees it.

    `times_us` maps each case to its median and `time_us` is their geometric mean. `time_us` is None until the kernel
    is known to be correct, and permanently where its claim was not confirmed or was refuted. Both are speedups over
    the baseline that was timed alongside, converted back to time (see `optimizer.runs.drift`). `bound_us` is the same
    for the lower end of the speedup's interval: the time that is shown and that ranks. `beaten_by` holds the keys of
    kernels that were proven faster in a direct comparison. `finished` means that the evaluation has ended. `predicted`
    says in words what an unfinished kernel is expected to take; only prompts have it, and it is empty where nothing is
    known.
    """

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
    predicted: str = ""

    @property
    def ranking_us(self) -> float:
        """Return the time by which the kernel ranks, infinite where it has none that counts."""
        if self.time_us is None:
            return math.inf
        return self.time_us if self.bound_us is None else self.bound_us

    @property
    def is_given(self) -> bool:
        """Return True for a kernel that no strategy asked for: a seed, or a person's edit."""
        return self.author_kind in {"seed", "person"}

    @property
    def correct(self) -> bool:
        """Return True once the harness accepted every case."""
        return self.status == Status.CORRECT

    @property
    def counts(self) -> bool:
        """Return True for a correct kernel whose time other kernels may build on."""
        return self.correct and self.time_us is not None

    @property
    def failed(self) -> bool:
        """Return True when the kernel itself failed its evaluation, so that there is something to repair."""
        return self.finished and not self.correct and self.is_judged

    @property
    def is_judged(self) -> bool:
        """Return False where the evaluation failed for a reason outside the kernel.

        Such reasons are a failure of the machine, too little memory, and a parent or baseline that did not work.
        """
        if self.status in {Status.INFRA_ERROR, Status.TOO_LARGE}:
            return False
        sides = {failure.side for failure in self.result.failures} if self.result else set()
        return self.correct or not sides or "candidate" in sides


def fastest(kernels: Iterable[KernelView]) -> KernelView | None:
    """Return the kernel that leads among these, or None when none counts; ties go to the older one.

    This is the order in which the run ranks its kernels: by lower bounds, unless a direct comparison contradicts them
    (see `optimizer.search.ranking`).
    """
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
    """Describe an agent's call. `context` is what the `Ask` contained.

    `answer` is the parsed and validated answer, or None while the call is open or after it failed for good (see
    `error`).
    """

    key: str
    role: str
    finished: bool
    context: Mapping[str, Any] = field(default_factory=dict)
    answer: Mapping[str, Any] | None = None
    error: str = ""
    model: str = ""
    cost_usd: float | None = None


@dataclass(frozen=True)
class RecordedAsk:
    """Describe a question of the recording that a run replays: what it was about, and how it was to be answered."""

    role: str
    context: Mapping[str, Any]
    answer_schema: str


@dataclass(frozen=True)
class HypothesisView:
    """Describe a recorded hypothesis. `measured_gain` (in per cent) is set once its kernel was timed."""

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
class History:
    """Describe a run as a strategy sees it: an immutable snapshot, with kernels in order of their number, seeds
    first.

    `findings` are the agents' findings that apply to the run, oldest first; with a warm start, those of earlier runs
    are included. `objective` is the time that speedups compare, and therefore also the kernels' times. `recorded`
    holds the questions of the recording that the run replays, by key: measured times differ between machines, so a
    replayed strategy takes its decisions from there. `recorded_tuning` holds the recorded configurations of a kernel by
    its key. `earlier` is what was measured of the problem on other targets and in other versions before the run was
    created.
    """

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
    recorded: Mapping[str, RecordedAsk] = field(default_factory=dict)
    recorded_tuning: Mapping[str, Sequence[Draft]] = field(default_factory=dict)
    compiled: Sequence[CompiledBatch] = ()
    earlier: Sequence[EarlierTask] = ()

    def rng(self, key: str) -> random.Random:
        """Return a random generator that depends only on the run's seed and `key`."""
        # Seeding with a text is stable between processes: `random` hashes it with SHA-512, not with `hash()`.
        return random.Random(f"{self.seed}/{key}")

    @cached_property
    def kernels_by_key(self) -> Mapping[str, KernelView]:
        """Return the kernels by their key."""
        return {kernel.key: kernel for kernel in self.kernels}

    def kernel(self, key: str) -> KernelView | None:
        """Return the kernel with that key, or None."""
        return self.kernels_by_key.get(key)

    def best(self) -> KernelView | None:
        """Return the fastest correct kernel so far, or None."""
        return fastest(self.kernels)

    def open_kernels(self) -> list[KernelView]:
        """Return the kernels whose evaluation has not ended."""
        return [kernel for kernel in self.kernels if not kernel.finished]


@dataclass(frozen=True)
class Ask:
    """Request an answer from an agent.

    `role` selects prompt, model and temperature. `context` is small JSON that says what the prompt is about: keys of
    kernels and hypotheses, never sources. `optimizer.agents.prompting` turns it into messages, and the strategy reads
    it back from `CallView.context`. `answer_schema` names the class in `optimizer.agents.answers` that the answer
    must match.
    """

    key: str
    role: str
    context: Mapping[str, Any]
    answer_schema: str
    temperature: float | None = None
    # Overrides the role's model (the bandit's choice); None uses that of the run's providers.
    model: str | None = None


@dataclass(frozen=True)
class Hypothesise:
    """Record a hypothesis (in the papers: avenue, experiment or instruction). Gains are in per cent of speed."""

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
    """Request the evaluation of a kernel. `author_kind` is seed, agent, tuner or person."""

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
    """Add a finding or meta note to the run's documents.

    `supersedes` is the key of the note it replaces. With `consolidates` it replaces all findings of agents that the
    prompt of its call showed.
    """

    key: str
    text: str
    scope: str = "run"
    supersedes: str | None = None
    call_key: str | None = None
    consolidates: bool = False


@dataclass(frozen=True)
class Finish:
    """End the run, because nothing more is to be gained."""

    reason: str


Step = Ask | Hypothesise | Draft | Note | CompileAhead | Finish


@dataclass(frozen=True)
class Stage:
    """Name a part of a strategy's round for people, with the roles whose questions belong to it."""

    label: str
    roles: tuple[str, ...]


class Strategy(ABC):
    """Provide the base class of all strategies, which are registered in `optimizer.search.STRATEGIES`."""

    name: ClassVar[str]
    title: ClassVar[str]
    summary: ClassVar[str]
    Settings: ClassVar[type[StrategySettings]] = StrategySettings
    needs_model: ClassVar[bool] = True
    default_evaluations: ClassVar[int] = 30
    # Whether kernels come from outside, so that wanting nothing means to wait and not to be stuck.
    waits_outside: ClassVar[bool] = False
    # Whether it uses what earlier runs measured of the problem elsewhere.
    uses_earlier: ClassVar[bool] = False
    roles: ClassVar[tuple[str, ...]] = ()
    # What its agents do in a round, in order; build, check and time follow for every strategy.
    stages: ClassVar[tuple[Stage, ...]] = ()

    @abstractmethod
    def decide(self, history: History) -> list[Step]:
        """Return the steps that should be taken next. An empty list means: wait for what is open."""

    def preview(self, history: History, most: int) -> list[Upcoming]:
        """Return what would be measured next, in order; empty where an agent's answer decides."""
        return []

    def obstacle(self, seeds: Sequence[Source]) -> str:
        """Say why this strategy would change nothing in a run that starts from these kernels; empty where it would."""
        return ""

    def starts_from(self, history: History) -> str:
        """Name the earlier measurements that the search uses; empty where it uses none."""
        return ""
