"""Render a run as Markdown for a pull request or wiki. Text from outside is escaped or fenced."""

from __future__ import annotations

import re
from collections.abc import Sequence

from optimizer.models import EvaluationStatus, Kernel
from optimizer.queries.timing import CaseRow, notes_of, roofline_text
from optimizer.reports.facts import Facts
from optimizer.search import strategy_title
from optimizer.text.case_names import given_words
from optimizer.text.markdown import fenced
from runners.job import CaseResult

_SPECIAL = re.compile(
    r"[\\`*{}\[\]#|<>~&@]"  # links and images need a bracket, so their other signs may stay
    r"|(?<![^\W_])_|_(?![^\W_])"  # an underscore within a word is none
    r"|:(?=//|[\w+-]+:)|(?<=\bwww)\."  # GitHub's links without brackets, and its emoji
    r"|^[-+=](?!\d)|^(?P<number>\d+)(?P<stop>[.)])(?=\s|$)",  # lists and rules at the beginning
    re.IGNORECASE,
)


def markdown_report(facts: Facts) -> str:
    """Return the whole document."""
    parts = [_head(facts), _outcome(facts), _best(facts), _settled(facts), _fastest(facts), _cases(facts),
             _line(facts), _hypotheses(facts), _settings(facts)]  # fmt: skip
    return "\n\n".join(part for part in parts if part) + "\n"


def plain(text: object) -> str:
    """Return one line of text in which nothing is markup."""
    return _SPECIAL.sub(_escaped, " ".join(str(text).split()))


def _escaped(found: re.Match[str]) -> str:
    number, stop = found["number"], found["stop"]
    return f"{number}\\{stop}" if number else f"\\{found[0]}"


def _head(facts: Facts) -> str:
    run = facts.run
    told = f"{plain(run.problem_version.problem.title)} v{run.problem_version.number} on {plain(run.target.title)}"
    return f"# {plain(run)}\n\n{told}. Generated {facts.made_at}; run {run.pk}."


def _outcome(facts: Facts) -> str:
    run = facts.run
    rows = [("Strategy", strategy_title(run.strategy)), ("State", run.state_choice.label), ("Reason", run.stop_reason),
            ("Evaluations", run.spent_evaluations), ("Active minutes", f"{run.elapsed_s() / 60:.1f}"),
            ("Model tokens", run.spent_tokens), ("US dollars", f"{run.spent_usd:.4f}"), ("Seed", run.seed)]  # fmt: skip
    rows += [("Optimised", run.get_objective_display())] if facts.has_call or run.objective == "call" else []
    rows += [("Noise", facts.noise)] if facts.noise else []
    rows += [("Warm start", ", ".join(facts.warm_start))] if facts.warm_start else []
    rows += [(f"of these {status.label.lower()}", count) for status, count in facts.summary.outcomes.by_status]
    rows += [("Seeds and others", others)] if (others := facts.summary.outcomes.others) else []
    return _table(("", ""), [(name, str(value)) for name, value in rows])


def _best(facts: Facts) -> str:
    run, best = facts.run, facts.best
    if best is None:
        return "## Best kernel\n\nNo correct kernel was timed."
    interval = (
        f" (95 % interval {run.best_speedup_low:.2f} to {run.best_speedup_high:.2f})"
        if run.best_speedup_low and run.best_speedup_high
        else ""
    )
    speed = (
        f"{run.best_speedup:.2f}×{interval} against {plain(run.baseline)}" if run.best_speedup else "not compared"
    )
    return (
        f"## Best kernel: \\#{best.number} {plain(best.title)}\n\n{speed}.\n\n{fenced(best.source, best.language)}"
    )


def _fastest(facts: Facts) -> str:
    if not facts.fastest:
        return ""
    has_roofline = any(k.evaluation.roofline_share for k in facts.fastest)
    head = ("Kernel", "Idea", *_time_heads(facts), "Speedup", "Verdict", *(["Roofline"] if has_roofline else []))
    rows = [
        (f"#{k.number}", k.title, *_times(k, facts), _speed(k), k.evaluation.verdict,
         *([roofline_text(k.evaluation.roofline_share) or "–"] if has_roofline else []))
        for k in facts.fastest
    ]  # fmt: skip
    return "## Fastest kernels\n\n" + _table(head, rows)


def _time_heads(facts: Facts) -> tuple[str, ...]:
    return ("Device, µs", "Call, µs") if facts.has_call else ("Time, µs",)


def _times(kernel: Kernel, facts: Facts) -> tuple[str, ...]:
    device = _us(kernel.evaluation.time_us)
    return (device, _us(kernel.evaluation.call_us)) if facts.has_call else (device,)


def _settled(facts: Facts) -> str:
    """Say which kernels were measured again in cold processes, against what, and how that came out."""
    if not facts.settled:
        return ""
    rows = [
        (f"#{one.kernel.number}", _figures(one.speedup, one.speedup_low, one.speedup_high),
         f"#{one.opponent.number}" if one.opponent else "–",
         _figures(one.parent_speedup, one.parent_speedup_low, one.parent_speedup_high),
         EvaluationStatus(one.status).label if one.status != EvaluationStatus.CORRECT else one.verdict or "–")
        for one in facts.settled
    ]  # fmt: skip
    head = ("Kernel", "Against the baseline", "Opponent", "Against it", "Verdict")
    return "## Settled in cold processes\n\n" + _table(head, rows)


def _figures(median: float | None, low: float | None, high: float | None) -> str:
    return f"{median:.2f}× ({low or 0:.2f}–{high or 0:.2f})" if median else "–"


def _cases(facts: Facts) -> str:
    timed = [row for row in facts.rows if row.case.speedup]
    if not timed:
        return ""
    if not facts.has_call:
        cells = [
            (given_words(one.name), _us(one.candidate_us), _us(one.baseline_us), _interval(one))
            for one in _bare(timed)
        ]
        return "## Best kernel by case\n\n" + _table(("Case", "Kernel, µs", "Baseline, µs", "Speedup"), cells)
    head = ("Case", "Device, µs", "Call, µs", "Speedup", "Speedup (call)", "Roofline", "Judged by")
    rows = [
        (given_words(one.name), _us(one.candidate_us), _us(one.candidate_call_us), _interval(one),
         _figures(one.call_speedup, one.call_speedup_low, one.call_speedup_high), row.roofline_text or "–",
         "call time" if row.by_call else "device time")
        for row, one in zip(timed, _bare(timed), strict=True)
    ]  # fmt: skip
    notes = "".join(f"\n\n{plain(note.label.capitalize())}: {plain(note.text)}" for note in notes_of(timed))
    return "## Best kernel by case\n\n" + _table(head, rows) + notes


def _bare(rows: Sequence[CaseRow]) -> list[CaseResult]:
    return [row.case for row in rows]


def _us(time_us: float | None) -> str:
    return f"{time_us:.2f}" if time_us else "–"


def _interval(case: CaseResult) -> str:
    return f"{case.speedup or 0:.2f}× ({case.speedup_low or 0:.2f}–{case.speedup_high or 0:.2f})"


def _line(facts: Facts) -> str:
    if len(facts.line) < 2:
        return ""
    return "## Path to the best kernel\n\n" + "\n".join(
        f"{n}. \\#{kernel.number} {plain(kernel.hypothesis or kernel.title)}"
        for n, kernel in enumerate(facts.line, 1)
    )


def _hypotheses(facts: Facts) -> str:
    rows = [(row.title, _range(row.predicted_min, row.predicted_max), f"{row.measured_gain:+.1f} %")
            for row in facts.hypotheses if row.measured_gain is not None]  # fmt: skip
    return (
        "## Hypotheses that were measured\n\n" + _table(("Hypothesis", "Predicted", "Measured"), rows)
        if rows
        else ""
    )


def _settings(facts: Facts) -> str:
    rows = [(name, str(value)) for name, value in sorted(facts.settings.items())]
    return "## Settings\n\n" + _table(("Setting", "Value"), rows) if rows else ""


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, tuple("---" for _ in head)]
    text = [" | ".join(cells) for cells in lines] + [" | ".join(plain(cell) for cell in row) for row in rows]
    return "\n".join(f"| {line} |" for line in text)


def _speed(kernel: Kernel) -> str:
    found = kernel.evaluation
    return f"{found.speedup:.2f}×" if found.speedup else "–"


def _range(low: float | None, high: float | None) -> str:
    return "–" if low is None or high is None else f"{low:+.1f} to {high:+.1f} %"
