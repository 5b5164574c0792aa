"""Implement STARK: plan, code and debug agents on a strategic tree (arXiv 2510.16996, section 4)."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from optimizer.search import tree
from optimizer.search.attempts import Attempt, AttemptSettings, AttemptStrategy, instruction, solo_draft
from optimizer.search.base import CallView, Draft, History, KernelView, Stage, StrategySettings
from optimizer.search.flow import Flow
from optimizer.search.machinery.proposals import propose, target_language
from runners.job import Source


class StarkSettings(AttemptSettings):
    """Define the paper's parameters, each of which can be changed per run."""

    epsilon: float = Field(tree.EPSILON, ge=0, le=1, description="Probability of exploring a leaf.")
    n_root: int = Field(tree.N_ROOT, ge=1, description="Children after which the root can't be chosen.")
    n_child: int = Field(tree.N_CHILD, ge=0, description="A node with more children, all failing, can't be chosen.")
    leaderboard: int = Field(tree.LEADERBOARD, ge=0, description="Best kernels shown to the planner.")
    window_cap: int = Field(tree.WINDOW_CAP, ge=2, description="Kernels in a prompt at most.")
    plan_temperature: float = Field(0.8, ge=0, le=2, description="Temperature of the plan agent.")
    code_temperature: float = Field(0.1, ge=0, le=2, description="Temperature of the code agent.")
    debug_temperature: float = Field(0.1, ge=0, le=2, description="Temperature of the debug agent.")
    solo_temperature: float = Field(0.7, ge=0, le=2, description="Temperature of the single agent (agents off).")
    search: bool = Field(True, description="Ablation: off, every attempt revises the last one.")
    agents: bool = Field(True, description="Ablation: off, one agent writes alone.")
    windows: bool = Field(True, description="Ablation: off, every agent sees the kernel it works on alone.")
    anchors: bool = Field(
        True, description="Ablation: off, the coder writes the whole kernel, not the marked block."
    )


class Stark(AttemptStrategy):
    """Run plan, code and debug agents with ε-greedy selection over a tree in which failures stay."""

    name = "stark"
    title = "STARK"
    summary = "A planner anchors one instruction in the source, a coder realises it, a debugger repairs failures."
    Settings = StarkSettings
    default_evaluations = 30
    roles = ("plan", "code", "debug")
    stages = (Stage("Plan", ("plan",)), Stage("Code", ("code", "solo")), Stage("Debug", ("debug",)))

    def chooser_for(self, settings: StrategySettings) -> Literal["tree", "root", "last"]:
        """Return the tree, or the last attempt when the search is ablated."""
        return "tree" if settings.narrow(StarkSettings).search else "last"

    def rules(self, settings: StrategySettings) -> tree.Rules:
        """Return the run's search parameters."""
        own = settings.narrow(StarkSettings)
        return tree.Rules(
            own.n_root, own.n_child, own.epsilon, own.leaderboard, own.window_cap if own.windows else 1
        )

    def opening_role(self, node: KernelView, settings: StrategySettings) -> str:
        """Return the debugger for a failed node and the planner for all others."""
        if not settings.narrow(StarkSettings).agents:
            return "solo"
        # A failed node has a plan already; what it lacks is a working implementation.
        return "debug" if node.failed else "plan"

    def write(self, flow: Flow, attempt: Attempt) -> Draft | None:
        """Debug a failure, or plan and code."""
        settings = flow.history.settings.narrow(StarkSettings)
        if attempt.opening_role == "solo":
            return solo_draft(flow, attempt, settings.solo_temperature)
        if attempt.opening_role == "debug":
            return self._debug(flow, attempt, settings)
        return self._plan_and_code(flow, attempt, settings)

    def _debug(self, flow: Flow, attempt: Attempt, settings: StarkSettings) -> Draft | None:
        """Let the debug agent repair the node; the child inherits its plan and anchors (section 4.2)."""

        def ask(key: str, extra: Any) -> CallView:
            return flow.ask(
                key, "debug", "KernelAnswer", {**attempt.context(), **extra}, settings.debug_temperature
            )

        def make(key: str, call: CallView, source: Source) -> Draft:
            return attempt.draft(
                call, source, hypothesis_key=attempt.node.hypothesis_key, meta=dict(attempt.node.meta)
            )

        return propose(flow, attempt.key, f"{attempt.key}.debug", ask, make)

    def _plan_and_code(self, flow: Flow, attempt: Attempt, settings: StarkSettings) -> Draft | None:
        plan = flow.ask(f"{attempt.key}.plan", "plan", "PlanAnswer", attempt.context(), settings.plan_temperature)
        if plan.answer is None:
            return None
        flow.hypothesise(instruction(attempt, plan))
        context = {**attempt.context(), "plan": plan.key, "window": self._code_window(flow.history, attempt)}
        # Marked blocks of another language than the new kernel's cannot be filled in.
        same = attempt.node.source.language == target_language(flow.history)
        schema = "BlockAnswer" if same and settings.anchors else "KernelAnswer"

        def ask(key: str, extra: Any) -> CallView:
            return flow.ask(key, "code", schema, {**context, **extra}, settings.code_temperature)

        def make(key: str, call: CallView, source: Source) -> Draft:
            # Kept with the kernel: a debugger of this node needs the plan and its anchors.
            meta = {"plan": plan.answer["instruction"], "anchored": plan.answer["anchored"]} if plan.answer else {}
            return attempt.draft(call, source, hypothesis_key=f"{attempt.key}.h", meta=meta)

        return propose(flow, attempt.key, f"{attempt.key}.code", ask, make)

    def _code_window(self, history: History, attempt: Attempt) -> list[str]:
        # The tree may have grown since the first call: a replay must show the window that was shown then.
        begun = history.calls.get(f"{attempt.key}.code")
        if begun is not None:
            return list(begun.context["window"])
        whole = self.tree(history, attempt.number)
        nodes = tree.code_window(whole, attempt.node.key, history.rng(f"{attempt.key}.code"))
        return [node.key for node in nodes]
