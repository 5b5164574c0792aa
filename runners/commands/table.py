"""Print a result as a table for people."""

from __future__ import annotations

from typing import Any

from runners.job import OTHERS_SHARE, CaseResult, JobResult, JobSpec, Speedup
from runners.profiling.summary import in_words, notes_in


def table(spec: JobSpec, result: JobResult) -> str:
    """Format the verdict first, then the reasons, then the figures case by case and stage by stage."""
    lines = [f"{spec.problem.name} on {spec.target}: {result.outcome}{_verdict(result)}"]
    lines += [f"  {line}" for reason in result.reasons for line in reason.splitlines()]
    if result.flags:
        lines.append(f"  flags: {', '.join(result.flags)}")
    for speedup, by in ((result.speedup, ""), (result.versus_parent, ""), (result.call_speedup, ", by call time")):
        if speedup is not None:
            lines.append(f"  {_speedup(speedup)}{by}")
    lines += [f"  {failure.side}, {failure.stage}: {failure.reason}" for failure in result.failures]
    if result.noise_floor is not None and result.noise_floor.wide:
        lines.append(
            f"  noisy machine: its noise floor is {result.noise_floor.ratio:.3f}, small speedups cannot be shown"
        )
    if (share := result.environment.get(OTHERS_SHARE)) is not None:
        lines.append(f"  other programs used {100 * share:.0f} % of the processors during timing")
    lines += ["", *_cases(result.cases)] if result.cases else []
    lines += ["", *_profile(result.profile)] if "kernels" in result.profile else []
    stages = ", ".join(f"{stage.name} {stage.seconds:.2f} s" for stage in result.stages)
    return "\n".join([*lines, "", f"stages: {stages}", f"sandbox: {result.sandbox}"])


def _profile(profile: dict[str, Any]) -> list[str]:
    """Return the lines of the profile, and which tools could not be used."""
    return [*in_words(profile), *notes_in(profile)]


def _verdict(result: JobResult) -> str:
    return f", {result.verdict.value}" if result.verdict else ""


def _speedup(speedup: Speedup) -> str:
    interval = f"{speedup.median:.3f}× ({speedup.low:.3f} to {speedup.high:.3f})"
    return f"{interval} against {speedup.baseline}: {speedup.verdict.value} (A/A band {speedup.band:.3f})"


def _cases(cases: list[CaseResult]) -> list[str]:
    has_call = any(case.candidate_call_us for case in cases)
    call = f" {'call µs':>11} {'by call':>8}" if has_call else ""
    times = f"{'device µs' if has_call else 'kernel µs':>11} {'baseline µs':>12} {'speedup':>8}{call}"
    header = f"{'case':<20} {'ok':<4} {times} {'max abs err':>12}"
    return [header, *(_case(case, has_call=has_call) for case in cases)]


def _case(case: CaseResult, *, has_call: bool) -> str:
    cells = [_number(case.candidate_us, 11), _number(case.baseline_us, 12), _number(case.speedup, 8)]
    cells += [_number(case.candidate_call_us, 11), _number(case.call_speedup, 8)] if has_call else []
    error = f"{case.max_abs_error:12.3g}" if case.max_abs_error is not None else " " * 12
    line = f"{case.name:<20} {'yes' if case.ok else 'NO':<4} {' '.join(cells)} {error}"
    if case.roofline_share:
        line += f"  {100 * case.roofline_share:.0f} % of the measured ceiling"
    if case.flags:
        line += f"  {', '.join(case.flags)}"
    return line if case.error is None else f"{line}\n    {case.error.splitlines()[0]}"


def _number(value: float | None, width: int) -> str:
    return " " * width if value is None else f"{value:{width}.2f}"
