"""Implement GPU Kernel Scientist: selector, experiment designer, three writers (arXiv 2506.20807, section 3).

In round k the selector picks Base and Reference from the table of times. The designer names 10 avenues and 5
experiments on Base. A rule chooses three of the five, three writers implement one each, and the lessons are added to
the findings. The population only grows.

The paper leaves some points open. Here, findings are requested after every round; a failed kernel goes back to its
writer at most `retries` times, as long as evaluations are left for it; and after `patience` rounds without a better
kernel the designer is told to try another family of ideas.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, cycle, islice
from typing import Any

from pydantic import Field

from optimizer.search.base import (
    CallView,
    Draft,
    History,
    Hypothesise,
    KernelView,
    Note,
    RecordedAsk,
    Stage,
    fastest,
)
from optimizer.search.flow import Flow, FlowStrategy, Waiting
from optimizer.search.machinery.crossover import complement
from optimizer.search.machinery.handoff import TuneSettings, tune_promising
from optimizer.search.machinery.librarian import consolidate_findings
from optimizer.search.machinery.meta import MetaSettings, write_meta_notes
from optimizer.search.machinery.proposals import REPAIR_TRIES, evaluate_with_repair
from optimizer.search.machinery.seeds import seeds_finished
from optimizer.search.machinery.stagnation import FLAT_ROUNDS, is_stagnant
from optimizer.search.machinery.tool_use import WriterSettings
from optimizer.search.machinery.winners import without_lost_trials
from optimizer.text.shortening import shortened
from runners.job import Language, Source

AVENUES = 10
EXPERIMENTS = 5
CHOSEN = 3
# Three experiments are chosen, so there must be as many to choose from (see `DesignerAnswer`).
LEAST_EXPERIMENTS = 3
# The run ends after this many consecutive rounds without any kernel.
MAX_FAILED_ROUNDS = 3


class ScientistSettings(WriterSettings):
    """Define the paper's parameters and our additions."""

    language: Language | None = Field(None, description="Language of new kernels; empty: the target's own.")
    avenues: int = Field(AVENUES, ge=1, le=50, description="Avenues the designer names.")
    experiments: int = Field(EXPERIMENTS, ge=3, le=20, description="Experiments the designer works out.")
    chosen: int = Field(CHOSEN, ge=1, le=20, description="Experiments of a round that are written and measured.")
    retries: int = Field(REPAIR_TRIES, ge=0, le=10, description="Times a failed kernel goes back to its writer.")
    bootstrap: bool = Field(True, description="Write a findings document before the first round.")
    digest: bool = Field(True, description="Digest the hardware notes for this kernel before the first round.")
    grow_findings: bool = Field(True, description="Add findings after every round.")
    consolidate: bool = Field(True, description="Consolidate findings that exceed their share of a prompt.")
    patience: int = Field(
        FLAT_ROUNDS, ge=0, description="Rounds without gain before another family of ideas is requested."
    )
    crossover: bool = Field(False, description="When stagnant, use the best complement of the base as reference.")
    selector_temperature: float | None = Field(None, ge=0, le=2, description="Empty: the model's default.")
    designer_temperature: float | None = Field(None, ge=0, le=2, description="Empty: the model's default.")
    writer_temperature: float | None = Field(None, ge=0, le=2, description="Empty: the model's default.")
    tune: TuneSettings = Field(default_factory=TuneSettings, description="Hand promising kernels to tune.")
    meta: MetaSettings = Field(default_factory=MetaSettings, description="Notes on what worked, every N rounds.")


@dataclass(frozen=True)
class Experiment:
    """Hold one of the designer's experiments, with its place in the answer and the rule that chose it."""

    index: int
    title: str
    description: str
    rubric: str
    gain_min: float
    gain_max: float
    innovation: int
    chosen_why: str = ""


class Scientist(FlowStrategy):
    """Run selector, designer and three writers, round after round."""

    name = "scientist"
    title = "GPU Kernel Scientist"
    summary = "Pick a base, design experiments with predicted gains, write three of them, learn, repeat."
    Settings = ScientistSettings
    default_evaluations = 30
    roles = ("selector", "designer", "writer", "findings")
    stages = (
        Stage("Learn", ("digest", "findings", "librarian")),
        Stage("Select", ("selector",)),
        Stage("Design", ("designer",)),
        Stage("Write", ("writer",)),
    )

    def play(self, flow: Flow) -> None:
        """Bootstrap the findings, then play rounds until the budget is spent."""
        if not seeds_finished(flow.history):
            return None
        settings = flow.history.settings.narrow(ScientistSettings)
        _bootstrap(flow, settings)
        empty_rounds = 0
        for number in count(1):
            # A round that has begun is played to its end, so that its kernels are still learnt from.
            if flow.out_of_budget and not _has_begun(flow.history, number):
                return flow.finish("every evaluation of the budget was made")
            kernels = Round(flow, settings, number).play()
            empty_rounds = 0 if any(kernels) else empty_rounds + 1
            if empty_rounds >= MAX_FAILED_ROUNDS:
                return flow.finish(f"Stopped: no new kernel in {MAX_FAILED_ROUNDS} rounds")
        return None


def _has_begun(history: History, number: int) -> bool:
    return any(f"r{number}.{question}" in history.calls for question in ("select", "design"))


def _bootstrap(flow: Flow, settings: ScientistSettings) -> None:
    """Write findings and digest before the first round (in the paper, section 3.1, the model wrote both)."""
    if settings.digest:
        call = flow.ask("digest", "digest", "DigestAnswer", {})
        if call.answer is not None:
            flow.note(Note("digest.note", str(call.answer["digest"]), scope="digest", call_key=call.key))
    if settings.bootstrap:
        call = flow.ask("findings0", "findings", "FindingsAnswer", {"round": 0})
        _note_findings(flow, call, "findings0")


class Round:
    """Play round `number`. It reads what existed when the round began, so that a replay reads the same."""

    def __init__(self, flow: Flow, settings: ScientistSettings, number: int) -> None:
        self.flow = flow
        self.settings = settings
        self.number = number
        self.key = f"r{number}"
        # Lanes whose kernels are still to come; None before they are counted.
        self._open_lanes: int | None = None

    def play(self) -> list[KernelView | None]:
        """Play the round: select, design, choose, write and learn. Return the last kernel of each lane. Raises
        Waiting.
        """
        chosen = self._select()
        if chosen is None:
            return []
        base, reference = chosen
        experiments = self._design(base, reference)
        kernels = self._write([partial(self._lane, base, reference, experiment) for experiment in experiments])
        self._tune(kernels)
        self._learn()
        write_meta_notes(self.flow, self.number, self.settings.meta)
        return kernels

    def _select(self) -> tuple[KernelView, KernelView] | None:
        """Return Base and Reference, or None without a correct kernel.

        Where the answer names a kernel that does not exist, the best one is used. There is nothing to select from a
        single kernel.
        """
        # Keep what the designer was asked about: kernels that finished since then must not change a replay.
        begun = self._named(self.flow.history.calls.get(f"{self.key}.design"))
        if begun is not None:
            return begun
        population = self._population()
        answer: Mapping[str, Any] = {}
        if sum(kernel.counts for kernel in population) > 1:
            context = {"round": self.number, "population": [kernel.key for kernel in population]}
            call = self.flow.ask(
                f"{self.key}.select", "selector", "SelectorAnswer", context, self.settings.selector_temperature
            )
            population = [self.flow.history.kernels_by_key[key] for key in call.context["population"]]
            answer = call.answer or {}
        return self._named(self.flow.history.recorded.get(f"{self.key}.design")) or self._chosen(population, answer)

    def _named(self, question: CallView | RecordedAsk | None) -> tuple[KernelView, KernelView] | None:
        """Return Base and Reference as the designer's question names them, or None where they do not exist."""
        names = (str(question.context.get(name, "")) for name in ("base", "reference")) if question else ("", "")
        base, reference = (self.flow.history.kernel(name) for name in names)
        return (base, reference) if base is not None and reference is not None else None

    def _chosen(
        self, population: Sequence[KernelView], answer: Mapping[str, Any]
    ) -> tuple[KernelView, KernelView] | None:
        best = fastest(population)
        if best is None:
            return None
        base = _by_number(population, answer.get("basis_code")) or best
        return base, self._reference(base, best, population, answer)

    def _reference(
        self, base: KernelView, best: KernelView, population: Sequence[KernelView], answer: Mapping[str, Any]
    ) -> KernelView:
        # Only when stagnant: usually the selector's own reason for a reference is better.
        if self.settings.crossover and self._stagnant():
            other = complement(base, population)
            if other is not None:
                return other
        return _by_number(population, answer.get("basis_reference")) or best

    def _population(self) -> list[KernelView]:
        """Return the finished kernels, as the first replay of this round sees them, without lost tuning trials."""
        finished = [kernel for kernel in self.flow.history.kernels if kernel.finished]
        return without_lost_trials(self.flow.history, finished)

    def _design(self, base: KernelView, reference: KernelView) -> list[Experiment]:
        call = self.flow.ask(
            f"{self.key}.design",
            "designer",
            "DesignerAnswer",
            self._brief(base, reference),
            self.settings.designer_temperature,
        )
        if call.answer is None:
            return []
        experiments = experiments_in(call.answer)
        # The paper's fixed rule, so that one round covers a bold idea, a promising one and a safe one.
        chosen = choose(experiments, int(call.context.get("writers", self.settings.chosen)))
        self._record(call, base, reference, experiments, chosen)
        return chosen

    def _brief(self, base: KernelView, reference: KernelView) -> Mapping[str, Any]:
        """Return the context of the designer's prompt, how much it is to answer, and how much of it can be tried."""
        settings, left = self.settings, self.flow.history.evaluations_left
        writers = settings.chosen if left is None else max(1, min(settings.chosen, left))
        # Where the budget allows fewer kernels than usual, so many ideas to choose from would only cost tokens.
        few = writers < settings.chosen
        experiments = max(LEAST_EXPERIMENTS, writers + 2) if few else settings.experiments
        return {
            "base": base.key, "reference": reference.key, "round": self.number, "stagnant": self._stagnant(),
            "avenues": min(settings.avenues, 2 * experiments) if few else settings.avenues,
            "experiments": min(settings.experiments, experiments), "writers": writers,
        }  # fmt: skip

    def _record(
        self,
        call: CallView,
        base: KernelView,
        reference: KernelView,
        experiments: Sequence[Experiment],
        chosen: Sequence[Experiment],
    ) -> None:
        """Record avenues and experiments as hypotheses, chosen or not."""
        common: dict[str, Any] = {"basis_key": base.key, "round": self.number, "call_key": call.key}
        for index, avenue in enumerate((call.answer or {})["avenues"], 1):
            self.flow.hypothesise(
                Hypothesise(f"{self.key}.v{index}", "avenue", avenue["title"], avenue["sentence"], **common)
            )
        why = {experiment.index: experiment.chosen_why for experiment in chosen}
        for experiment in experiments:
            self.flow.hypothesise(
                Hypothesise(
                    key=self._hypothesis_key(experiment),
                    kind="experiment",
                    title=experiment.title,
                    description=experiment.description,
                    rubric=experiment.rubric,
                    reference_key=reference.key,
                    predicted_min=experiment.gain_min,
                    predicted_max=experiment.gain_max,
                    innovation=experiment.innovation,
                    chosen=experiment.index in why,
                    chosen_why=why.get(experiment.index, "not among those that the rule takes"),
                    **common,
                )
            )

    def _write(self, lanes: Sequence[Callable[[], KernelView | None]]) -> list[KernelView | None]:
        """Advance the lanes, first what was asked already, then further repairs. Raises Waiting."""
        ended = [lane for lane in lanes if not self.flow.waits(lane)]
        self._open_lanes = len(lanes) - len(ended)
        kernels = self.flow.lanes(ended)
        if len(ended) < len(lanes):
            raise Waiting(self.key)
        return kernels

    def _may_repair(self, key: str) -> bool:
        """Return whether the writer may be asked for a repair: an evaluation is left for it and for every open lane.

        A replay asks for what was recorded.
        """
        if key in self.flow.history.calls or key in self.flow.history.recorded:
            return True
        if self._open_lanes is None or not self.flow.can_spare(self._open_lanes):
            return False
        self._open_lanes += 1
        return True

    def _lane(self, base: KernelView, reference: KernelView, experiment: Experiment) -> KernelView | None:
        """Let one writer implement an experiment, with its retries (paper, section 3.3)."""
        context = {"base": base.key, "reference": reference.key, "hypothesis": self._hypothesis_key(experiment)}

        def ask(key: str, extra: Mapping[str, Any]) -> CallView:
            return self.flow.ask(
                key, "writer", "KernelAnswer", {**context, **extra}, self.settings.writer_temperature
            )

        def make(key: str, call: CallView, source: Source) -> Draft:
            return Draft(
                key=key,
                source=source,
                parent_keys=(base.key, reference.key) if reference.key != base.key else (base.key,),
                hypothesis_key=self._hypothesis_key(experiment),
                call_key=call.key,
                title=experiment.title,
                report=str((call.answer or {}).get("report", "")),
            )

        lane = f"{self.key}.k{experiment.index}"
        return evaluate_with_repair(
            self.flow, lane, f"{self.key}.w{experiment.index}", ask, make, self._may_repair, self.settings.retries
        )

    def _tune(self, kernels: Sequence[KernelView | None]) -> None:
        best = fastest([kernel for kernel in kernels if kernel is not None])
        # A replay repeats the recorded tuning, whichever kernel is the fastest here.
        for kernel in kernels if self.flow.history.recorded else [best]:
            tune_promising(self.flow, kernel, self.settings.tune)

    def _learn(self) -> None:
        """Add the lessons of failures and surprises to the findings (paper, section 3.4)."""
        if self.settings.grow_findings:
            call = self.flow.ask(f"{self.key}.findings", "findings", "FindingsAnswer", {"round": self.number})
            _note_findings(self.flow, call, f"{self.key}.finding")
        if self.settings.consolidate:
            consolidate_findings(self.flow, self.number)

    def _stagnant(self) -> bool:
        # The decision is stored in the context of the call, since later kernels could change it in a replay.
        begun = self.flow.history.calls.get(f"{self.key}.design")
        if begun is not None:
            return bool(begun.context["stagnant"])
        return is_stagnant(best_by_round(self.flow.history, self.number), self.settings.patience)

    def _hypothesis_key(self, experiment: Experiment) -> str:
        return f"{self.key}.e{experiment.index}"


def experiments_in(answer: Mapping[str, Any]) -> list[Experiment]:
    """Return the experiments of a designer's answer in its order; a reversed range is corrected."""
    found = []
    for index, item in enumerate(answer["experiments"], 1):
        low, high = sorted(item["performance"])
        title = item.get("title") or item["description"].split(". ")[0]
        found.append(
            Experiment(index, shortened(title), item["description"], item["rubric"], low, high, item["innovation"])
        )
    return found


def choose(experiments: Sequence[Experiment], most: int = CHOSEN) -> list[Experiment]:
    """Choose without replacement: most innovative, highest maximum gain, highest minimum gain (paper, section 3.2).

    Ties go to the one named first. Where a run wants more than three, the rules are applied in rotation.
    """
    rules = [
        ("most innovative", lambda e: e.innovation),
        ("highest maximum gain", lambda e: e.gain_max),
        ("highest minimum gain", lambda e: e.gain_min),
    ]
    left = list(experiments)
    chosen: list[Experiment] = []
    for why, value in islice(cycle(rules), most):
        if left:
            best = max(left, key=value)
            left.remove(best)
            chosen.append(replace(best, chosen_why=why))
    return chosen


def best_by_round(history: History, before: int) -> list[float | None]:
    """Return the best time in µs of each round before `before`; the seeds are round 0."""
    best: list[float | None] = []
    for number in range(before):
        mine = [k for k in history.kernels if _round_of(k) == number]
        kernel = fastest(mine)
        best.append(kernel.time_us if kernel else None)
    return best


def _round_of(kernel: KernelView) -> int:
    head = kernel.key.split(".")[0]
    return int(head[1:]) if head.startswith("r") and head[1:].isdigit() else 0


def _by_number(population: Sequence[KernelView], number: Any) -> KernelView | None:
    return next((kernel for kernel in population if kernel.number == number and kernel.counts), None)


def _note_findings(flow: Flow, call: CallView, prefix: str) -> None:
    if call.answer is None:
        return
    for index, text in enumerate(call.answer["findings"], 1):
        flow.note(Note(f"{prefix}.{index}", str(text), scope="problem", call_key=call.key))
