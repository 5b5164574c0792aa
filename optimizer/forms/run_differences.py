"""Name the settings in which runs differ, as the form for a new run names them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optimizer.forms.start_run import values_of
from optimizer.forms.strategy_settings import settings_initial
from optimizer.models import Run
from optimizer.search import settings_in_force


def differences_of(runs: Sequence[Run]) -> list[tuple[str, list[Any]]]:
    """Return the settings in which the runs differ."""
    values = [
        dict(settings_initial(settings_in_force(run.strategy, run.settings))) | values_of(run) for run in runs
    ]
    names = dict.fromkeys(name for one in values for name in one)
    rows = [(name.removeprefix("settings.").replace("_", " "), [one.get(name) for one in values]) for name in names]
    return [(name, row) for name, row in rows if any(value != row[0] for value in row[1:])]
