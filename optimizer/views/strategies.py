"""Present the strategies for selection."""

from __future__ import annotations

from optimizer.search import STRATEGIES


def strategy_titles() -> dict[str, str]:
    """Return title by name, in the registry's order."""
    return {name: strategy.title for name, strategy in STRATEGIES.items()}
