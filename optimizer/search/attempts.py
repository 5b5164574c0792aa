"""Share the loop of strategies that spend a budget one attempt at a time: STARK, its ablations and two baselines.

Each attempt chooses a node, lets the agents write a child of it, and evaluates the child. Strategies differ in how
the node is chosen (tree search, root, last attempt) and in who writes (plan, code and debug agents, or one agent
alone). STARK without its agents or without its search is therefore a setting, and `sampling` and `reflexion` are a
few lines each (arXiv 2510.16996, section 5).
"""

from __future__ import annotations

import random
import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Literal, TypeVar

from pydantic import Field

from optimizer.search.base import (
    CallView,
    Draft,
    History,
    Hypothesise,
    KernelView,
    RecordedAsk,
    StrategySettings,
)
from optimizer.search.flow import Flow, FlowStrategy, Waiting
from optimizer.search.machinery.handoff import TuneSettings, tune_promising
from optimizer.search.machinery.meta import MetaSettings, write_meta_notes
from optimizer.search.machinery.proposals import propose
from optimizer.search.machinery.seeds import REFERENCE_KEY, reference_seed, starting_kernel
from optimizer.search.machinery.tool_use import WriterSettings
from optimizer.search.machinery.winners import tuned_winners
from optimizer.search.tree import Node, Rules, Tree, debug_window, plan_window, select, tree_of
from optimizer.text.shortening import shortened
from runners.job import Language, Source

# The run ends after this many consecutive attempts without a usable answer.
MAX_FAILED_CALLS = 5

OPENING_ROLES = ("plan", "debug", "solo")

Q = TypeVar("Q", CallView, RecordedAsk)


class AttemptSettings(WriterSettings):
    """Define the settings of every strategy that is made of attempts."""

    language: Language | None = Field(None, description="Language of new kernels; empty: the target's own.")
    tune: TuneSettings = Field(default_factory=TuneSettings, description="Hand promising kernels to tune.")
    meta: MetaSettings = Field(default_factory=MetaSettings, description="Notes on what worked, every N kernels.")


class SoloSettings(AttemptSettings):
    """Define the settings of the single-agent baselines."""

    temperature: float = Field(0.7, ge=0, le=2, description="Temperature of the agent (section 5).")


@dataclass(frozen=True)
class Attempt:
    """Describe attempt `number` on `node`, opened by a call to `opening_role` that sees the kernels in `window`."""

    number: int
    node: KernelView
    opening_role: str
    window: tuple[str, ...]
    # Values that a strategy reads back besides node and window; `model` is passed to the call.
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Return the key of the attempt's kernel, which is also the prefix of its calls' keys."""
        return f"a{self.number}"

    def context(self) -> dict[str, Any]:
        """Return the context of the opening call, from which a replay reconstructs the attempt."""
        return {"node": self.node.key, "window": list(self.window), **self.extra}

    def draft(self, call: CallView, source: Source, **extra: Any) -> Draft:
        """Return the attempt's kernel as its writer answered."""
        answer = call.answer or {}
        return Draft(
            key=self.key,
            source=source,
            parent_keys=(self.node.key,),
            call_key=call.key,
            title=str(answer.get("title", "")),
            report=str(answer.get("report", "")),
            **extra,
        )


class AttemptStrategy(FlowStrategy):
    """Run the loop over attempts. Subclasses choose the node and the writer."""

    def play(self, flow: Flow) -> None:
        """Make attempts until the budget is spent, `concurrency` of them in parallel.

        No more are open than there are evaluations left for their kernels.
        """
        if not reference_seed(flow.history).finished:
            return None
        failed_in_a_row = waiting = unwritten = 0
        recorded = flow.history.recorded
        for number in count(1):
            # What was not recorded has no answer, and asking for it would end the run before its last attempts.
            if recorded and not (_opening(recorded, number) or _opening(flow.history.calls, number)):
                return None if waiting else flow.finish("every attempt of the recording was made")
            # An attempt that was opened before the budget ran out is still replayed to its end.
            if not flow.can_spare(unwritten) and not _opening(flow.history.calls, number):
                return None if waiting else flow.finish("every attempt of the budget was made")
            try:
                # Count only consecutive failures: a model that is sometimes useless is still worth its budget.
                failed_in_a_row = 0 if self._attempt(flow, number) else failed_in_a_row + 1
            except Waiting:
                waiting += 1
                # A replay opens what was recorded, whatever that costs.
                unwritten += not (recorded or flow.has_kernel(f"a{number}"))
            # Enough attempts are under way; opening more would choose nodes without knowing their results.
            if waiting >= flow.history.settings.concurrency:
                return None
            if failed_in_a_row >= MAX_FAILED_CALLS:
                return flow.finish(f"the agents gave no usable kernel {MAX_FAILED_CALLS} times in a row")
        return None

    @abstractmethod
    def chooser_for(self, settings: StrategySettings) -> Literal["tree", "root", "last"]:
        """Return who chooses the node of a new attempt; `root` is the kernel from which the run starts."""

    @abstractmethod
    def opening_role(self, node: KernelView, settings: StrategySettings) -> str:
        """Return the role whose call opens an attempt on this node."""

    @abstractmethod
    def write(self, flow: Flow, attempt: Attempt) -> Draft | None:
        """Let the agents write the attempt's kernel. Return None when they gave up. Raises Waiting."""

    def conclude(self, flow: Flow, attempt: Attempt, kernel: KernelView) -> None:
        """Use the outcome of an attempt. By default nothing happens. Raises Waiting."""
        return

    def rules(self, settings: StrategySettings) -> Rules:
        """Return the search parameters in force."""
        return Rules()

    def tree(self, history: History, number: int) -> Tree:
        """Build the tree of all attempts except `number` under the reference."""
        attempts = [kernel for kernel in history.kernels if is_attempt(kernel.key)]
        # Attempts in progress are pending nodes, so that parallel attempts do not all choose the same parent.
        done = {kernel.key for kernel in attempts if kernel.finished} | {f"a{number}"}
        pending = {key: parent for key, parent in _open_attempts(history) if key not in done}
        given = given_kernels(history)
        return tree_of(reference_seed(history), attempts, pending, self.rules(history.settings), given)

    def _attempt(self, flow: Flow, number: int) -> KernelView | None:
        attempt = self._reopen(flow.history, number) or self.open(flow.history, number)
        draft = self.write(flow, attempt)
        if draft is None:
            return None
        kernel = flow.evaluate(draft)
        settings = flow.history.settings.narrow(AttemptSettings)
        self.conclude(flow, attempt, kernel)
        tune_promising(flow, kernel, settings.tune, reserved=being_written(flow.history))
        write_meta_notes(flow, number, settings.meta)
        return kernel

    def _reopen(self, history: History, number: int) -> Attempt | None:
        """Reconstruct an attempt from its first call, or return None when it was not opened yet.

        An attempt of a replayed recording is opened on the node that it was recorded on. Raises Waiting until that node
        and the others that its call saw are measured, because they may end in another order here.
        """
        asked, recorded = _opening(history.calls, number), _opening(history.recorded, number)
        call = asked or recorded
        if asked is None and recorded is not None:
            seen = [recorded.context["node"], *recorded.context.get("window", [])]
            if _is_to_come(history, seen, number):
                raise Waiting
        node = history.kernel(call.context["node"]) if call else None
        if call is None or node is None:
            return None
        # Everything else in the context is the strategy's own and is handed back to it.
        extra = {
            name: value for name, value in call.context.items() if name not in {"node", "window", "duplicate_of"}
        }
        window = [key for key in call.context.get("window", []) if history.kernel(key)]
        if not window:
            window = self._window(history, self.tree(history, number), number, node, call.role)
        return Attempt(number, node, call.role, tuple(window), extra)

    def open(self, history: History, number: int) -> Attempt:
        """Open a new attempt: choose its node and the window of its opening call."""
        settings = history.settings
        tree = self.tree(history, number)
        chosen = _chosen(self.chooser_for(settings), tree, history, number)
        node = history.kernels_by_key[chosen.key]
        role = self.opening_role(node, settings)
        return Attempt(number, node, role, tuple(self._window(history, tree, number, node, role)))

    def _window(self, history: History, tree: Tree, number: int, node: KernelView, role: str) -> list[str]:
        nodes = self.window(tree, node.key, role, history.rng(f"a{number}.window"))
        return [entry.key for entry in nodes]

    def window(self, tree: Tree, key: str, role: str, rng: random.Random) -> list[Node]:
        """Return the nodes that the opening call sees."""
        return (debug_window if role == "debug" else plan_window)(tree, key, rng)


def solo_draft(flow: Flow, attempt: Attempt, temperature: float) -> Draft | None:
    """Let one agent plan and write in a single answer. Raises Waiting."""

    def ask(key: str, extra: Any) -> CallView:
        return flow.ask(
            key, "solo", "KernelAnswer", {**attempt.context(), **extra}, temperature, attempt.extra.get("model")
        )

    def make(key: str, call: CallView, source: Source) -> Draft:
        draft = attempt.draft(call, source)
        # No plan has named the idea, and an answer in text has no field for a title.
        return replace(draft, title=draft.title or first_sentence(draft.report))

    return propose(flow, attempt.key, f"{attempt.key}.solo", ask, make)


def first_sentence(text: str) -> str:
    """Return what a text says up to its first full stop, question mark or exclamation mark before a space.

    A long one is shortened.
    """
    sentence = re.split(r"(?<=[.!?])\s", " ".join(text.split()), maxsplit=1)[0].removesuffix(".")
    return shortened(sentence)


def is_attempt(key: str) -> bool:
    """Return True for the key of an attempt's kernel (a1, a2 …), and False for seeds and tuned kernels."""
    return key.startswith("a") and key.isascii() and key[1:].isdigit()


def given_kernels(history: History) -> list[KernelView]:
    """Return the correct kernels of the tree that no attempt has produced.

    These are the configurations that won their tuning, people's edits and, with a warm start, all seeds beside the
    reference.
    """
    # A configuration that was built upon stays, also after another one has turned out to be faster.
    nodes = {str(call.context.get("node", "")) for call in history.calls.values()}
    tuned = {kernel.key for kernel in tuned_winners(history).values()}
    warm = history.settings.warm_start

    def belongs(kernel: KernelView) -> bool:
        if kernel.author_kind == "seed":
            return warm and kernel.key != REFERENCE_KEY
        if kernel.author_kind == "tuner":
            return kernel.key in tuned or kernel.key in nodes
        return kernel.author_kind == "person"

    return [kernel for kernel in history.kernels if kernel.correct and belongs(kernel)]


def instruction(attempt: Attempt, plan: CallView) -> Hypothesise:
    """Convert the planner's grounded instruction (STARK) into a hypothesis."""
    answer = plan.answer or {}
    return Hypothesise(
        key=f"{attempt.key}.h",
        kind="instruction",
        title=str(answer.get("title") or answer.get("instruction", ""))[:300],
        description=str(answer.get("instruction", "")),
        basis_key=attempt.node.key,
        predicted_min=answer.get("predicted_min"),
        predicted_max=answer.get("predicted_max"),
        chosen=True,
        chosen_why="the planner's one top-priority instruction",
        round=attempt.number,
        call_key=plan.key,
    )


def _opening(questions: Mapping[str, Q], number: int) -> Q | None:
    keys = (f"a{number}.{role}" for role in OPENING_ROLES)
    return next((questions[key] for key in keys if key in questions), None)


def _open_attempts(history: History) -> Iterator[tuple[str, str]]:
    """Yield (kernel key, parent key) of every opened attempt, except those whose opening call failed for good."""
    for key, call in history.calls.items():
        attempt, _, role = key.partition(".")
        # An attempt without an answer has no kernel and must not count as a child in the tree.
        given_up = call.finished and call.answer is None
        if is_attempt(attempt) and role in OPENING_ROLES and not given_up:
            yield attempt, str(call.context["node"])


def being_written(history: History) -> int:
    """Count the attempts whose kernel is still to come."""
    return len(_being_written(history))


def _being_written(history: History) -> list[str]:
    failed = {key.partition(".")[0] for key, call in history.calls.items() if call.finished and call.answer is None}
    written = failed | history.kernels_by_key.keys()
    return [key for key, _ in _open_attempts(history) if key not in written]


def _is_to_come(history: History, keys: Iterable[str], number: int) -> bool:
    """Return whether attempt `number` has to wait for one of these kernels.

    It is being written or measured, or the attempt of a smaller number that is to write it is recorded and not opened.
    """
    unopened = {
        f"a{n}" for n in range(1, number) if _opening(history.recorded, n) and not _opening(history.calls, n)
    }
    to_come = {*_being_written(history)} | unopened
    return any(key in to_come if (kernel := history.kernel(key)) is None else not kernel.finished for key in keys)


def _chosen(chooser: str, tree: Tree, history: History, number: int) -> Node:
    if chooser == "tree":
        return select(tree, history.rng(f"a{number}.select"))
    attempts = [node for node in tree.nodes if not node.pending and not node.given and node.parent is not None]
    if chooser == "root" or not attempts:
        return tree.by_key[starting_kernel(history).key]
    last = attempts[-1]
    winner = tuned_winners(history).get(last.key)
    return tree.by_key[winner.key] if winner else last
