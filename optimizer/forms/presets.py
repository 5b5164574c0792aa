"""Define the presets of the start form: values that replace what is in the form when somebody chooses one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Preset:
    """Hold a preset: its label, what it is for, and the form's fields that it sets."""

    name: str
    label: str
    summary: str
    values: Mapping[str, str]


PRESETS = (
    Preset(
        "try", "Try it", "9 evaluations, no model",
        {"strategy": "tune", "budget_evaluations": "9", "budget_minutes": "15", "budget_usd": "", "budget_tokens": ""},
    ),
    Preset(
        "cheap", "Cheap", "12 evaluations, $2 at most",
        {"strategy": "scientist", "budget_evaluations": "12", "budget_minutes": "60", "budget_usd": "2"},
    ),
    Preset(
        "careful", "Careful", "60 evaluations, $20 at most, five finalists",
        {"strategy": "scientist", "budget_evaluations": "60", "budget_minutes": "360", "budget_usd": "20",
         "settings.settle": "5", "settings.confirm": "1"},
    ),
)  # fmt: skip


def preset_values(name: str) -> Mapping[str, str]:
    """Return the values of a preset; nothing for an unknown name."""
    return next((preset.values for preset in PRESETS if preset.name == name), {})
