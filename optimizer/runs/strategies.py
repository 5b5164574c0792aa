"""Find a run's strategy and its settings."""

from __future__ import annotations

from optimizer.models import Run
from optimizer.search import STRATEGIES
from optimizer.search.base import Strategy, StrategySettings


def strategy_of(run: Run) -> Strategy:
    """Return the run's strategy. Raises KeyError for a name that is not registered."""
    return STRATEGIES[run.strategy]


def settings_of(run: Run) -> StrategySettings:
    """Return the run's parsed settings. Raises pydantic.ValidationError."""
    return strategy_of(run).Settings.model_validate(run.settings)
