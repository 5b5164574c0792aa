"""Estimate on the start form what a run will take, and warn if no runner would measure it."""

from __future__ import annotations

from dataclasses import dataclass

from optimizer.forms.start_run import StartRunForm
from optimizer.queries.budgets import Budget
from optimizer.queries.estimate import Estimate, Range, estimate_run
from optimizer.queries.runners import absence_of_runners
from runners.dispatch import DISPATCHERS


@dataclass(frozen=True)
class EstimateLine:
    """Hold one figure, such as `Time`, `4 to 9 minutes`."""

    label: str
    text: str


@dataclass(frozen=True)
class RunEstimate:
    """Hold the estimate for the run that the form describes.

    `absence` is a warning if no runner would measure it. `limits` are its limits in words.
    """

    estimate: Estimate
    lines: list[EstimateLine]
    absence: str
    limits: list[str]


def estimate_of(form: StartRunForm) -> RunEstimate | None:
    """Return the estimate, or None while problem or target is invalid."""
    problem, target = form.sound("problem"), form.sound("target")
    if problem is None or target is None:
        return None
    found = estimate_run(
        problem,
        target,
        form.strategy_name,
        form.sound_budget(),
        seen_by=form.user,
        providers=form.sound_providers(),
    )
    dispatcher = form.sound("dispatcher")
    absence = absence_of_runners(target.key, dispatcher) if dispatcher in DISPATCHERS else ""
    asks = form.strategy_class.needs_model
    return RunEstimate(found, _lines(found, asks), absence, _limits(form.sound_budget(), asks))


def _lines(found: Estimate, asks: bool) -> list[EstimateLine]:
    """Return time and device time; also dollars and tokens where a model is asked."""
    told = [("Time", _minutes(found.minutes)), ("Device", _minutes(found.device_minutes))]
    if asks:
        told += [("Cost", _dollars(found)), ("Tokens", _between(found.tokens, "{:,.0f}", "{:,.0f}"))]
    return [EstimateLine(label, text) for label, text in told if text]


def _limits(budget: Budget, asks: bool) -> list[str]:
    """Return each limit in words; without a model, dollars and tokens cannot be reached."""
    told = [
        (budget.evaluations, "{:,} evaluations"),
        (budget.minutes, "{:g} minutes"),
        (budget.device_minutes, "{:g} device minutes"),
        *([(budget.usd, "${:.2f}"), (budget.tokens, "{:,} tokens")] if asks else []),
    ]
    return [form.format(limit) for limit, form in told if limit is not None]


def _minutes(found: Range | None) -> str:
    if found is not None and found.high < 2:
        return _between(Range(found.low * 60, found.high * 60), "{:.0f}", "{:.0f} seconds")
    return _between(found, "{:.0f}", "{:.0f} minutes")


def _dollars(found: Estimate) -> str:
    if found.usd is None:
        # Runs of other strategies tell of device time alone.
        return "unknown: no prices on record for these runs" if found.tokens is not None else ""
    return _between(found.usd, "${:.2f}", "${:.2f}")


def _between(found: Range | None, low_form: str, high_form: str) -> str:
    """Return `4 to 9 minutes`, or `about 4 minutes` where both ends read the same."""
    if found is None:
        return ""
    low, high = low_form.format(found.low), high_form.format(found.high)
    return f"about {high}" if high.startswith(low) and low == low_form.format(found.high) else f"{low} to {high}"
