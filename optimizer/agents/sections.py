"""Render the sections of a prompt: task, kernels, tables, hypotheses.

Whatever came from a tool, a kernel or a person is enclosed in the prompt's delimiters; numbers are our own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from optimizer.agents.delimiters import Delimiters, clean, neutralise
from optimizer.queries.timing import CaseRow, case_rows, failure_lines, has_call_time, noise_warning
from optimizer.search.base import History, HypothesisView, KernelView
from runners.job import JobResult, KernelResources, Language, Objective
from runners.problems.base import Argument, Case, Problem, Purpose, Role
from runners.problems.prototype import COMPILED, prototype
from runners.profiling.summary import in_words

SOURCE_CAP = 120_000
LOG_CAP = 6_000
REPORT_CAP = 3_000
_LANGUAGES = Path(__file__).parent / "prompts" / "languages"


def language_guide(language: Language) -> str:
    """Return what a kernel in that language must look like to be built here (prompts/languages/*.md)."""
    return (_LANGUAGES / f"{language.value}.md").read_text()


def task(problem: Problem, target: str, language: Language, delimiters: Delimiters) -> str:
    """Return the problem, its signature, cases and tolerances, and the language's rules. Hidden cases are left out."""
    # The description and the reference are enclosed because a problem's author is no more trusted than a kernel's.
    parts = [
        f"## Task: {problem.title}\n\nTarget: `{target}`. New kernels are written in **{language.value}**.",
        delimiters.enclose(problem.description, "problem description"),
        _signature(problem, language),
        _cases(problem, target),
        "### Reference\n\n" + delimiters.enclose(problem.reference_source, "reference implementation", SOURCE_CAP),
        language_guide(language),
    ]
    return "\n\n".join(part for part in parts if part)


_MACHINE_FACTS = ("device", "threads", "vector", "caches", "driver", "torch", "triton")


def machine(history: History) -> str:
    """Return the machine on which the run's kernels are measured, from the latest result; empty
    before the first one.
    """
    # The latest result is used, because a run may move to another machine.
    measured = (view.result for view in reversed(history.kernels) if view.result and view.result.environment)
    environment = next(measured, None)
    facts = environment.environment if environment else {}
    lines = [f"- {name}: {_plain(facts[name])}" for name in _MACHINE_FACTS if facts.get(name)]
    return "### Measured on\n\n" + "\n".join(lines) if lines else ""


def _plain(fact: object) -> str:
    """Return a fact from a runner as one short line that cannot be mistaken for a delimiter or heading."""
    if isinstance(fact, dict):
        text = ", ".join(
            f"{name} {size >> 10} KiB" if isinstance(size, int) else f"{name} {size}" for name, size in fact.items()
        )
    else:
        text = " ".join(map(str, fact)) if isinstance(fact, list) else str(fact)
    # A runner is trusted less than we are: its facts are not enclosed, so they must not look like structure.
    return " ".join(neutralise(clean(text)).split())[:300]


def kernel(
    kernel: KernelView, history: History, delimiters: Delimiters, heading: str, *, source: bool = True
) -> str:
    """Return one kernel: origin, hypothesis, outcome, logs when it failed, and source."""
    parts = [
        f"### {heading}: kernel #{kernel.number} {kernel.title}".rstrip(),
        _origin(kernel, history, delimiters),
        outcome(kernel, delimiters),
        resources(kernel.result),
        profile(kernel.result),
    ]
    if kernel.report:
        parts.append(
            delimiters.enclose(kernel.report, f"what the writer of #{kernel.number} says it did", REPORT_CAP)
        )
    if source:
        parts.append(delimiters.enclose(kernel.source.text, f"source of #{kernel.number}", SOURCE_CAP))
    return "\n\n".join(part for part in parts if part)


def outcome(kernel: KernelView, delimiters: Delimiters) -> str:
    """Return the times per case, or why it failed with the tool's output."""
    if not kernel.finished:
        return "Not evaluated yet."
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
    """Return device time, call time, distance to the roofline and remarks by case; empty where a result has only one
    time and no distance to say."""
    rows = [row for row in case_rows(result) if row.case.candidate_us]
    lines = [line for line in map(_timing_line, rows) if line]
    warning = noise_warning(result.noise_floor if result else None)
    lines += [f"- {warning}"] if warning else []
    return "Timing by case:\n" + "\n".join(lines) if lines else ""


def _timing_line(row: CaseRow) -> str:
    case = row.case
    facts = []
    if case.candidate_call_us:
        facts.append(f"device {case.candidate_us:.2f} µs, call with the host {case.candidate_call_us:.2f} µs")
        facts.append("judged by call time" if row.by_call else "judged by device time")
    facts += [row.roofline_text] if row.roofline_text else []
    facts += [_plain(note.text) for note in row.notes]
    return f"- {_plain(case.name)}: " + "; ".join(facts) if facts else ""


def failures(kernel: KernelView, delimiters: Delimiters) -> str:
    """Return which side failed at which stage; empty where the harness named none."""
    lines = failure_lines(kernel.result)
    label = f"what failed when #{kernel.number} was measured"
    return delimiters.enclose("\n".join(lines), label, LOG_CAP) if lines else ""


def objective(history: History) -> str:
    """Return which time the kernels' figures compare, where there are two; empty on a CPU."""
    if history.objective == Objective.CALL:
        return "Times and speedups are of whole calls, host included: fewer launches and less host work are gains."
    if any(has_call_time(view.result) for view in history.kernels):
        return (
            "Times and speedups are of the device alone, without the host. Call time stands beside them; a case that "
            "is judged by call time says so."
        )
    return ""


def resources(result: JobResult | None) -> str:
    """Return the compiler's resource report, one line per kernel, or an empty text."""
    kernels = result.build.kernels if result and result.build else []
    lines = [line for line in map(_resource_line, kernels) if line]
    return "Resources from the compiler:\n" + "\n".join(lines) if lines else ""


def profile(result: JobResult | None) -> str:
    """Return the profiler's normalised summary, or an empty text."""
    facts = [f"- {_plain(line)}" for line in in_words(result.profile if result else {})]
    return "Profile:\n" + "\n".join(facts[:20]) if facts else ""


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


def _signature(problem: Problem, language: Language) -> str:
    """Name the symbol and the arguments; for a compiled language, write its prototype."""
    if not problem.arguments:
        return ""
    heading = f"### Signature\n\nSymbol `{problem.symbol}`, arguments in this order:"
    lines = [f"- `{argument.name}`: {_argument(argument)}" for argument in problem.arguments]
    compiled = f"```cpp\n{prototype(problem, language)}\n```" if language in COMPILED else ""
    parts = [heading, "\n".join(lines), compiled, _python_signature(problem)]
    return "\n\n".join(part for part in parts if part)


def _python_signature(problem: Problem) -> str:
    if problem.entry_point == "ModelNew":
        return (
            "In Python and Triton: `ModelNew` with the constructor and `forward` of `Model`; parameters of the same "
            "names get the reference's values."
        )
    taken = ", ".join(a.name for a in problem.arguments if a.role in {Role.INPUT, Role.SCALAR})
    given = ", ".join(a.name for a in problem.arguments if a.role is Role.OUTPUT)
    return f"In Python and Triton: `custom_kernel({taken})` returns `{given}`; sizes are read off the shapes."


def _argument(argument: Argument) -> str:
    if argument.role is Role.SIZE:
        return "size, 64-bit integer"
    if argument.role is Role.SCALAR:
        return f"scalar, {argument.dtype}"
    shape = " × ".join(argument.shape) or "one element"
    same = ", the same in every call, read-only" if argument.role is Role.PARAMETER else ""
    return f"{argument.role.value}, {argument.dtype}, {shape}, {argument.order}-major{same}"


def _cases(problem: Problem, target: str) -> str:
    timed = problem.cases(target, Purpose.BENCHMARK)
    tested = problem.cases(target, Purpose.TEST)
    lines = [f"- timed: {_case(case, problem)}" for case in timed] + [
        f"- tested: {_case(c, problem)}" for c in tested
    ]
    return "### Cases\n\n" + "\n".join(
        [*lines, "- further shapes and input distributions are tested and not shown"]
    )


def _case(case: Case, problem: Problem) -> str:
    fixed = {a.name: problem.size_of(a, case) for a in problem.arguments if a.role is Role.SIZE}
    sizes = ", ".join(f"{name}={value}" for name, value in {**case.sizes, **fixed}.items())
    work = problem.work(case)
    if work is None:
        return sizes
    counted = (
        f"{sum(work.flops.values()):.3g} FLOP{' in the reference' if work.traced else ''}, " if work.flops else ""
    )
    return f"{sizes} ({counted}{work.bytes:.3g} bytes at least)"


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
             "occupancy", "matrix_instructions", "code_bytes")  # fmt: skip
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
