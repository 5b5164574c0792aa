"""Print a run in a terminal: one line while it is running, a table at the end, or JSON."""

from __future__ import annotations

from typing import Any

from optimizer.models import EvaluationStatus, Kernel, Run
from optimizer.queries.budgets import budget_lines
from optimizer.queries.headline import headline_evaluation, show_stated
from optimizer.queries.outcomes import count_outcomes
from optimizer.queries.timing import roofline_text
from runners.job import Objective

BAR_WIDTH = 24
ROWS_SHOWN = 10


def progress_line(run: Run) -> str:
    """Return bar, evaluations and best speedup so far."""
    limit = run.budget_evaluations
    # The bar stays within its width even if a budget was lowered below what is spent.
    done = min(1.0, run.spent_evaluations / limit) if limit else 0.0
    bar = "█" * round(done * BAR_WIDTH) + "░" * (BAR_WIDTH - round(done * BAR_WIDTH))
    best = f"best {run.best_speedup:.2f}×" if run.best_speedup else "no correct kernel yet"
    of = f"/{limit}" if limit else ""
    return f"{bar} {run.spent_evaluations}{of} evaluations, {best}, {run.elapsed_s():.0f} s, {run.state}"


def closing_table(run: Run) -> str:
    """Return the fastest kernels, the failures, and the headline with its interval."""
    fastest = _fastest(run)
    has_call = any(kernel.evaluation.call_us for kernel in fastest)
    times = f"{'device':>10} {'call':>10}" if has_call else f"{'time':>10}"
    lines = [f"{'#':>4} {times} {'speedup':>20} {'verdict':>8}  kernel"]
    lines += [_line(kernel, has_call=has_call) for kernel in fastest]
    lines += ["", _failures(run), headline(run)]
    return "\n".join(line for line in lines if line is not None)


def headline(run: Run) -> str:
    """Return how the run ended and the best kernel's speedup with its interval."""
    ending = f"{run.state_choice.label}: {run.stop_reason}"
    if run.best_kernel is None or run.best_speedup is None:
        return f"{ending} No correct kernel was timed."
    confirmed = run.best_kernel.evaluations.filter(effort="confirm", status=EvaluationStatus.CORRECT).exists()
    interval = f"[{run.best_speedup_low or 0:.2f}, {run.best_speedup_high or 0:.2f}]"
    against = f"against {run.baseline}{' by call time' if run.objective == Objective.CALL else ''}"
    certainty = "confirmed in cold processes" if confirmed else "not confirmed"
    return (
        f"{ending}\nBest: #{run.best_kernel.number} {run.best_kernel.title}: {run.best_speedup:.2f}× {interval} "
        f"{against}, {certainty}."
    )


def as_json(run: Run) -> dict[str, Any]:
    """Return the run's outcome for a script."""
    best = run.best_kernel
    stated = headline_evaluation(run)
    return {
        "run": run.pk,
        "state": run.state,
        "objective": run.objective,
        "reason": run.stop_reason,
        "evaluations": run.spent_evaluations,
        "device_s": round(run.spent_device_s, 3),
        "active_s": round(run.elapsed_s(), 3),
        "best": best
        and stated
        and {
            "number": best.number,
            "key": best.key,
            "tunables": best.tunables,
            "flags": best.flags,
            "time_us": stated.time_us,
            "call_us": stated.call_us,
            "roofline_share": stated.roofline_share,
            "speedup": run.best_speedup,
            "low": run.best_speedup_low,
            "high": run.best_speedup_high,
            "baseline": run.baseline,
        },
        "budgets": {line.kind: {"spent": line.spent, "limit": line.limit} for line in budget_lines(run)},
    }


def _fastest(run: Run) -> list[Kernel]:
    return show_stated(run, run.kernels.rankable().select_related("evaluation").best_first()[:ROWS_SHOWN])


def _line(kernel: Kernel, *, has_call: bool = False) -> str:
    e = kernel.evaluation
    interval = f"{e.speedup:.2f}× [{e.speedup_low:.2f}, {e.speedup_high:.2f}]" if e.speedup else "–"
    call = (f" {e.call_us:>7.1f} µs" if e.call_us else f" {'–':>10}") if has_call else ""
    line = f"{kernel.number:>4} {e.time_us:>7.1f} µs{call} {interval:>20} {e.verdict:>8}  {kernel.title[:60]}"
    return f"{line} ({roofline_text(e.roofline_share)})" if e.roofline_share else line


def _failures(run: Run) -> str:
    outcomes = count_outcomes(run)
    named = ", ".join(f"{count} {status.label.lower()}" for status, count in outcomes.failures)
    told = f"{outcomes.correct} of {outcomes.evaluated} evaluations correct"
    return f"{told}; {named}." if named else f"{told}."
