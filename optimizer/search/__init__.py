"""Register the search strategies. A new strategy is one module and one line here."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from optimizer.search.base import Strategy
from optimizer.search.baselines import Reflexion, Sampling
from optimizer.search.external import External
from optimizer.search.islands import Islands
from optimizer.search.scientist import Scientist
from optimizer.search.stark import Stark
from optimizer.search.tune import Tune

STRATEGIES: dict[str, Strategy] = {
    strategy.name: strategy
    for strategy in (Tune(), Scientist(), Stark(), Islands(), Sampling(), Reflexion(), External())
}


def settings_in_force(strategy: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run's settings, completed with the defaults of those it left open.

    Returns them unchanged where the strategy no longer exists or no longer accepts them.
    """
    known = STRATEGIES.get(strategy)
    try:
        return known.Settings.model_validate(dict(given)).model_dump(mode="json") if known else dict(given)
    # Old runs stay readable after a strategy has changed its settings.
    except ValidationError:
        return dict(given)


def strategy_title(name: str) -> str:
    """Return a strategy's title; one that is no longer known keeps its name."""
    return strategy_titles().get(name, name)


def strategy_titles() -> dict[str, str]:
    """Return title by name, in the registry's order."""
    return {name: strategy.title for name, strategy in STRATEGIES.items()}
