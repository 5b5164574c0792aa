"""Name the settings in which runs differ, as the form for a new run names them."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from optimizer.forms.start_run import values_of
from optimizer.forms.strategy_settings import PREFIX, settings_initial
from optimizer.models import Run
from optimizer.search import settings_in_force

# Two runs are always two: neither their names nor what tells them apart is a setting.
NOT_SETTINGS = ("title", "is_private", "team")


def differences_of(runs: Sequence[Run]) -> list[tuple[str, list[Any]]]:
    """Return the settings in which the runs differ, as their values in force; numbers that are equal are the same."""
    values = [_in_force(run) for run in runs]
    names = dict.fromkeys(name for one in values for name in one)
    rows = [(name.removeprefix(PREFIX).replace("_", " "), [one.get(name) for one in values]) for name in names]
    return [(name, row) for name, row in rows if any(_comparable(value) != _comparable(row[0]) for value in row)]


def _in_force(run: Run) -> dict[str, Any]:
    """Return the run's form values, with the strategy's defaults in place of the settings that were left open."""
    given = {name: value for name, value in values_of(run).items() if name not in NOT_SETTINGS}
    # Stored settings are partial: the complete ones come last, or the same value would count as a difference.
    return given | dict(settings_initial(settings_in_force(run.strategy, run.settings)))


def _comparable(value: Any) -> str:
    """Return the value as text, with one form for equal numbers and one for everything that says nothing."""
    if value in (None, "", [], {}):
        return ""
    is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
    # Not as a float of six digits: two seeds, or two limits of millions of tokens, differ in their last ones.
    return str(Decimal(str(value)).normalize()) if is_number else str(value)
