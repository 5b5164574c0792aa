"""Store a runner's result as figures in the database.

A result is a claim: beyond the structure that `runners.wire` has checked, no value in it is trusted.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from statistics import geometric_mean
from typing import TypeGuard

from optimizer.events.payloads import EvaluationCancelled, EvaluationFinished
from optimizer.models import Evaluation, EvaluationState, EvaluationStatus, Measurement, Run
from optimizer.models.evaluation import CANDIDATE
from optimizer.text.storable import storable
from runners import wire
from runners.job import CaseResult, Effort, Flag, JobResult, Speedup, Status

MAX_SAMPLES = 10_000
_COPIED = (
    "time_us",
    "call_us",
    "verdict",
    "unconfirmed",
    "speedup",
    "speedup_low",
    "speedup_high",
    "call_speedup",
    "call_speedup_low",
    "call_speedup_high",
    "roofline_share",
    "failed_side",
    "sandbox",
    "harness_version",
)


def do_store_result(evaluation: Evaluation, result: JobResult) -> None:
    """Fill in an evaluation and its measurements and mark it finished.

    Call inside the transaction that closes the job.
    """
    evaluation.time_us = time_of(result)
    evaluation.call_us = call_time_of(result)
    evaluation.roofline_share = roofline_share_of(result)
    evaluation.failed_side = failed_side(result)
    evaluation.verdict = result.verdict or ""
    evaluation.unconfirmed = Flag.UNCONFIRMED in result.flags
    _store_speedup(evaluation, "speedup", result.speedup)
    _store_speedup(evaluation, "call_speedup", result.call_speedup)
    _store_speedup(evaluation, "parent_speedup", result.versus_parent)
    evaluation.parent_verdict = result.versus_parent.verdict if result.versus_parent else ""
    evaluation.sandbox = result.sandbox[:20]
    evaluation.harness_version = result.harness_version[:20]
    evaluation.artefact_hash = _artefact_hash(result)
    # What a build does beside compiling, such as emulation, happens on a processor.
    evaluation.device_s = 0.0 if evaluation.effort == Effort.BUILD else device_s(result)
    evaluation.result = storable(wire.to_plain(_without_samples(result)))
    evaluation.mark_finished(EvaluationStatus(result.status.value))
    Measurement.objects.bulk_create(_measurements(evaluation, result.cases))


def do_copy_outcome(evaluation: Evaluation, original: Evaluation) -> None:
    """Copy the outcome of the original evaluation to one of a duplicate kernel.

    The comparison with the parent is left out, because the duplicate may have another parent. The samples stay with
    the original.
    """
    if original.state == EvaluationState.CANCELLED:
        return evaluation.mark_cancelled()
    for name in _COPIED:
        setattr(evaluation, name, getattr(original, name))
    evaluation.copied_from = original if original.kernel_id != evaluation.kernel_id else None
    evaluation.result = {**original.result, "versus_parent": None}
    return evaluation.mark_finished(EvaluationStatus(original.status))


def do_share_outcome(evaluation: Evaluation, original: Evaluation, result: JobResult) -> None:
    """Copy the original's outcome to an evaluation whose build produced the same binary, keeping its own build
    report.

    Call inside the transaction that closes the job.
    """
    own = storable(wire.to_plain(result))
    evaluation.artefact_hash = _artefact_hash(result)
    evaluation.device_s = device_s(result)
    do_copy_outcome(evaluation, original)
    reason = f"Builds the same binary as #{original.kernel.number}, whose measurement counts for both."
    # The build is the duplicate's own; everything measured belongs to the original.
    evaluation.result |= {name: own[name] for name in ("job_id", "build", "stages", "duplicate_of", "environment")}
    evaluation.result["reasons"] = [reason, *original.result.get("reasons", [])]
    evaluation.save(update_fields=["result"])


def finished(run: Run, evaluation: Evaluation) -> EvaluationFinished | EvaluationCancelled:
    """Build the event that says how an evaluation ended, with the run's totals after it."""
    if evaluation.state == EvaluationState.CANCELLED:
        return EvaluationCancelled(
            number=evaluation.kernel.number, evaluation=evaluation.pk, first=evaluation.first_of_id is not None
        )
    reasons = evaluation.result.get("reasons") or [""]
    return EvaluationFinished(
        number=evaluation.kernel.number,
        evaluation=evaluation.pk,
        effort=evaluation.effort,
        first=evaluation.first_of_id is not None,
        status=evaluation.status,
        verdict=evaluation.verdict,
        reason=str(reasons[0])[:300],
        time_us=evaluation.time_us,
        speedup=evaluation.speedup,
        speedup_low=evaluation.speedup_low,
        speedup_high=evaluation.speedup_high,
        parent_speedup=evaluation.parent_speedup,
        spent_evaluations=run.spent_evaluations,
        spent_device_s=run.spent_device_s,
    )


def time_of(result: JobResult) -> float | None:
    """Return the geometric mean of the candidate's medians over the timed cases in µs, or None unless it is correct."""
    times = [case.candidate_us for case in result.cases if _is_time(case.candidate_us)]
    return geometric_mean(times) if times and result.status == Status.CORRECT else None


def call_time_of(result: JobResult) -> float | None:
    """Return the geometric mean of the candidate's call times in µs; None on a CPU and as in `time_of`."""
    times = [case.candidate_call_us for case in result.cases if _is_time(case.candidate_call_us)]
    return geometric_mean(times) if times and result.status == Status.CORRECT else None


def roofline_share_of(result: JobResult) -> float | None:
    """Return which share of the measured ceilings the candidate reaches: 1 at the roofline.

    The value is the geometric mean over the cases that state a share; it is None where no case does.
    """
    shares = [case.roofline_share for case in result.cases if _is_time(case.roofline_share)]
    return geometric_mean(shares) if shares else None


def failed_side(result: JobResult) -> str:
    """Return whose failure ended the evaluation, empty for a correct kernel and where the harness named nobody.

    This is the candidate if it failed at all, otherwise the first side that is named.
    """
    sides = [failure.side for failure in result.failures] if result.status != Status.CORRECT else []
    return (CANDIDATE if CANDIDATE in sides else sides[0] if sides else "")[:12]


def device_s(result: JobResult) -> float:
    """Return for how many seconds the device was held: all stages except the build."""
    return sum(max(0.0, stage.seconds) for stage in result.stages if not stage.name.startswith("build"))


def _store_speedup(evaluation: Evaluation, name: str, speedup: Speedup | None) -> None:
    if speedup is None or not all(_is_time(value) for value in (speedup.median, speedup.low, speedup.high)):
        return
    setattr(evaluation, name, speedup.median)
    setattr(evaluation, f"{name}_low", speedup.low)
    setattr(evaluation, f"{name}_high", speedup.high)


def _artefact_hash(result: JobResult) -> str:
    return (result.build.artefact_hash or "")[:64] if result.build else ""


def _without_samples(result: JobResult) -> JobResult:
    # Samples are stored once, as Measurement rows; repeating them here would make every page that reads a result
    # slow.
    cases = [dataclasses.replace(case, samples={}) for case in result.cases]
    return dataclasses.replace(result, cases=cases)


def _measurements(evaluation: Evaluation, cases: Iterable[CaseResult]) -> list[Measurement]:
    """Build one row per case and subject that has a median. A case that is named twice keeps its first figures."""
    rows: dict[tuple[str, str], Measurement] = {}
    for case in cases:
        medians = {"candidate": case.candidate_us, "baseline": case.baseline_us, "parent": case.parent_us}
        for subject, median in medians.items():
            key = (storable(case.name)[:120], subject)
            # Case names come from the runner; a repeated one would violate the unique constraint and lose the whole
            # result.
            if _is_time(median) and key not in rows:
                rows[key] = _measurement(evaluation, case, *key, median)
    return list(rows.values())


def _measurement(evaluation: Evaluation, case: CaseResult, name: str, subject: str, median: float) -> Measurement:
    own = subject == "candidate"
    return Measurement(
        evaluation=evaluation,
        case=name,
        subject=subject,
        # A hostile runner could send millions of samples, infinities or negative times.
        samples_us=[sample for sample in case.samples.get(subject, [])[:MAX_SAMPLES] if _is_time(sample)],
        median_us=median,
        low_us=case.candidate_low_us if own else None,
        high_us=case.candidate_high_us if own else None,
    )


def _is_time(value: float | None) -> TypeGuard[float]:
    """Return True for a positive, finite number."""
    # NaN compares as false everywhere and would pass a plain check against limits.
    return value is not None and math.isfinite(value) and value > 0
