"""Write a run's plan for a terminal and for programs: what it will send to its device, and why."""

from __future__ import annotations

from typing import Any

from optimizer.runs.plan import Plan, PlannedLine

_NONE = "–"


def plan_table(plan: Plan) -> str:
    """Return the plan as a table of text."""
    lines = [f"{'':>5} {'predicted':>28} {'saves':>7} {'device':>8} {'worth':>9}  candidate"]
    lines += [_row(line) for line in plan.lines] or ["Nothing is to be sent."]
    return "\n".join([*lines, "", *plan_words(plan)])


def plan_words(plan: Plan) -> list[str]:
    """Return sentences on the budget, on the figures' origin, and on what is missing."""
    said = []
    if plan.left_s is not None:
        said.append(f"{plan.left_s:.1f} s of device time are left; {plan.spent_s:.1f} s are spent.")
    if plan.device is None:
        said.append("Device time is not known before an evaluation has ended.")
    else:
        said.append(
            f"Device time is estimated from {plan.device.measured} evaluations of {plan.device.source}: "
            f"{plan.device.typical_s:.1f} s for a typical one."
        )
    return [*said, plan.note] if plan.note else said


def as_plain(plan: Plan) -> dict[str, Any]:
    """Return the plan as JSON-compatible dictionaries."""
    return {
        "lines": [_plain(line) for line in plan.lines],
        "spent_s": plan.spent_s,
        "left_s": plan.left_s,
        "typical_s": plan.device.typical_s if plan.device else None,
        "note": plan.note,
    }


def _plain(line: PlannedLine) -> dict[str, Any]:
    predicted = line.predicted
    return {
        "title": line.title,
        "number": line.number,
        "stage": line.stage.value,
        "why": line.why,
        "time_us": predicted.time_us if predicted else None,
        "low_us": predicted.low_us if predicted else None,
        "high_us": predicted.high_us if predicted else None,
        "improvement": line.improvement,
        "device_s": line.device_s,
        "worth": line.worth,
        "after_s": line.after_s,
        "fits": line.fits,
    }


def _row(line: PlannedLine) -> str:
    number = f"#{line.number}" if line.number is not None else ""
    found = line.predicted
    time = f"{found.time_us:.1f} µs [{found.low_us:.1f}, {found.high_us:.1f}]" if found else _NONE
    saves = f"{line.improvement:.1%}" if line.improvement is not None else _NONE
    seconds = f"{line.device_s:.1f} s" if line.device_s is not None else _NONE
    worth = f"{line.worth:.2%}/s" if line.worth is not None else _NONE
    beyond = "; beyond the budget" if line.fits is False else ""
    return (
        f"{number:>5} {time:>28} {saves:>7} {seconds:>8} {worth:>9}  {line.title[:60]} "
        f"({line.stage.value}; {line.why}{beyond})"
    )
