"""Describe in words how a result was timed, for pages, reports, the command line and prompts.

The description covers device and call time by case, the time that judges each case, the distance to the roofline, the
machine's noise floor, and the side and stage of a failure.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from optimizer.models import Evaluation, Run
from optimizer.queries.judged import is_by_call
from runners.job import OTHERS_SHARE, CaseResult, Failure, Flag, JobResult, NoiseFloor, Status

# Flags of a case, or of a whole result, with what a reader must know about them.
FLAG_WORDS: dict[str, str] = {
    Flag.LAUNCH_BOUND: "One side, the kernel or what it is compared with, enqueues more launches per call than the "
    "device's queue holds. The case is judged by call time, and that side's device time includes host time.",
    Flag.SYNCHRONISES: "One side, the kernel or what it is compared with, waits for the device during a call. The case "
    "is judged by call time, and that side's device time includes host time.",
    Flag.HOST_BOUND: "Limited by the host's launches; device time alone would hide this.",
    Flag.OVERWRITES_OUTPUT: "Every call returns the same memory: copy an output before the next call if you keep it. "
    "Its time contains that copy, except device time on a GPU; a kernel that returns new tensors needs none.",
    Flag.SLOW_REFERENCE: "The reference loops in Python; the speedup says little about the kernel.",
}
# Ratio of call time to device time from which a case counts as limited by the host.
HOST_BOUND_FROM = 1.5
# Share of the processors from which other programs' use is worth a warning; an idle site of our own uses half of it.
BUSY_FROM = 0.15
# Maximum length of a failure's reason within a sentence, in characters.
LONGEST_REASON = 300
_VERBS = ("timed out", "failed", "crashed", "was ", "ran out", "ended", "exceeded", "did not", "gave ")


@dataclass(frozen=True)
class FlagNote:
    """Hold a flag with its meaning."""

    flag: str
    text: str

    @property
    def label(self) -> str:
        """Return the flag as words: `launch bound`."""
        return self.flag.replace("_", " ")


@dataclass(frozen=True)
class CaseRow:
    """Hold one case as a table shows it. `by_call` states that its verdict is based on call time."""

    case: CaseResult
    by_call: bool
    notes: Sequence[FlagNote]

    @property
    def roofline_text(self) -> str:
        """Return the distance to the roofline in words, empty where it is not known."""
        return roofline_text(self.case.roofline_share)

    @property
    def roofline_percent(self) -> str:
        """Return the share of the roofline as in `62 %`, empty where it is not known."""
        return roofline_percent(self.case.roofline_share)


def case_rows(result: JobResult | None) -> list[CaseRow]:
    """Return the result's cases with what their figures mean: failed ones first, then timed ones, then checked ones."""
    if result is None:
        return []
    cases = sorted(result.cases, key=lambda case: (case.ok, case.candidate_us is None))
    return [CaseRow(case, is_by_call(case, result), case_notes(case)) for case in cases]


def case_notes(case: CaseResult) -> list[FlagNote]:
    """Return the notes of one case: its flags, and that the host limits it where the times say so."""
    flags = list(dict.fromkeys(case.flags))
    if is_host_bound(case) and not {Flag.LAUNCH_BOUND, Flag.HOST_BOUND} & set(flags):
        # Older results lack the flag, but their times show the same.
        flags.append(Flag.HOST_BOUND)
    return [FlagNote(flag, FLAG_WORDS.get(flag, flag.replace("_", " "))) for flag in flags]


def is_host_bound(case: CaseResult) -> bool:
    """Return True where a call takes more than 1.5 times the device's own time."""
    device_us, call_us = case.candidate_us, case.candidate_call_us
    return bool(device_us and call_us) and (call_us or 0.0) > HOST_BOUND_FROM * (device_us or 0.0)


def notes_of(rows: Iterable[CaseRow]) -> list[FlagNote]:
    """Return each note that occurs, once."""
    return list(dict.fromkeys(note for row in rows for note in row.notes))


def has_call_time(result: JobResult | None) -> bool:
    """Return True where call time was measured beside device time: on a GPU."""
    return result is not None and any(case.candidate_call_us for case in result.cases)


def roofline_text(share: float | None) -> str:
    """Return a share of the roofline in words: `62 % of the measured ceiling`."""
    percent = roofline_percent(share)
    return f"{percent} of the measured ceiling" if percent else ""


def roofline_percent(share: float | None) -> str:
    """Return a share of the roofline: `62 %`, or `0.4 %` below one."""
    if not share or share <= 0:
        return ""
    return f"{100 * share:.0f} %" if share >= 0.01 else f"{100 * share:.1g} %"


def noise_text(floor: NoiseFloor | None) -> str:
    """Return the noise floor with when and how it was measured: `1.016, measured 21 Nov 2026, 14:02 UTC`."""
    if floor is None:
        return ""
    parts = [f"{floor.ratio:.3f}"]
    if floor.measured_at > 0:
        parts.append(f"measured {dt.datetime.fromtimestamp(floor.measured_at, dt.UTC):%-d %b %Y, %H:%M} UTC")
    if floor.driver:
        parts.append(floor.driver)
    if floor.load_average:
        parts.append(f"load {floor.load_average:.1f}")
    return ", ".join(parts)


def noise_warning(floor: NoiseFloor | None) -> str:
    """Return what to tell readers about a machine that was too noisy, empty for one that was not."""
    if floor is None or not floor.wide:
        return ""
    when = f"This machine was noisy when its noise floor was measured ({floor.ratio:.2f})"
    return f"{when}: small speedups cannot be shown."


def load_warning(result: JobResult | None) -> str:
    """Return what to tell readers of a result that was timed while other programs were busy, else an empty text."""
    share = result.environment.get(OTHERS_SHARE) if result else None
    if not isinstance(share, int | float) or not BUSY_FROM <= share <= 1:
        return ""
    return (
        f"Other programs used {100 * share:.0f} % of the processors while this was timed. Kernels suffer from that to "
        "different degrees: measure it again on a quiet machine before you rely on a small difference."
    )


def newest_noise_warning(run: Run) -> str:
    """Return the warning of the run's newest timed kernel, empty where the machine was quiet. One query."""
    # Newest by the kernel's number, which an index of the run's kernels gives without reading all of them, and by its
    # key alone, since the wide `result` of every row would be read for sorting.
    timed = Evaluation.objects.filter(first_of__run=run, speedup__isnull=False).order_by("-first_of__number")
    newest = Evaluation.objects.filter(pk=timed.values("pk")[:1])
    return noise_warning(noise_floor_from(newest.values_list("result__noise_floor", flat=True).first()))


def noise_floor_from(plain: object) -> NoiseFloor | None:
    """Return a stored noise floor, or None where none was stored or another version's cannot be read."""
    if not isinstance(plain, dict) or not isinstance(plain.get("ratio"), int | float):
        return None
    known = {name: plain[name] for name in NoiseFloor.__dataclass_fields__ if name in plain}
    return NoiseFloor(**known)


def failure_lines(result: JobResult | None) -> list[str]:
    """Return one sentence for everything that failed: side, stage, reason, and what is left of the comparison.

    What the result's own reasons say already is left out.
    """
    if result is None:
        return []
    said = "\n".join(result.reasons)
    unsaid = [one for one in result.failures if one.side != "candidate" or one.reason.strip() not in said]
    return [_failure_line(failure, result) for failure in unsaid]


def _failure_line(failure: Failure, result: JobResult) -> str:
    what = _what_failed(failure.stage.strip(), _first_line(failure.reason))
    line = f"{failure.side.capitalize()}: {what}"
    if failure.side == "parent" and result.status == Status.CORRECT:
        return f"{line}; compared with the baseline only."
    if failure.side == "baseline" and result.status == Status.CORRECT:
        return f"{line}; there is no speedup."
    return f"{line}."


def _first_line(reason: str) -> str:
    """Return the first line of a reason, which may be a whole compiler log; the log stands with its stage."""
    lines = [line.strip() for line in reason.splitlines() if line.strip()]
    return lines[0][:LONGEST_REASON].rstrip(".") if lines else ""


def _what_failed(stage: str, reason: str) -> str:
    if not stage or reason.lower().startswith(stage.lower()):
        return reason or "failed"
    if not reason:
        return f"{stage} failed"
    return f"{stage} {reason}" if reason.lower().startswith(_VERBS) else f"{stage}: {reason}"
