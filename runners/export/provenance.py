"""Say where an exported kernel comes from and what was measured of it, as JSON data and in words."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from typing import Any

from runners.job import JobResult, ProblemBundle, Source
from runners.wire import to_plain


@dataclass(frozen=True)
class Origin:
    """Hold what the person who exports says of the kernel. `licence` is an SPDX expression, or empty if unknown."""

    author: str = ""
    licence: str = ""
    version: str = "0.1.0"
    url: str = ""


def provenance(
    bundle: ProblemBundle, source: Source, target: str, result: JobResult | None, origin: Origin
) -> dict[str, Any]:
    """Return who made the kernel, of which problem, and the verdict with its intervals, hardware and harness."""
    return {
        "kernel": {
            "language": source.language.value,
            "content_hash": source.content_hash,
            "sha256": hashlib.sha256(source.text.encode()).hexdigest(),
            "tunables": source.tunables,
        },
        "problem": {"name": bundle.name, "format": bundle.format, "content_hash": bundle.content_hash},
        "target": target,
        **asdict(origin),
        "measured": measured(result) if result else None,
    }


def measured(result: JobResult) -> dict[str, Any]:
    """Return the verdict, its intervals by case, and the machine, without raw samples and logs."""
    return {
        "status": result.status.value,
        "verdict": result.verdict.value if result.verdict else None,
        "speedup": to_plain(result.speedup) if result.speedup else None,
        "call_speedup": to_plain(result.call_speedup) if result.call_speedup else None,
        "flags": [str(flag) for flag in result.flags],
        "cases": [
            {
                "name": case.name, "ok": case.ok, "candidate_us": case.candidate_us, "baseline_us": case.baseline_us,
                "speedup": case.speedup, "speedup_low": case.speedup_low, "speedup_high": case.speedup_high,
                "max_abs_error": case.max_abs_error,
            }
            for case in result.cases
        ],
        "noise_floor": result.noise_floor.ratio if result.noise_floor else None,
        "environment": result.environment,
        "harness_version": result.harness_version,
    }  # fmt: skip


def in_words(told: dict[str, Any]) -> str:
    """Return the measurement as one Markdown paragraph, which says plainly where there is none."""
    found = told["measured"]
    if found is None:
        return "This kernel was exported without a measurement: nothing is claimed about its speed."
    if found["speedup"] is None:
        return f"The harness found it {found['status']}. It has no comparison with torch."
    speedup = found["speedup"]
    interval = f"{speedup['median']:.3f}× (95 % interval {speedup['low']:.3f} to {speedup['high']:.3f})"
    verdict = found["verdict"] or speedup["verdict"]
    return (
        f"Measured against {speedup['baseline']} on {told['target']}: {interval}, verdict **{verdict}**; the noise "
        f"floor of that machine is {speedup['band']:.3f}. Harness {found['harness_version'] or 'of unknown version'}."
    )


def table(told: dict[str, Any]) -> str:
    """Return the cases that were timed as a Markdown table, or nothing."""
    rows = [case for case in (told["measured"] or {}).get("cases", []) if case["candidate_us"] is not None]
    if not rows:
        return ""
    lines = ["| case | kernel µs | torch µs | speedup | interval |", "|---|---:|---:|---:|---|"]
    for row in rows:
        shown = [_number(row[key]) for key in ("candidate_us", "baseline_us", "speedup")]
        low, high = _number(row["speedup_low"]), _number(row["speedup_high"])
        lines.append(f"| {row['name']} | {' | '.join(shown)} | {low} to {high} |")
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
