"""Summarise a run: stages at work, budgets, outcomes. It takes four queries, however many kernels there are."""

from __future__ import annotations

from dataclasses import dataclass

from optimizer.models import CallState, Evaluation, EvaluationState, LlmCall, Run, ToolCall
from optimizer.models.choices import OPEN_CALL_STATES, OPEN_TOOL_STATES
from optimizer.queries.budgets import WARN_AT_PERCENT
from optimizer.queries.outcomes import Outcomes, count_outcomes
from optimizer.search import STRATEGIES
from optimizer.search.base import Stage

# The stages of the harness by how their names begin; every other stage of it is a check.
HARNESS = (
    ("build", "Build", ("screen", "static", "build")),
    ("check", "Check", ("small", "test", "check", "correct", "hidden")),
    ("time", "Time", ("quick", "full", "confirm", "tim", "baseline")),
)


@dataclass(frozen=True)
class StageNow:
    """Hold one stage of the strip and the work in it: `#12 tests`, `designer: waiting`."""

    key: str
    label: str
    doing: tuple[str, ...]


@dataclass(frozen=True)
class BudgetBar:
    """Hold a budget's spending and limit, as words and as numbers for the bar. `limit` None is unlimited."""

    label: str
    spent_text: str
    limit_text: str
    spent: float
    limit: float | None

    @property
    def mark(self) -> int:
        """Return the last announced threshold that was passed, in per cent; 0 before the first and without a limit."""
        percent = 100 * self.spent / self.limit if self.limit else 0
        return max((mark for mark in WARN_AT_PERCENT if percent >= mark), default=0)

    @property
    def tone(self) -> str:
        """Return the tone: a warning from 80 % on. A budget that is used up is no error."""
        if not self.limit:
            return "muted"
        return "warn" if self.mark >= 80 else "live"


@dataclass(frozen=True)
class RunSummary:
    """Hold what the live parts of a run's page show."""

    stages: list[StageNow]
    budgets: list[BudgetBar]
    outcomes: Outcomes


def summarise(run: Run) -> RunSummary:
    """Read the run's open work and outcomes."""
    return RunSummary(stages=_stages(run), budgets=_budgets(run), outcomes=count_outcomes(run))


def harness_stage(name: str) -> str:
    """Return the strip's stage for a stage name of the harness."""
    name = name.lower()
    return next((key for key, _, starts in HARNESS if name.startswith(starts)), "check")


def agent_stages(strategy: str) -> tuple[Stage, ...]:
    """Return what the strategy's agents do in a round; nothing for a strategy that no longer exists."""
    known = STRATEGIES.get(strategy)
    return known.stages if known else ()


def _stages(run: Run) -> list[StageNow]:
    agents = agent_stages(run.strategy)
    doing: dict[str, list[str]] = {
        key: [] for key in (*(one.label for one in agents), *(key for key, *_ in HARNESS))
    }
    stage_of_role = {role: one.label for one in agents for role in one.roles}
    calls = LlmCall.objects.filter(run=run, state__in=OPEN_CALL_STATES)
    for role, state in calls.values_list("role", "state")[:20]:
        # A role of an older version of the strategy has no stage any more; the first one shows that it works.
        stage = stage_of_role.get(role) or next(iter(doing))
        doing[stage].append(f"{role}: {CallState(state).label.lower()}")
    tools = ToolCall.objects.filter(run=run, state__in=OPEN_TOOL_STATES)
    for role, name, stage in tools.values_list("turn__call__role", "name", "stage")[:20]:
        doing[harness_stage(stage or "build")].append(f"{role}: {name}")
    running = Evaluation.objects.filter(kernel__run=run, state=EvaluationState.RUNNING)
    for number, stage in running.values_list("kernel__number", "stage")[:20]:
        doing[harness_stage(stage or "build")].append(f"#{number} {stage}".strip())
    shown = [(one.label, one.label) for one in agents] + [(key, label) for key, label, _ in HARNESS]
    return [StageNow(key, label, tuple(doing[key])) for key, label in shown]


def _budgets(run: Run) -> list[BudgetBar]:
    minutes = run.elapsed_s() / 60
    bars = [
        _bar("Evaluations", run.spent_evaluations, run.budget_evaluations, "{:.0f}"),
        _bar("Minutes", minutes, run.budget_minutes, "{:.1f}"),
    ]
    # A bar for dollars or tokens would puzzle the owner of a run that asks no model.
    if run.budget_usd is not None or run.spent_usd:
        bars.append(_bar("Dollars", float(run.spent_usd), _number(run.budget_usd), "${:.2f}"))
    if run.budget_tokens is not None or run.spent_tokens:
        bars.append(_bar("Tokens", run.spent_tokens, run.budget_tokens, "{:,.0f}"))
    if run.budget_device_minutes is not None:
        bars.append(_bar("Device minutes", run.spent_device_s / 60, run.budget_device_minutes, "{:.1f}"))
    return bars


def _bar(label: str, spent: float, limit: float | None, form: str) -> BudgetBar:
    return BudgetBar(label, form.format(spent), "no limit" if limit is None else form.format(limit), spent, limit)


def _number(value: object) -> float | None:
    return None if value is None else float(str(value))
