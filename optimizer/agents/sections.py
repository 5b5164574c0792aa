"""Render the sections of a prompt about kernels: one kernel, tables, hypotheses, failures in a line.

Whatever came from a tool, a kernel or a person is enclosed in the prompt's delimiters; numbers are our own.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

from optimizer.agents.anchors import without_anchors
from optimizer.agents.delimiters import Delimiters, clean, neutralise
from optimizer.agents.task_sections import SOURCE_CAP, plain
from optimizer.queries.kernel_resources import changed_features, pairs_of
from optimizer.queries.timing import CaseRow, case_rows, failure_lines, load_warning, noise_warning
from optimizer.search.base import History, HypothesisView, KernelView
from optimizer.search.machinery.proposals import target_language
from optimizer.search.machinery.seeds import REFERENCE_KEY
from optimizer.search.machinery.winners import configurations, tuned_winners
from runners.job import JobResult, KernelResources
from runners.profiling.summary import in_words

LOG_CAP = 6_000
REPORT_CAP = 3_000
# Show a diff instead of a source where it is shorter than this share of the source.
DIFF_SHARE = 0.6
LINE_CAP = 200
# A line of a profile ends with a dozen counters.
PROFILE_CAP = 600
MOST_TRIALS = 8
MOST_FEATURES = 16
_ERROR = re.compile(r"\b(?:error|Error|undefined|assert)\b")


def kernel(
    kernel: KernelView,
    history: History,
    delimiters: Delimiters,
    heading: str,
    *,
    source: bool = True,
    near: KernelView | None = None,
) -> str:
    """Return one kernel: origin, hypothesis, outcome, logs when it failed, and source.

    The source is a diff where it hardly differs from `near`, a kernel whose source is in the same prompt.
    """
    parts = [
        f"### {heading}: kernel #{kernel.number} {kernel.title}".rstrip(),
        _origin(kernel, history, delimiters),
        outcome(kernel, delimiters),
        tuning(kernel, history),
        resources(kernel.result),
        features(kernel, history),
        profile(kernel.result),
        machine_code(kernel, delimiters) if source else "",
    ]
    if kernel.report:
        parts.append(
            delimiters.enclose(kernel.report, f"what the writer of #{kernel.number} says it did", REPORT_CAP)
        )
    if source:
        parts.append(_source(kernel, delimiters, near))
    return "\n\n".join(part for part in parts if part)


def is_reference_of_task(kernel: KernelView, history: History) -> bool:
    """Return True for the torch reference where new kernels are written in another language.

    The task shows what it computes, and nobody edits its text.
    """
    return kernel.key == REFERENCE_KEY and kernel.source.language != target_language(history)


def _source(kernel: KernelView, delimiters: Delimiters, near: KernelView | None) -> str:
    text = without_anchors(kernel.source.text)
    if near is not None and near.source.language == kernel.source.language:
        names = f"#{near.number}", f"#{kernel.number}"
        diff = "\n".join(
            difflib.unified_diff(
                without_anchors(near.source.text).splitlines(), text.splitlines(), *names, lineterm=""
            )
        )
        # A diff costs fewer tokens, but one of most lines is harder to read than the source.
        if len(diff) < DIFF_SHARE * len(text):
            return delimiters.enclose(
                diff or "no difference", f"source of {names[1]} as a diff from {names[0]}", SOURCE_CAP
            )
    return delimiters.enclose(text, f"source of #{kernel.number}", SOURCE_CAP)


def tuning(kernel: KernelView, history: History) -> str:
    """Return which configurations of the kernel were measured, the fastest first; empty where none was."""
    trials = configurations(history).get(kernel.key, [])
    if not trials:
        return ""
    counted = sorted((one for one in trials if one.time_us is not None), key=lambda one: one.time_us or 0.0)
    lines = [f"- {plain(one.title)}: {one.time_us:.2f} µs" for one in counted[:MOST_TRIALS]]
    failed = len(trials) - len(counted)
    lines += [f"- {failed} brought no time: they failed or are not measured yet"] if failed else []
    winner = tuned_winners(history).get(kernel.key)
    outcome = f"the fastest is kernel #{winner.number}" if winner else "none was faster than its defaults"
    return f"Tuned with {len(trials)} other configurations; {outcome}:\n" + "\n".join(lines)


def in_a_line(kernel: KernelView) -> str:
    """Return the outcome of a kernel in one line: its time, or why it failed."""
    if kernel.time_us is not None:
        return f"{kernel.time_us:.2f} µs"
    status = kernel.status.value.replace("_", " ") if kernel.status else "not evaluated yet"
    return f"{status}{_why(kernel.result)}"


def _why(result: JobResult | None) -> str:
    """Return the most informative line of a failed result after a colon, or an empty text without any."""
    if result is None:
        return ""
    # The first error of a compiler tells more than the line that counts them.
    log = [line for text in _failure_logs(result) for line in text.splitlines() if _ERROR.search(line)]
    said = [*log, *failure_lines(result), *result.reasons]
    line = " ".join(neutralise(clean(said[0])).split())[:LINE_CAP] if said else ""
    return f": {line}" if line else ""


def outcome(kernel: KernelView, delimiters: Delimiters) -> str:
    """Return the times per case, or why it failed with the tool's output."""
    if not kernel.finished:
        return f"Not evaluated yet. {kernel.predicted}".rstrip()
    if kernel.correct:
        if kernel.time_us is None:
            return (
                "Correct. It has no times that count: it was not timed, a second clock did not confirm them, or they "
                "did not stand when it was measured again."
            )
        head = f"Correct. Geometric mean {kernel.time_us:.2f} µs. {_times(kernel)}{_speedup(kernel.result)}"
        return "\n\n".join(part for part in (head, timing(kernel.result), failures(kernel, delimiters)) if part)
    result = kernel.result
    status = kernel.status.value if kernel.status else "unknown"
    own = f"**Failed: {status}.**"
    lines = [own if kernel.failed else f"Not judged ({status}): its evaluation ended without the kernel's doing."]
    if result is not None:
        lines += [delimiters.enclose("\n".join(result.reasons), f"reasons of #{kernel.number}", LOG_CAP)]
        lines += [part for part in (failures(kernel, delimiters),) if part]
        lines += [delimiters.enclose(log, f"log of #{kernel.number}", LOG_CAP) for log in _failure_logs(result)]
    return "\n\n".join(lines)


def timing(result: JobResult | None) -> str:
    """Return device time, call time, distance to the roofline and remarks by case.

    The text is empty where a result has only one time and no distance to say.
    """
    rows = [row for row in case_rows(result) if row.case.candidate_us]
    lines = [line for line in map(_timing_line, rows) if line]
    warnings = noise_warning(result.noise_floor if result else None), load_warning(result)
    lines += [f"- {warning}" for warning in warnings if warning]
    return "Timing by case:\n" + "\n".join(lines) if lines else ""


def _timing_line(row: CaseRow) -> str:
    case = row.case
    facts = []
    if case.candidate_call_us:
        facts.append(f"device {case.candidate_us:.2f} µs, call with the host {case.candidate_call_us:.2f} µs")
        facts.append("judged by call time" if row.by_call else "judged by device time")
    facts += [f"roofline {case.roofline_us:.2f} µs"] if case.roofline_us else []
    facts += [row.roofline_text] if row.roofline_text else []
    facts += [plain(note.text) for note in row.notes]
    return f"- {plain(case.name)}: " + "; ".join(facts) if facts else ""


def failures(kernel: KernelView, delimiters: Delimiters) -> str:
    """Return which side failed at which stage; empty where the harness named none."""
    lines = failure_lines(kernel.result)
    label = f"what failed when #{kernel.number} was measured"
    return delimiters.enclose("\n".join(lines), label, LOG_CAP) if lines else ""


def resources(result: JobResult | None) -> str:
    """Return the compiler's resource report, one line per kernel, or an empty text."""
    kernels = result.build.kernels if result and result.build else []
    lines = [line for line in map(_resource_line, kernels) if line]
    return "Resources from the compiler:\n" + "\n".join(lines) if lines else ""


def features(kernel: KernelView, history: History) -> str:
    """Return how the machine code differs from the parent's, one line per device kernel, or an empty text."""
    parents = [history.kernel(key) for key in kernel.parent_keys[:1]]
    before = next((one.result.build for one in parents if one and one.result), None)
    build = kernel.result.build if kernel.result else None
    lines = [_feature_line(now, was) for now, was in pairs_of(build, before)]
    told = "\n".join(line for line in lines if line)
    return f"Machine code against the parent's, before → now:\n{told}" if told else ""


def _feature_line(now: KernelResources, before: KernelResources | None) -> str:
    was = before.features if before else {}
    changes = [f"{label} {was[name]:g} → {now.features[name]:g}"
               for name, label in changed_features(was, now.features).items()]  # fmt: skip
    return f"- `{now.name}`: " + ", ".join(changes[:MOST_FEATURES]) if changes else ""


def profile(result: JobResult | None) -> str:
    """Return the profiler's normalised summary, or an empty text."""
    facts = [f"- {plain(line, PROFILE_CAP)}" for line in in_words(result.profile if result else {})]
    return "Profile:\n" + "\n".join(facts[:20]) if facts else ""


def machine_code(kernel: KernelView, delimiters: Delimiters) -> str:
    """Return the densest loop of a correct kernel in assembly, where one was found that fits."""
    build = kernel.result.build if kernel.result else None
    if not kernel.correct or build is None:
        return ""
    loops = [
        delimiters.enclose(text, f"{name} assembly of #{kernel.number}", LOG_CAP)
        for name, text in build.assembly.items()
    ]
    return "\n\n".join(["The loop with the densest arithmetic, by counted instructions:", *loops]) if loops else ""


def population_table(kernels: Iterable[KernelView], history: History) -> str:
    """Return ids, parents and times per case without code (GPU Kernel Scientist, section 3.1). Failures show their
    status.
    """
    shown = list(kernels)
    cases = list(dict.fromkeys(case for kernel in shown for case in kernel.times_us))
    head = ["id", "parents", "author", *(f"{case} µs" for case in cases), "geometric mean µs"]
    rows = [_row(kernel, cases, history) for kernel in shown]
    return "\n".join([_line(head), _line(["---"] * len(head)), *rows])


def hypothesis(view: HypothesisView, delimiters: Delimiters) -> str:
    """Return a recorded hypothesis with its predicted and measured gain."""
    gain = ""
    if view.predicted_min is not None and view.predicted_max is not None:
        gain = f"\nPredicted gain: {view.predicted_min:g} to {view.predicted_max:g} %."
    measured = f"\nMeasured gain: {view.measured_gain:.1f} %." if view.measured_gain is not None else ""
    words = "\n\n".join(part for part in (view.title, view.description, view.rubric) if part)
    return delimiters.enclose(words, f"{view.kind} {view.key}", REPORT_CAP * 2) + gain + measured


def documents(titled: Sequence[tuple[str, str]], delimiters: Delimiters) -> str:
    """Return knowledge documents under their titles."""
    return "\n\n".join(f"#### {title}\n\n{delimiters.enclose(text, title, SOURCE_CAP)}" for title, text in titled)


def quoted(text: str) -> str:
    """Return a person's text as a quotation: cleaned, and unable to pass for a delimiter or heading."""
    return "\n".join(f"> {line}".rstrip() for line in neutralise(clean(text)).splitlines())


def _origin(kernel: KernelView, history: History, delimiters: Delimiters) -> str:
    """Return one step of history: the parents with their times, and the hypothesis (paper, section 3.3)."""
    parents = [parent for key in kernel.parent_keys if (parent := history.kernel(key))]
    lines = [f"Parent: #{parent.number}. {_times(parent)}".rstrip() for parent in parents]
    view = history.hypotheses.get(kernel.hypothesis_key or "")
    if view is not None:
        lines.append(hypothesis(view, delimiters))
    return "\n".join(lines)


def _times(kernel: KernelView) -> str:
    return (
        "Times: " + ", ".join(f"{case} {us:.2f} µs" for case, us in kernel.times_us.items())
        if kernel.times_us
        else ""
    )


def _speedup(result: JobResult | None) -> str:
    speedup = result.speedup if result else None
    if speedup is None:
        return ""
    return f" {speedup.median:.2f}× against {speedup.baseline} (95 % interval {speedup.low:.2f} to {speedup.high:.2f})."


def _failure_logs(result: JobResult) -> list[str]:
    logs = [result.build.log] if result.build and not result.build.ok else []
    logs += [stage.log for stage in result.stages if not stage.ok and stage.log]
    logs += [f"case {case.name}: {case.error}" for case in result.cases if case.error]
    return list(dict.fromkeys(logs))[:4]


def _resource_line(report: KernelResources) -> str:
    names = ("vgpr", "agpr", "sgpr", "registers", "lds_bytes", "scratch_bytes", "vgpr_spills", "sgpr_spills",
             "spill_store_bytes", "occupancy", "matrix_instructions", "code_bytes")  # fmt: skip
    facts = [f"{name} {value}" for name in names if (value := getattr(report, name)) is not None]
    return f"- `{report.name}`: " + ", ".join(facts) if facts else ""


def _row(kernel: KernelView, cases: Sequence[str], history: History) -> str:
    parents = ", ".join(f"#{parent.number}" for key in kernel.parent_keys if (parent := history.kernel(key)))
    status = kernel.status.value if kernel.finished and not kernel.correct and kernel.status else ""
    times = [f"{kernel.times_us[case]:.2f}" if case in kernel.times_us else status or "–" for case in cases]
    mean = f"{kernel.time_us:.2f}" if kernel.time_us else status or "–"
    return _line([f"#{kernel.number}", parents or "–", kernel.author_kind, *times, mean])


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
