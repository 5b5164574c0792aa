"""Shorten a result to what a coding agent can use: the verdict first, without samples, code and long logs."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from runners.job import BuildReport, CaseResult, JobResult, Speedup
from runners.profiling.summary import in_words, notes_in

LOG_CAP = 6_000
MOST_CASES = 60
HIDDEN_FAILED = "It fails on a case that is not shown: a kernel must be correct for every shape and distribution."


def verdict_of(result: JobResult, hidden: Collection[str] = ()) -> dict[str, Any]:
    """Return the result as JSON. Words in `reasons`, `log` and `error` may be a compiler's or the kernel's own.

    `hidden` names the cases that are checked and never shown to agents: what is said of them is left out, because a
    kernel that is written for the shown shapes alone must not learn the others from its failures.
    """
    verdict: dict[str, Any] = {
        "status": result.status.value,
        "verdict": result.verdict.value if result.verdict else None,
        "reasons": _reasons(result, hidden),
        "flags": [str(flag) for flag in result.flags],
        "speedup": _ratio(result.speedup),
        "against_parent": _ratio(result.versus_parent),
        "cases": [_case(case) for case in result.cases[:MOST_CASES] if case.name not in hidden],
        "build": _build(result.build),
        "device": str(result.environment.get("device", "")),
        "harness": result.harness_version,
        "sandbox": result.sandbox,
        "seconds": round(sum(stage.seconds for stage in result.stages), 2),
    }
    if "kernels" in result.profile:
        verdict["profile"] = [*in_words(result.profile), *notes_in(result.profile)]
    # What is absent says nothing, and every word of an answer costs the agent.
    return {name: value for name, value in verdict.items() if value not in (None, "", [], {})}


def _reasons(result: JobResult, hidden: Collection[str]) -> list[str]:
    said = [HIDDEN_FAILED if any(name in reason for name in hidden) else _cut(reason) for reason in result.reasons]
    return list(dict.fromkeys(said))


def build_of(report: BuildReport) -> dict[str, Any]:
    """Return a build as JSON: whether it succeeded, the compiler's words, and the resources of each kernel."""
    return _build(report) or {}


def _ratio(speedup: Speedup | None) -> dict[str, Any] | None:
    if speedup is None:
        return None
    return {
        "times": round(speedup.median, 4),
        "low": round(speedup.low, 4),
        "high": round(speedup.high, 4),
        "against": speedup.baseline,
        "verdict": speedup.verdict.value,
        "noise_floor": round(speedup.band, 4),
    }


def _case(case: CaseResult) -> dict[str, Any]:
    found = {
        "name": case.name,
        "ok": case.ok,
        "error": _cut(case.error) if case.error else None,
        "kernel_us": _rounded(case.candidate_us),
        "baseline_us": _rounded(case.baseline_us),
        "parent_us": _rounded(case.parent_us),
        "speedup": _rounded(case.speedup),
        "roofline_share": _rounded(case.roofline_share),
        "max_abs_error": case.max_abs_error,
    }
    return {name: value for name, value in found.items() if value is not None}


def _build(report: BuildReport | None) -> dict[str, Any] | None:
    if report is None:
        return None
    kernels = [
        {name: value for name, value in vars(kernel).items() if value not in (None, {}, "")}
        for kernel in report.kernels
    ]
    found = {
        "ok": report.ok,
        "seconds": round(report.seconds, 2),
        "log": _cut(report.log.strip()),
        "kernels": kernels,
    }
    return {name: value for name, value in found.items() if value not in ("", [])}


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")


def _cut(text: str) -> str:
    """Keep head and tail of a long text: the first error and the last line say most."""
    if len(text) <= LOG_CAP:
        return text
    return f"{text[: LOG_CAP // 2]}\n[… {len(text) - LOG_CAP} characters left out …]\n{text[-LOG_CAP // 2 :]}"
