"""Build what stands at the head of every page of a run: its name and state, the tabs, and what can be done with it."""

from __future__ import annotations

from typing import Any

from optimizer.access import offers
from optimizer.models import Follow, Run, RunState, User
from optimizer.queries.run_status import status_of
from optimizer.runs.budget import exhausted
from optimizer.search import STRATEGIES, strategy_title

# Address name and label of each page of a run, in the order of the tabs.
TABS = (
    ("run_page", "Overview"),
    ("run_kernels", "Kernels"),
    ("hypotheses", "Hypotheses"),
    ("lineage", "Lineage"),
    ("calls", "Calls"),
    ("tuned", "Parameters"),
    ("run_plan", "Plan"),
    ("discussion", "Discussion"),
)


def head_context(run: Run, user: User, tab: str) -> dict[str, Any]:
    """Return what `runs/_head.html` shows of the run to the person, with `tab` as the current page."""
    return {
        "run": run,
        "tab": tab,
        "tabs": [(name, label) for name, label in TABS if _is_shown(run, name, tab)],
        "strategy_title": strategy_title(run.strategy),
        "follows": Follow.objects.filter(user=user, run=run).exists(),
        "may_hide": run.created_by_id == user.pk or offers(user, run, "own"),
        **actions_context(run, user),
    }


def _is_shown(run: Run, name: str, tab: str) -> bool:
    """Return whether a run has the tab: calls where models are asked, a plan while there is something to send."""
    if name == "run_plan":
        return name == tab or not run.state_choice.is_terminal
    return name != "calls" or asks_models(run)


def actions_context(run: Run, user: User) -> dict[str, Any]:
    """Return the line of the run's state and the actions that fit it; both change while the run is live."""
    state = RunState(run.state)
    may_operate = offers(user, run, "operate")
    return {
        "status": status_of(run),
        "may_operate": may_operate,
        "can_pause": may_operate and state in (RunState.RUNNING, RunState.PENDING),
        "can_resume": may_operate and state == RunState.PAUSED,
        "can_finish": may_operate and state == RunState.RUNNING and not run.finish_reason,
        "can_stop": may_operate and not state.is_terminal and state != RunState.STOPPING,
        "can_continue": may_operate and state == RunState.FINISHED and exhausted(run) is not None,
    }


def asks_models(run: Run) -> bool:
    """Return whether the run's strategy asks language models; True where the strategy no longer exists."""
    strategy = STRATEGIES.get(run.strategy)
    return strategy is None or strategy.needs_model
