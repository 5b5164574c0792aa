"""Convert KernelBot's answer to a JobResult.

The answer is a claim: every figure is checked, every field may be missing, and text is capped. Times are means over
KernelBot's repetitions in ns (`benchmark.N.mean`, `.err` is the standard error), a score is in seconds, all as
strings. There is no baseline beside them, hence no speedup and no verdict.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable
from typing import Any

from runners.job import CaseResult, Flag, JobResult, JobSpec, StageResult, Status
from runners.kernelbot.order import Order

ENDED = frozenset({"succeeded", "failed", "timed_out", "hacked"})
HARNESS = "kernelbot"
# Standard errors on each side of a mean that cover 95 % of a normal distribution.
NORMAL_95 = 1.96
# The numbers of cases come from the answer, so counting them must end.
MOST_CASES = 1000
TEXT_CHARS = 2000
Run = dict[str, Any]


def has_ended(answer: dict[str, Any]) -> bool:
    """Return whether KernelBot has finished a submission, according to its job."""
    return job_status(answer) in ENDED


def job_status(answer: dict[str, Any]) -> str:
    """Return `initial`, `pending`, `running`, or one of ENDED; an empty text if the answer does not tell."""
    job = answer.get("job")
    return str(job.get("status") or "") if isinstance(job, dict) else ""


def result_of(spec: JobSpec, order: Order, answer: dict[str, Any]) -> JobResult:
    """Return the result of a submission that has ended."""
    runs = [run for run in answer["runs"] if isinstance(run, dict)]
    status, reasons = _status(order, answer, runs)
    return JobResult(
        job_id=spec.job_id,
        status=status,
        reasons=reasons,
        flags=[Flag.MEASURED_ELSEWHERE],
        cases=_cases(runs),
        stages=[_stage(run) for run in runs],
        sandbox=HARNESS,
        environment={HARNESS: _facts(order, answer, runs)},
        harness_version=HARNESS,
    )


def _status(order: Order, answer: dict[str, Any], runs: list[Run]) -> tuple[Status, list[str]]:
    said, error = job_status(answer), _text((answer.get("job") or {}).get("error"))
    if said == "hacked":
        return Status.SUSPECT, [f"KernelBot calls it a cheat: {error or 'no reason given'}"]
    if said == "timed_out":
        return (Status.TIMEOUT if runs else Status.INFRA_ERROR), [f"KernelBot's limit was reached: {error}"]
    if failed := [run for run in runs if run.get("passed") is not True]:
        return _failure(failed[0])
    if not runs or said == "failed":
        return Status.INFRA_ERROR, [f"KernelBot could not run it: {error or 'no run, no reason'}"]
    if missing := _missing(order, runs):
        return Status.INFRA_ERROR, [f"KernelBot ran no {missing}"]
    return Status.CORRECT, []


def _failure(run: Run) -> tuple[Status, list[str]]:
    """Describe the first run that did not pass. A public run says which case failed; a secret one says nothing."""
    where = _name(run)
    if run.get("secret"):
        return Status.INCORRECT, [f"{where} run not passed; KernelBot keeps its details to itself"]
    told = _told(run)
    if "check" not in told:
        return Status.CRASHED, [f"{where} run ended without a verdict"]
    wrong = [key for key, value in told.items() if key.endswith(".status") and value == "fail"]
    reasons = [_case_reason(told, key.removesuffix(".status")) for key in wrong[:5]]
    return Status.INCORRECT, [f"{where} run: {reason}" for reason in reasons] or [f"{where} run not passed"]


def _case_reason(told: dict[str, str], case: str) -> str:
    return f"{told.get(f'{case}.spec', case)}: {told.get(f'{case}.error', 'wrong')}"[:TEXT_CHARS]


def _missing(order: Order, runs: list[Run]) -> str:
    """Return the runs that a submission of that mode must have and that are missing."""
    there = {(run.get("mode"), bool(run.get("secret"))) for run in runs}
    needed = [(order.mode, False)]
    if order.mode == "leaderboard":
        needed.append(("leaderboard", True))
    return ", ".join(f"{'secret ' * secret}{mode} run" for mode, secret in needed if (mode, secret) not in there)


def _cases(runs: Iterable[Run]) -> list[CaseResult]:
    """Return the timed cases if there are any, else the tested ones, from public runs; the later run counts."""
    tested: dict[str, CaseResult] = {}
    timed: dict[str, CaseResult] = {}
    for run in runs:
        told = _told(run)
        if not run.get("secret"):
            tested |= {case.name: case for case in _numbered(told, "test")}
            timed |= {case.name: case for case in _numbered(told, "benchmark")}
    return list((timed or tested).values())


def _numbered(told: dict[str, str], kind: str) -> list[CaseResult]:
    cases = []
    for number in range(MOST_CASES):
        prefix = f"{kind}.{number}"
        if not any(key.startswith(f"{prefix}.") for key in told):
            break
        cases.append(_case(told, prefix))
    return cases


def _case(told: dict[str, str], prefix: str) -> CaseResult:
    mean_us, err_us = _microseconds(told.get(f"{prefix}.mean")), _microseconds(told.get(f"{prefix}.err"))
    # The interval of a mean, not of a median as for our own timings; `times` in the environment says so.
    spread = NORMAL_95 * err_us if mean_us and err_us else None
    ok = told.get(f"{prefix}.status", "pass") == "pass"
    return CaseResult(
        name=" ".join(told.get(f"{prefix}.spec", prefix).split())[:120],
        ok=ok,
        error=None if ok else told.get(f"{prefix}.error", "wrong"),
        candidate_us=mean_us,
        candidate_low_us=max(mean_us - spread, 0.0) if mean_us and spread else None,
        candidate_high_us=mean_us + spread if mean_us and spread else None,
    )


def _facts(order: Order, answer: dict[str, Any], runs: list[Run]) -> dict[str, Any]:
    scores = {_name(run): score for run in runs if (score := _number(run.get("score"))) is not None}
    return {
        "submission": answer.get("id"),
        "leaderboard": order.leaderboard,
        "gpu": order.gpu,
        "mode": order.mode,
        "job": job_status(answer),
        "runners": sorted({_text(run.get("runner")) for run in runs}),
        "scores_s": scores,
        "times": "means of KernelBot's repetitions, ± 1.96 standard errors",
    }


def _stage(run: Run) -> StageResult:
    told = _told(run)
    log = "\n".join(f"{key}: {value}" for key, value in sorted(told.items()))[: 10 * TEXT_CHARS]
    return StageResult(_name(run), _seconds(run), ok=run.get("passed") is True, log=log)


def _name(run: Run) -> str:
    return f"{'secret ' if run.get('secret') else ''}{_text(run.get('mode'))[:40]}"


def _seconds(run: Run) -> float:
    try:
        start, end = (dt.datetime.fromisoformat(str(run.get(key))) for key in ("start_time", "end_time"))
        return max(0.0, (end - start).total_seconds())
    except (ValueError, TypeError):
        return 0.0


def _told(run: Run) -> dict[str, str]:
    """Return a run's `result` as text by text, or nothing if KernelBot keeps it secret."""
    result = run.get("result")
    return {str(key): _text(value) for key, value in result.items()} if isinstance(result, dict) else {}


def _text(value: Any) -> str:
    return "" if value is None else str(value)[:TEXT_CHARS]


def _microseconds(nanoseconds: Any) -> float | None:
    value = _number(nanoseconds)
    return None if value is None else value / 1000.0


def _number(value: Any) -> float | None:
    """Parse a finite number above zero, from a string or not; None for anything else."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) and number > 0 else None
