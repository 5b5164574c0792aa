"""A run as Markdown, for a pull request or a wiki. Text of others cannot become markup: it is escaped or fenced."""

from __future__ import annotations

import re
from collections.abc import Sequence

from optimizer.models import Kernel
from optimizer.reports.facts import Facts
from runners.job import CaseResult

_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+\-.!|<>~&@:/])")
BASICS = ("strategy", "baseline", "seed", "state")


def markdown_report(facts: Facts) -> str:
    """The whole document."""
    parts = [_head(facts), _outcome(facts), _best(facts), _fastest(facts), _cases(facts), _line(facts),
             _hypotheses(facts), _settings(facts)]  # fmt: skip
    return "\n\n".join(part for part in parts if part) + "\n"


def plain(text: object) -> str:
    """One line of text in which nothing is markup."""
    return _SPECIAL.sub(r"\\\1", " ".join(str(text).split()))


def fenced(text: str, language: str = "") -> str:
    """Text as a code block: the fence is longer than any in the text."""
    fence = "`" * max(3, 1 + max((len(found) for found in re.findall(r"`+", text)), default=0))
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def _head(facts: Facts) -> str:
    run = facts.run
    told = f"{plain(run.problem_version.problem.title)} v{run.problem_version.number} on {plain(run.target.title)}"
    return f"# {plain(run)}\n\n{told}. Report made {facts.made_at}; run {run.pk}."


def _outcome(facts: Facts) -> str:
    run = facts.run
    rows = [("Strategy", run.strategy), ("State", run.state_choice.label), ("Reason", run.stop_reason),
            ("Evaluations", run.spent_evaluations), ("Active minutes", f"{run.elapsed_s() / 60:.1f}"),
            ("Model tokens", run.spent_tokens), ("US dollars", f"{run.spent_usd:.4f}"), ("Seed", run.seed)]  # fmt: skip
    rows += [(status.label, count) for status, count in facts.summary.outcomes]
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
    rows = [
        (f"#{k.number}", k.title, f"{k.evaluation.time_us:.2f}", _speed(k), k.evaluation.verdict)
        for k in facts.fastest
    ]
    return "## Fastest kernels\n\n" + _table(("Kernel", "Idea", "Time, µs", "Speedup", "Verdict"), rows)


def _cases(facts: Facts) -> str:
    timed = [case for case in (facts.result.cases if facts.result else []) if case.speedup]
    if not timed:
        return ""
    rows = [(case.name, _us(case.candidate_us), _us(case.baseline_us), _interval(case)) for case in timed]
    return "## Best kernel by case\n\n" + _table(("Case", "Kernel, µs", "Baseline, µs", "Speedup"), rows)


def _us(time_us: float | None) -> str:
    return f"{time_us:.2f}" if time_us else "–"


def _interval(case: CaseResult) -> str:
    return f"{case.speedup or 0:.2f}× ({case.speedup_low or 0:.2f}–{case.speedup_high or 0:.2f})"


def _line(facts: Facts) -> str:
    if len(facts.line) < 2:
        return ""
    return "## How it came about\n\n" + "\n".join(
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
