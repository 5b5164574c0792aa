"""A run without a database, a model or a compiler: steps are carried out on an in-memory history."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from optimizer.search.base import (
    Ask,
    CallView,
    Draft,
    Finish,
    History,
    Hypothesise,
    HypothesisView,
    KernelView,
    Note,
    Strategy,
    StrategySettings,
)
from runners.job import Language, Source, Status


@dataclass
class FakeProblem:
    """Imitate as much of a problem as strategies look at."""

    languages: tuple[Language, ...] = (Language.CPP, Language.PYTHON)


Answer = Callable[[Ask], Mapping[str, Any] | None]
Time = Callable[[Draft], float | None]


@dataclass
class SimulatedRun:
    """Take answers from `answer`, and times (µs, None for a wrong kernel) from `time`."""

    strategy: Strategy
    settings: StrategySettings
    answer: Answer
    time: Time
    budget: int = 30
    seed: int = 1
    kernels: list[KernelView] = field(default_factory=list)
    calls: dict[str, CallView] = field(default_factory=dict)
    hypotheses: dict[str, HypothesisView] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    asked: list[Ask] = field(default_factory=list)
    finished: str = ""
    most_open: int = 0

    def __post_init__(self) -> None:
        if not self.kernels:
            self.kernels = [seed("reference", 100.0, 0, Language.PYTHON), seed("naive", 200.0, 1)]

    def history(self) -> History:
        """Return the run as it stands."""
        spent = sum(kernel.author_kind != "seed" for kernel in self.kernels)
        return History(
            FakeProblem(),
            "cpu",
            self.settings,
            self.seed,
            tuple(self.kernels),
            dict(self.calls),
            dict(self.hypotheses),
            self.budget - spent,
        )

    def play(self, most_decisions: int = 2000) -> Self:
        """Decide and carry out until the strategy finishes or waits for nothing."""
        for _ in range(most_decisions):
            steps = self.strategy.decide(self.history())
            changed = sum(self.carry_out(step) for step in steps)
            self.most_open = max(self.most_open, sum(not kernel.finished for kernel in self.kernels))
            evaluated = self.evaluate_open()
            if self.finished or not (changed or evaluated):
                return self
        raise AssertionError("the run does not end")

    def carry_out(self, step: Any) -> bool:
        """Carry out one step; return True when it changed anything."""
        if isinstance(step, Finish):
            self.finished = step.reason
        elif isinstance(step, Ask) and step.key not in self.calls:
            self.asked.append(step)
            answer = self.answer(step)
            self.calls[step.key] = CallView(step.key, step.role, True, step.context, answer, model=step.model or "")
        elif isinstance(step, Draft) and all(kernel.key != step.key for kernel in self.kernels):
            self.kernels.append(_view(step, len(self.kernels)))
            self.drafts = {**getattr(self, "drafts", {}), step.key: step}
        elif isinstance(step, Hypothesise) and step.key not in self.hypotheses:
            self.hypotheses[step.key] = HypothesisView(step.key, step.kind, step.title, step.basis_key, step.chosen)
        elif isinstance(step, Note) and step.key not in self.notes:
            self.notes[step.key] = step.text
        else:
            return False
        return True

    def evaluate_open(self) -> bool:
        """Give every open kernel its outcome."""
        opened = [n for n, kernel in enumerate(self.kernels) if not kernel.finished]
        for n in opened:
            time_us = self.time(self.drafts[self.kernels[n].key])
            status = Status.INCORRECT if time_us is None else Status.CORRECT
            times = {} if time_us is None else {"case": time_us}
            self.kernels[n] = replace(
                self.kernels[n], finished=True, status=status, time_us=time_us, times_us=times
            )
        return bool(opened)


def seed(name: str, time_us: float, number: int, language: Language = Language.CPP) -> KernelView:
    """Return a finished seed."""
    return KernelView(
        f"seed.{name}", number, (), "seed", Source(language, f"// {name}\n{name}"), True, Status.CORRECT,
        None, time_us, {"case": time_us},
    )  # fmt: skip


def numbered_answers(rng: random.Random) -> Answer:
    """Return a function that gives valid answers for every role; each kernel is different."""

    def answer(ask: Ask) -> Mapping[str, Any]:
        answers: dict[str, Mapping[str, Any]] = {
            "SelectorAnswer": {"basis_code": 0, "basis_reference": 1, "rationale": "best and naive"},
            "DesignerAnswer": {
                "avenues": [{"title": f"avenue {n}", "sentence": "try"} for n in range(10)],
                "experiments": [
                    {
                        "title": f"experiment {n}",
                        "description": f"do {n}",
                        "rubric": "edit",
                        "performance": [n, 10 * n],
                        "innovation": 90 - n,
                    }
                    for n in range(5)
                ],
            },
            "PlanAnswer": {"title": "t", "instruction": f"plan {ask.key}", "anchored": "x"},
            "FindingsAnswer": {"findings": [f"fact {ask.key}"]},
            "DigestAnswer": {"digest": "digest"},
            "NotesAnswer": {"notes": ["note"]},
            "FreeAnswer": {"text": f"learnt {ask.key}"},
            "BlockAnswer": {"source": f"int y = {rng.randrange(10**9)};", "report": "did it"},
            "KernelAnswer": {"source": f"int x = {rng.randrange(10**9)};", "report": "did it"},
        }
        return answers[ask.answer_schema]

    return answer


def _view(draft: Draft, number: int) -> KernelView:
    return KernelView(
        draft.key, number, draft.parent_keys, draft.author_kind, draft.source, False,
        hypothesis_key=draft.hypothesis_key, title=draft.title, report=draft.report, meta=draft.meta,
    )  # fmt: skip
