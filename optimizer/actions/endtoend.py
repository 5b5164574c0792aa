"""Store end-to-end reports beside the kernel that they are about.

The program and the machine are the author's, so nothing here can repeat the measurement. What can be checked is
checked: that the report is of this very kernel, that its figures do not contradict each other, and that its verdict
follows from its interval.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from django.core.exceptions import ValidationError
from django.db import transaction

from optimizer.access import may
from optimizer.actions.audit import log_action
from optimizer.models import AuditAction, EndToEndReport, Kernel, User
from optimizer.runs.locking import lock_run
from optimizer.text.hostile_text import sanitized_line
from optimizer.text.storable import storable_text
from runners.harness.timing.statistics import Interval, verdict

MAX_REPORTS = 100
MAX_REASONS, MAX_REASON = 20, 300
# A program that runs for longer than a day says nothing about one kernel.
LONGEST_S = 86_400.0
# Medians of all calls and the ratio of neighbouring ones may differ by noise, but not by more.
MOST_DISAGREEMENT = 2.0


@dataclass(frozen=True)
class Figures:
    """Hold a report as it was measured. Packages are named by module; `kernels` has the content hash of each."""

    script: str
    without_s: float
    with_s: float
    speedup: float
    low: float
    high: float
    floor: float
    agrees: bool
    results: int
    calls: Mapping[str, int]
    kernels: Mapping[str, str]
    device: str
    sessions: int
    rounds: int
    function: str = ""
    torch_version: str = ""
    missed: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


def do_store_endtoend(user: User, kernel: Kernel, figures: Figures) -> EndToEndReport:
    """Store the report beside the kernel. Raises ValidationError for one of another kernel, or that cannot be true."""
    if not may(user, kernel.run, "comment"):
        raise ValidationError("You may not add reports to this run.")
    names = _packages_of(kernel, figures)
    _check_figures(figures)
    with transaction.atomic():
        # The lock makes the limit exact for reports that come at once.
        lock_run(kernel.run_id)
        if kernel.endtoend_reports.count() >= MAX_REPORTS:
            raise ValidationError(f"A kernel has at most {MAX_REPORTS} end-to-end reports.")
        report = EndToEndReport.objects.create(kernel=kernel, author=user, **_columns(figures, names))
        log_action(AuditAction.ENDTOEND_STORED, user, kernel, report=report.pk)
    return report


def _packages_of(kernel: Kernel, figures: Figures) -> list[str]:
    """Return the packages of the report that hold this kernel."""
    names = [name for name, digest in figures.kernels.items() if digest == kernel.as_source().content_hash]
    if not names:
        raise ValidationError(
            {"kernels": "The report is not of this kernel: no package in it has this kernel's content hash."}
        )
    return names


def _check_figures(figures: Figures) -> None:
    seconds = (figures.without_s, figures.with_s)
    ratios = (figures.speedup, figures.low, figures.high, figures.floor)
    if not all(math.isfinite(one) and one > 0 for one in (*seconds, *ratios)):
        raise ValidationError({"speedup": "Times and speedups must be above zero."})
    if max(seconds) > LONGEST_S:
        raise ValidationError({"without_s": f"A program takes at most {LONGEST_S:g} s."})
    if not figures.low <= figures.speedup <= figures.high or figures.floor < 1:
        raise ValidationError(
            {"speedup": "The speedup must be within its interval, and the noise floor at least 1."}
        )
    ratio = figures.without_s / figures.with_s
    if not figures.low / MOST_DISAGREEMENT <= ratio <= figures.high * MOST_DISAGREEMENT:
        raise ValidationError({"speedup": "The times and the speedup contradict each other."})


def _columns(figures: Figures, names: list[str]) -> dict[str, object]:
    interval = Interval(figures.speedup, figures.low, figures.high)
    plain = {name: getattr(figures, name) for name in ("without_s", "with_s", "speedup", "low", "high", "floor",
                                                       "agrees", "results", "sessions", "rounds")}  # fmt: skip
    return plain | {
        "script": _line(figures.script, 200),
        "function": _line(figures.function, 200),
        "device": _line(figures.device, 200),
        "torch_version": _line(figures.torch_version, 60),
        "verdict": verdict(interval, figures.floor).value,
        "calls": sum(figures.calls.get(name, 0) for name in names),
        "missed": _reasons(figures, names),
        "others": [_line(name, 100) for name in figures.kernels if name not in names][:MAX_REASONS],
    }


def _reasons(figures: Figures, names: list[str]) -> dict[str, int]:
    """Return the most frequent reasons why torch computed in the kernel's place, with how often each was given."""
    # Packages may share a reason, and long ones may agree once they are cut.
    found: Counter[str] = Counter()
    for name in names:
        for reason, times in figures.missed.get(name, {}).items():
            found[_line(reason, MAX_REASON)] += times
    return dict(found.most_common(MAX_REASONS))


def _line(text: str, most: int) -> str:
    return sanitized_line(storable_text(text))[:most]
