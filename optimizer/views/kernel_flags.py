"""Describe the harness's flags of a kernel in words. An unknown flag is shown as it is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from optimizer.queries.timing import FLAG_WORDS
from runners.job import Flag, JobResult


@dataclass(frozen=True)
class Observation:
    """Hold a flag with its meaning."""

    flag: str
    text: str
    tone: str


WORDS: dict[str, tuple[str, str]] = {
    Flag.UNCONFIRMED: (
        "Not confirmed: the candidate's clock shows a win that the referee's clock does not confirm. The figures "
        "are shown but not ranked.",
        "warn",
    ),
    Flag.NEEDS_REVIEW: (
        "Unusually large speedup: review this kernel before you rely on it.",
        "warn",
    ),
    Flag.NONDETERMINISTIC: ("Not deterministic: the same input gave a different result the second time.", "warn"),
    Flag.NO_CUSTOM_KERNEL: ("The work is done by a library: the source contains no kernel of its own.", "warn"),
    **{flag: (text, "warn" if flag == Flag.SLOW_REFERENCE else "muted") for flag, text in FLAG_WORDS.items()},
    Flag.PARENT_FAILED: ("The parent failed in this evaluation, so there is no comparison with it.", "muted"),
    Flag.BASELINE_FAILED: ("The baseline failed in this evaluation, so there is no speedup.", "warn"),
    Flag.BASELINE_DISAGREES: ("The baseline's own results were outside the tolerance on these inputs.", "warn"),
    "parent_not_built": ("The parent could not be built, so there is no comparison with it.", "muted"),
    Flag.NOT_TIMED: ("Checked, not timed.", "muted"),
    Flag.NO_BENCHMARK_CASE: ("The problem has no case to time on this target.", "muted"),
    Flag.NOT_EXECUTED: ("Built, not run on its device.", "muted"),
    Flag.EMULATED: ("It ran in emulation on the CPU, on the smallest cases: no proof for the device.", "muted"),
    Flag.NOT_EMULATED: ("The emulation lacks something that it uses; the log of that stage names it.", "muted"),
    Flag.ABANDONED_SLOW: ("A short timing found it far behind the best, so the full timing was skipped.", "muted"),
    Flag.MEASURED_AGAIN: ("The clocks differed at first: this is its second timing, in fresh processes.", "muted"),
    Flag.OTHER_PRODUCT: (
        "The GPU is a different product from the target's, so the rooflines and peaks on this page are not its own.",
        "warn",
    ),
    Flag.MEASURED_ELSEWHERE: ("It was measured by an evaluator outside this installation.", "muted"),
}


def observations(result: JobResult | None) -> list[Observation]:
    """Return all flags of a result, warnings first."""
    found = [_observation(flag) for flag in (result.flags if result else [])]
    return sorted(found, key=lambda one: one.tone != "warn")


def determinism(result: JobResult | None) -> str:
    """Return what the checks found about repeated calls, or an empty text where none was made."""
    if result is None or not any(case.ok for case in result.cases):
        return ""
    return (
        "not deterministic" if Flag.NONDETERMINISTIC in result.flags else "bit for bit the same on repeated inputs"
    )


def warns(found: Iterable[Observation]) -> list[Observation]:
    """Return the observations that a reader must not miss."""
    return [one for one in found if one.tone == "warn"]


def _observation(flag: str) -> Observation:
    if flag in WORDS:
        return Observation(flag, *WORDS[flag])
    reader, parted, rule = flag.partition(":")
    text = f"{reader} suspects the text of {rule.lower().replace('_', ' ')}." if parted else flag.replace("_", " ")
    return Observation(flag, text, "warn" if parted else "muted")
