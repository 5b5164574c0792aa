"""Report a campaign: JSON, CSV, Markdown and HTML, and the results formats of KernelBench and kernelbench.com."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from functools import cache
from statistics import fmean
from typing import Any

from django.template.loader import render_to_string
from django.utils import timezone

from optimizer.models import Campaign, Evaluation, EvaluationStatus
from optimizer.queries.campaign_overview import Overview, kept, overview_of
from optimizer.queries.campaign_results import CellResult, Costs, Results, results_of
from optimizer.queries.campaign_spending import settling_device_s, spent_by_configuration
from optimizer.queries.intervals import Interval
from optimizer.reports.markdown import plain
from optimizer.reports.runs_export import csv_cell

_NUMBERED = re.compile(r"(?:.*/)?level(\d+)/(\d+)_[^/]*$")
COLUMNS = (
    "problem", "configuration", "seed", "outcome", "why", "run", "kernel", "baseline", "speedup", "low", "high",
    "time_us", "roofline_share", "evaluations", "tokens", "usd", "device_s",
)  # fmt: skip


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
        "limits": {
            kind: None if (limit := getattr(campaign, f"limit_{kind}")) is None else float(limit)
            for kind in ("usd", "tokens", "device_minutes")
        },
        "configurations": [
            {
                "name": one.name,
                "strategy": one.strategy,
                "settings": one.settings,
                "providers": one.providers,
                "budget": one.budget,
                "halted": one.halted_why,
                "spent": asdict(spent[one.pk]) if one.pk in spent else None,
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
        "blocks": [(baseline, overview.summaries, overview.differences) for baseline, overview in overviews],
        "costs": overviews[0][1].costs,
        "unresolved": results.unresolved(),
    }


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
    for baseline, summaries, differences in context["blocks"]:
        lines += ["", f"## Against {plain(baseline)}", ""]
        lines += _table(
            ("Configuration", "Problems", "Success", "fast_1", "fast_2", "Geometric mean", "Failures as 1", "Roofline"),
            [
                (plain(one.configuration.name), one.problems, percent(one.success), percent(one.fast[1.0]),
                 percent(one.fast[2.0]), times(one.geomean), times(one.geomean_all), percent(one.roofline))
                for one in summaries
            ],
        )  # fmt: skip
        lines += ["", *(f"- {plain(one.first)} and {plain(one.second)}, {one.problems} problems: {plain(one.words)}"
                        for one in differences)]  # fmt: skip
    lines += ["", "## Cost to reach a speedup", ""]
    lines += _table(
        ("Configuration", "Speedup", "Reached", "Evaluations", "Tokens", "US dollars", "Device seconds"),
        [
            (plain(one.configuration.name), f"{one.goal:g}×", percent(one.reached),
             *(amount(one.median[kind]) for kind in ("evaluations", "tokens", "usd", "device_s")))
            for one in context["costs"]
        ],
    )  # fmt: skip
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


METHOD = """Only settled figures count: at the end all winners of a problem were timed together in cold processes.
A run that was stopped early, by a limit or a person, is listed and counts in no share, mean or comparison.
Shares have Wilson's 95 % interval with problems as trials; means are bootstrapped over problems.
Comparisons are paired over problems and corrected by Holm; a run without a correct kernel counts as 1 there."""


def kernelbench_report(campaign: Campaign) -> str:
    """Return KernelBench's `eval_results.json` and baseline timings, as one JSON object by file path.

    `FILE.json` of each entry is what `scripts/benchmark_eval_analysis.py` reads; a seed is a sample. Times are in
    milliseconds, as there. Problems without a KernelBench number are left out and listed.
    """
    results = results_of(campaign)
    built = _built_runs(results)
    files: dict[str, Any] = {}
    left_out: set[str] = set()
    baselines: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for cell in sorted(results.cells, key=lambda cell: cell.seed):
        place = _NUMBERED.match(cell.name)
        if place is None:
            left_out.add(cell.name)
            continue
        if not _has_score(cell, campaign.baselines[0]):
            continue
        level, problem = place.groups()
        name = next(one.name for one in results.configurations if one.pk == cell.configuration)
        path = f"runs/{_file_name(name)}-level{level}/eval_results.json"
        samples = files.setdefault(path, {}).setdefault(problem, [])
        samples.append(_sample(cell, results.seeds.index(cell.seed), campaign.baselines[0], cell.run in built))
        for baseline, timed in cell.timed.items():
            if timed.is_correct and timed.time_us and timed.speedup:
                file_name = cell.name.rpartition("/")[2] + ".py"
                baselines[baseline, f"level{level}", file_name].append(timed.time_us * timed.speedup / 1e3)
    for (baseline, level, file_name), times_ms in baselines.items():
        timing = files.setdefault(f"results/timing/{campaign.target.key}/{baseline}.json", {}).setdefault(level, {})
        timing[file_name] = {"mean": fmean(times_ms), "min": min(times_ms), "max": max(times_ms),
                             "num_trials": len(times_ms), "hardware": campaign.target.title}  # fmt: skip
    return json.dumps({"files": files, "left_out": sorted(left_out)}, indent=2)


def kernelbench_com_report(campaign: Campaign) -> str:
    """Return a leaderboard in kernelbench.com's form (`schema_version` 2); of several seeds the first one counts.

    `peak_fraction` is the share of the roofline as measured on the device, which is at least theirs of the data
    sheet's peak; the notes say so.
    """
    results = results_of(campaign)
    baseline, seed = campaign.baselines[0], min(results.seeds, default=0)
    names = {problem: name.rpartition("/")[2] for problem, name in results.problems}
    models = []
    for one in results.configurations:
        cells = [cell for cell in results.cells if cell.configuration == one.pk and cell.seed == seed]
        entries = {
            names[cell.problem]: _entry(campaign, cell, baseline) for cell in cells if _has_score(cell, baseline)
        }
        models.append({
            "label": one.name, "harness": one.strategy, "model": _model(one.providers), "effort": "",
            "results": entries, "valid_pass_count": sum(entry["correct"] for entry in entries.values()),
            "total_problems": len(names),
        })  # fmt: skip
    return json.dumps({
        "schema_version": 2,
        "environment": "kernel-scientist",
        "environment_notes": "peak_fraction is the share of the measured roofline, not of the data sheet's peak.",
        "hardware": {"name": campaign.target.title, "sm": campaign.target.key},
        "problems": sorted(names.values()),
        "models": models,
        "per_problem": {name: _ranking(name, models) for name in sorted(names.values())},
    }, indent=2)  # fmt: skip


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


def _table(heading: tuple[str, ...], rows: list[tuple[Any, ...]]) -> list[str]:
    lines = [heading, tuple("---" for _ in heading), *rows]
    return [f"| {' | '.join(map(str, line))} |" for line in lines]


def _built_runs(results: Results) -> set[int]:
    """Return the runs of which at least one kernel of their own compiled."""
    unbuilt = [EvaluationStatus.BUILD_FAILED, EvaluationStatus.REJECTED, EvaluationStatus.INFRA_ERROR]
    own = Evaluation.objects.filter(first_of__run__campaign_cell__campaign=results.campaign, state="done")
    tried = own.exclude(kernel__author_kind="seed").exclude(status__in=unbuilt)
    return set(tried.order_by().values_list("kernel__run_id", flat=True).distinct())


def _sample(cell: CellResult, number: int, baseline: str, built: bool) -> dict[str, Any]:
    timed = cell.timed.get(baseline)
    correct = timed is not None and timed.is_correct
    runtime = timed.time_us / 1e3 if timed is not None and correct and timed.time_us else -1.0
    return {
        "sample_id": number,
        "compiled": bool(built or correct),
        "correctness": correct,
        "metadata": {"run": cell.run, "seed": cell.seed, "outcome": cell.outcome},
        "runtime": runtime,
        "runtime_stats": {"mean": runtime} if correct else {},
    }


def _entry(campaign: Campaign, cell: CellResult, baseline: str) -> dict[str, Any]:
    timed = cell.timed.get(baseline)
    correct = timed is not None and timed.is_correct
    return {
        "run_id": f"campaign{campaign.pk}_run{cell.run}",
        "correct": correct,
        "has_solution": bool(cell.timed),
        "peak_fraction": timed.roofline_share if timed is not None and correct else None,
        "elapsed_seconds": round(cell.device_s),
    }


def _has_score(cell: CellResult, baseline: str) -> bool:
    return math.isfinite(cell.score(baseline))


def _ranking(name: str, models: list[dict[str, Any]]) -> dict[str, Any]:
    entries = [(model["label"], model["results"][name]) for model in models if name in model["results"]]
    valid = sorted(
        ((label, entry) for label, entry in entries if entry["peak_fraction"] is not None),
        key=lambda pair: -pair[1]["peak_fraction"],
    )
    return {
        "n_models": len(entries),
        "n_valid_passes": sum(entry["correct"] for _, entry in entries),
        "best_peak_fraction": valid[0][1]["peak_fraction"] if valid else None,
        "best_model": valid[0][0] if valid else None,
        "ranked_valid_passes": [
            {"model": label, "peak_fraction": entry["peak_fraction"]} for label, entry in valid
        ],
    }


def _model(providers: Mapping[str, Any]) -> str:
    choice = providers.get("default")
    return str(choice.get("model") or choice.get("provider") or "") if isinstance(choice, Mapping) else ""


def _file_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip("._") or "configuration"
