"""Report a campaign: JSON, CSV, Markdown and HTML. `FORMS` also lists the formats of others, see `benchmark_forms`."""

from __future__ import annotations

import csv
import io
import json
import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from typing import Any, NamedTuple

from django.template.loader import render_to_string
from django.utils import timezone

from optimizer.models import Campaign, CampaignConfiguration
from optimizer.queries.budgets import LABELS
from optimizer.queries.campaign_overview import Overview, bands_against, kept, overview_of
from optimizer.queries.campaign_results import COSTS, THRESHOLDS, CellResult, Costs, Results, Summary, results_of
from optimizer.queries.campaign_spending import Spent, settling_device_s, spent_by_configuration, total
from optimizer.queries.intervals import Interval
from optimizer.queries.suite_statistics import Band, Difference
from optimizer.reports.benchmark_forms import kernelbench_com_report, kernelbench_report
from optimizer.reports.markdown import plain
from optimizer.reports.runs_export import csv_cell

SPENT = ("usd", "tokens", "device_s", "evaluations", "active", "cells", "closed", "skipped")
COLUMNS = (
    "problem", "configuration", "seed", "outcome", "why", "run", "kernel", "baseline", "speedup", "low", "high",
    "time_us", "roofline_share", "evaluations", "tokens", "usd", "device_s",
)  # fmt: skip
# The best so far is shown at so many numbers of evaluations at most.
BAND_ROWS = 8


class Table(NamedTuple):
    """Hold a table of a report as texts. The first column names its rows."""

    heading: Sequence[str]
    rows: Sequence[Sequence[str]]


def json_report(campaign: Campaign) -> str:
    """Return everything as JSON: settings, statistics, comparisons, cost, and every run on a line of its own."""
    results = cache(lambda: results_of(campaign))  # read only where the campaign has not ended
    told = _data(campaign, results)
    text = json.dumps(told, indent=2, ensure_ascii=False, default=str, allow_nan=False).removesuffix("\n}")
    lines = zlib.decompress(kept(campaign, "rows.json", lambda: _packed_rows(campaign, results()))).decode()
    return f'{text},\n  "runs": [\n{lines}\n  ]\n}}'


def _data(campaign: Campaign, results: Callable[[], Results]) -> dict[str, Any]:
    """Return all but the runs as plain data. Infinite costs are None with `reached` beside them."""
    overviews = {baseline: overview_of(campaign, baseline, results) for baseline in campaign.baselines}
    first = overviews[campaign.baselines[0]]
    return {
        **head(campaign, first),
        "baselines": {baseline: _against(overview) for baseline, overview in overviews.items()},
        "cost_to_reach": [_cost(one) for one in first.costs],
        "best_so_far": {
            kind: {name: asdict(band) for name, band in bands.items()}
            for kind in COSTS
            if (bands := bands_against(campaign, kind, results))
        },
    }


def _packed_rows(campaign: Campaign, results: Results) -> bytes:
    """Return the lines of all runs, compressed for the cache: thousands of them are a megabyte."""
    # Python's writer of indented JSON takes three times as long, which thousands of runs would show.
    compact = json.JSONEncoder(ensure_ascii=False, default=str, allow_nan=False)
    rows = _rows(results)
    return zlib.compress(",\n".join(f"    {compact.encode(row)}" for row in rows).encode(), level=1)


def head(campaign: Campaign, overview: Overview) -> dict[str, Any]:
    """Return what was run, on what, under which limits, and what it took."""
    spent = spent_by_configuration(campaign)
    suite = campaign.suite
    return {
        "campaign": campaign.pk,
        "title": campaign.title,
        "state": campaign.state,
        "target": campaign.target.key,
        "objective": campaign.objective,
        "suite": {
            name: getattr(suite, name) for name in ("slug", "number", "title", "origin", "version", "licence")
        },
        "problems": len(overview.problems),
        "problems_settled": overview.settled_problems,
        "unusable": campaign.unusable,
        "seeds": overview.seeds,
        "order_seed": campaign.order_seed,
        "limits": {kind: None if limit is None else float(limit) for kind, limit in campaign.limits.items()},
        "configurations": [
            {
                "name": one.name,
                "strategy": one.strategy,
                "settings": one.settings,
                "providers": one.providers,
                "budget": one.budget,
                "halted": one.halted_why,
                "spent": {name: getattr(spent[one.pk], name) for name in SPENT} if one.pk in spent else None,
            }
            for one in overview.configurations
        ],
        "settling_device_s": settling_device_s(campaign),
        "created_at": campaign.created_at.isoformat(),
        "finished_at": campaign.finished_at and campaign.finished_at.isoformat(),
        "reported_at": timezone.now().isoformat(),
    }


def csv_report(campaign: Campaign) -> str:
    """Return one line for each run and baseline."""
    results = results_of(campaign)
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    for row in _rows(results):
        writer.writerow([csv_cell(row[name]) for name in COLUMNS])
    return text.getvalue()


def html_report(campaign: Campaign) -> str:
    """Return the report as one HTML file that needs no other file."""
    return render_to_string("reports/campaign.html", report_context(campaign))


def report_context(campaign: Campaign) -> dict[str, Any]:
    """Return what the HTML and Markdown reports show."""
    results = results_of(campaign)
    overviews = [(baseline, overview_of(campaign, baseline, lambda: results)) for baseline in campaign.baselines]
    return {
        "campaign": campaign,
        "results": results,
        "head": head(campaign, overviews[0][1]),
        "blocks": [
            (baseline, overview.summaries, overview.differences, fast_table(overview.summaries))
            for baseline, overview in overviews
        ],
        "bands": band_table(bands_against(campaign, "evaluations", lambda: results)),
        "costs": overviews[0][1].costs,
        "spending": spending_table(campaign, results.configurations),
        "unresolved": results.unresolved(),
        "bands_note": BANDS,
    }


def fast_table(summaries: Sequence[Summary]) -> Table:
    """Return fast_p at every threshold, with a column for each configuration."""
    return Table(
        ("fast_p", *(one.configuration.name for one in summaries)),
        [(f"fast_{p:g}", *(percent(one.fast[p]) for one in summaries)) for p in THRESHOLDS],
    )


def band_table(bands: Mapping[str, Band]) -> Table:
    """Return the best-so-far bands at some numbers of evaluations, with a column for each configuration."""
    at = next(iter(bands.values())).at if bands else ()
    last = len(at) - 1
    # Nothing has been found at the first position, which is 0.
    picked = sorted({round(last * part / BAND_ROWS) for part in range(1, BAND_ROWS + 1)} - {0}) if at else []
    return Table(
        ("Evaluations", *bands),
        [
            (figure(at[n]), *(times(Interval(one.middle[n], one.low[n], one.high[n])) for one in bands.values()))
            for n in picked
        ],
    )


def spending_table(campaign: Campaign, configurations: Sequence[CampaignConfiguration]) -> Table:
    """Return the budget of each run and what all runs spent by configuration, then together, then the settling."""
    spent = spent_by_configuration(campaign)
    limits = _limits(campaign.limits)
    nothing = Spent()
    rows = [
        (one.name, _limits(one.budget) or "none", *_spending(spent.get(one.pk, nothing))) for one in configurations
    ]
    return Table(
        ("Configuration", "Budget of each run", "Runs", "Evaluations", "Tokens", "US dollars", "Device seconds"),
        [
            *rows,
            ("All runs", f"{limits} together" if limits else "none", *_spending(total(spent))),
            ("Settling", "–", "–", "–", "–", "–", figure(settling_device_s(campaign))),
        ],
    )


def _limits(limits: Mapping[str, Any]) -> str:
    given = [(limits[kind], label) for kind, label in LABELS.items() if limits.get(kind) is not None]
    return ", ".join(f"{figure(float(limit))} {label}" for limit, label in given)


def _spending(spent: Spent) -> tuple[str, ...]:
    figures = (spent.evaluations, spent.tokens, spent.usd, spent.device_s)
    return (f"{spent.done} of {spent.cells}", *map(figure, figures))


def markdown_report(campaign: Campaign) -> str:
    """Return the report for a pull request or wiki."""
    context = report_context(campaign)
    told, results = context["head"], context["results"]
    suite = campaign.suite
    lines = [
        f"# {plain(campaign.title)}",
        "",
        f"{plain(suite.title)} v{suite.number} on {plain(campaign.target.title)}: {told['problems']} problems × "
        f"{len(results.configurations)} configurations × {len(results.seeds)} seeds; {told['problems_settled']} "
        f"problems settled. Campaign {campaign.pk}, {campaign.state_choice.label.lower()}.",
    ]
    if suite.licence:
        origin = f", read from {plain(f'{suite.origin} {suite.version}'.strip())}" if suite.origin else ""
        lines += ["", f"Problems: {plain(suite.licence)}{origin}."]
    for baseline, summaries, differences, fast in context["blocks"]:
        lines += ["", f"## Against {plain(baseline)}", ""]
        lines += _table(
            ("Configuration", "Problems", "Success", "fast_1", "fast_2", "Geometric mean", "Failures as 1", "Roofline"),
            [
                (plain(one.configuration.name), one.problems, percent(one.success), percent(one.fast[1.0]),
                 percent(one.fast[2.0]), times(one.geomean), times(one.geomean_all), percent(one.roofline))
                for one in summaries
            ],
        )  # fmt: skip
        lines += ["", *map(_finding, differences), "", *_plain_table(fast)]
    if context["bands"].rows:
        lines += ["", "## Best so far", "", *_plain_table(context["bands"]), "", BANDS]
    lines += ["", "## Cost to reach a speedup", ""]
    lines += _table(
        ("Configuration", "Speedup", "Reached", "Evaluations", "Tokens", "US dollars", "Device seconds"),
        [
            (plain(one.configuration.name), f"{one.goal:g}×", percent(one.reached),
             *(amount(one.median[kind]) for kind in ("evaluations", "tokens", "usd", "device_s")))
            for one in context["costs"]
        ],
    )  # fmt: skip
    lines += ["", "## Budgets and spending", "", *_plain_table(context["spending"])]
    if campaign.unusable or context["unresolved"]:
        lines += ["", "## Without a result", ""]
        lines += [f"- {plain(one['name'])}: {plain(one['complaint'])}" for one in campaign.unusable]
        names = {one.pk: one.name for one in results.configurations}
        lines += [
            f"- {plain(cell.name)}, {plain(names[cell.configuration])}, seed {cell.seed}: "
            f"{plain(cell.why or cell.outcome)}"
            for cell in context["unresolved"]
        ]
    return "\n".join(lines) + "\n\n" + "\n".join(f"{line}  " for line in METHOD.splitlines()) + "\n"


BANDS = (
    "Geometric mean over problems as measured during the search, with the range of the seeds; a run without a correct "
    "kernel counts as 1."
)
METHOD = """Only settled figures count: at the end all winners of a problem were timed together in cold processes.
A run that was stopped early, by a limit or a person, is listed and counts in no share, mean or comparison.
Shares have Wilson's 95 % interval with problems as trials; means are bootstrapped over problems.
Comparisons are paired over problems and corrected by Holm; a run without a correct kernel counts as 1 there."""


FORMS: dict[str, tuple[str, str, Callable[[Campaign], str]]] = {
    "html": ("text/html", "html", html_report),
    "md": ("text/markdown", "md", markdown_report),
    "csv": ("text/csv", "csv", csv_report),
    "json": ("application/json", "json", json_report),
    "kernelbench": ("application/json", "kernelbench.json", kernelbench_report),
    "kernelbench-com": ("application/json", "leaderboard.json", kernelbench_com_report),
}


def percent(interval: Interval | None) -> str:
    """Return a share in per cent with its interval: `67 % (44–84)`."""
    if interval is None:
        return "–"
    return f"{100 * interval.value:.0f} % ({100 * interval.low:.0f}–{100 * interval.high:.0f})"


def times(interval: Interval | None) -> str:
    """Return a factor with its interval: `1.52× (1.40–1.66)`."""
    return "–" if interval is None else f"{interval.value:.2f}× ({interval.low:.2f}–{interval.high:.2f})"


def amount(interval: Interval | None) -> str:
    """Return a median cost with its interval; without an end where less than half of the runs got there."""
    if interval is None:
        return "–"
    if math.isinf(interval.value):
        return "not reached by half"
    return f"{figure(interval.value)} ({figure(interval.low)}–{figure(interval.high)})"


def figure(value: float) -> str:
    """Return a number with three digits, or whole with thousands apart, or ∞."""
    if math.isinf(value):
        return "∞"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _against(overview: Overview) -> dict[str, Any]:
    return {
        "configurations": [
            {
                "name": one.configuration.name,
                "problems": one.problems,
                "success": _plain(one.success),
                "fast_p": {f"{threshold:g}": _plain(found) for threshold, found in one.fast.items()},
                "geometric_mean": _plain(one.geomean),
                "geometric_mean_failures_as_1": _plain(one.geomean_all),
                "roofline_share": _plain(one.roofline),
            }
            for one in overview.summaries
        ],
        "comparisons": [
            {
                "first": one.first,
                "second": one.second,
                "problems": one.problems,
                "ratio": _plain(one.ratio),
                "p": one.p,
                "p_holm": one.adjusted,
                "shows": one.shows or None,
                "words": one.words,
            }
            for one in overview.differences
        ],
    }


def _plain(interval: Interval | None) -> dict[str, float | None] | None:
    if interval is None:
        return None
    return {name: _finite(value) for name, value in asdict(interval).items()}


def _finite(value: float) -> float | None:
    # JSON has no infinity; a missing number says the same beside the share that reached the goal.
    return value if math.isfinite(value) else None


def _cost(one: Costs) -> dict[str, Any]:
    return {
        "configuration": one.configuration.name,
        "speedup": one.goal,
        "reached": _plain(one.reached),
        "median": {kind: _plain(found) for kind, found in one.median.items()},
    }


def _rows(results: Results) -> Iterator[dict[str, Any]]:
    """Yield a row for each run and baseline."""
    names = {one.pk: one.name for one in results.configurations}
    for cell in results.cells:
        for baseline in results.campaign.baselines:
            yield _row(cell, names[cell.configuration], baseline)


def _row(cell: CellResult, configuration: str, baseline: str) -> dict[str, Any]:
    timed = cell.timed.get(baseline) if cell.is_settled else None
    return {
        "problem": cell.name,
        "configuration": configuration,
        "seed": cell.seed,
        "outcome": cell.outcome,
        "why": cell.why,
        "run": cell.run,
        "kernel": timed and timed.kernel,
        "baseline": baseline,
        "speedup": timed and timed.speedup,
        "low": timed and timed.low,
        "high": timed and timed.high,
        "time_us": timed and timed.time_us,
        "roofline_share": timed and timed.roofline_share,
        "evaluations": cell.evaluations,
        "tokens": cell.tokens,
        "usd": cell.usd,
        "device_s": round(cell.device_s, 3),
    }


def _finding(one: Difference) -> str:
    p = "" if one.adjusted is None else f" p = {one.adjusted:.3f} after Holm's correction."
    return f"- {plain(one.first)} and {plain(one.second)}, {one.problems} problems: {plain(one.words)}{p}"


def _plain_table(table: Table) -> list[str]:
    """Return a table whose texts are of others, as Markdown."""
    return _table(tuple(map(plain, table.heading)), [tuple(map(plain, row)) for row in table.rows])


def _table(heading: tuple[str, ...], rows: list[tuple[Any, ...]]) -> list[str]:
    lines = [heading, tuple("---" for _ in heading), *rows]
    return [f"| {' | '.join(map(str, line))} |" for line in lines]
