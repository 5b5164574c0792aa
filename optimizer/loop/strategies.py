"""The strategy of a run and its settings."""

from __future__ import annotations

from optimizer.models import Run
from optimizer.search import STRATEGIES
from optimizer.search.base import Strategy, StrategySettings


def strategy_of(run: Run) -> Strategy:
    """The run's strategy. Raises KeyError for a name that is not registered."""
    return STRATEGIES[run.strategy]


def settings_of(run: Run) -> StrategySettings:
    """The run's settings, parsed. Raises pydantic.ValidationError."""
    return strategy_of(run).Settings.model_validate(run.settings)
