"""Write a campaign's results in the forms of other benchmarks: KernelBench's and kernelbench.com's."""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from optimizer.models import Campaign, Evaluation, EvaluationPurpose, EvaluationState, EvaluationStatus
from optimizer.queries.campaign_results import CellResult, Results, results_of

_NUMBERED = re.compile(r"(?:.*/)?level(\d+)/(\d+)_[^/]*$")


def kernelbench_report(campaign: Campaign) -> str:
    """Return KernelBench's `eval_results.json` and baseline timings, as one JSON object by file path.

    `FILE.json` of each entry is what `scripts/benchmark_eval_analysis.py` reads; a seed is a sample. Times are in
    milliseconds, as there. Problems without a KernelBench number are left out and listed, and so is by baseline what
    has a result and no baseline time.
    """
    results = results_of(campaign)
    places = {cell.name: place.groups() for cell in results.cells if (place := _NUMBERED.match(cell.name))}
    counted = [cell for cell in results.cells if cell.name in places and _counts(cell, campaign.baselines[0])]
    # The analysis pairs results and baselines by their positions, so both are in the order of the numbers.
    counted.sort(key=lambda cell: (*map(int, places[cell.name]), cell.seed))
    files: dict[str, Any] = _result_files(results, counted, places)
    without: dict[str, list[str]] = {}
    for baseline, times_ms in _baseline_times_ms(results, counted).items():
        timing: dict[str, dict[str, Any]] = {}
        for problem, name in {cell.problem: cell.name for cell in counted}.items():
            if problem not in times_ms:
                without.setdefault(baseline, []).append(name)
                continue
            level, file_name = f"level{places[name][0]}", name.rpartition("/")[2] + ".py"
            timing.setdefault(level, {})[file_name] = _timing(campaign, times_ms[problem])
        if timing:
            files[f"results/timing/{campaign.target.key}/{baseline}.json"] = timing
    left_out = sorted({cell.name for cell in results.cells} - places.keys())
    return json.dumps({"files": files, "left_out": left_out, "without_baseline": without}, indent=2)


def kernelbench_com_report(campaign: Campaign) -> str:
    """Return a leaderboard in kernelbench.com's form (`schema_version` 2); of several seeds the first one counts.

    `peak_fraction` is the share of the roofline as measured on the device, which is at least theirs of the data
    sheet's peak; the notes say so. `elapsed_seconds` are those of the run's clock, pauses excepted.
    """
    results = results_of(campaign)
    baseline, seed = campaign.baselines[0], min(results.seeds, default=0)
    names = {problem: name.rpartition("/")[2] for problem, name in results.problems}
    elapsed_s: dict[int | None, float] = dict(campaign.cells.order_by().values_list("run", "run__active_s"))
    models = []
    for one in results.configurations:
        cells = [cell for cell in results.cells if cell.configuration == one.pk and cell.seed == seed]
        entries = {
            names[cell.problem]: _entry(campaign, cell, baseline, elapsed_s.get(cell.run, 0.0))
            for cell in cells
            if _counts(cell, baseline)
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


def _counts(cell: CellResult, baseline: str) -> bool:
    return math.isfinite(cell.score(baseline))


def _result_files(
    results: Results, counted: Sequence[CellResult], places: Mapping[str, tuple[str, ...]]
) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Return the samples by path and problem number."""
    built, baseline = _built_runs(results), results.campaign.baselines[0]
    names = {one.pk: _file_name(one.name) for one in results.configurations}
    files: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for cell in counted:
        level, problem = places[cell.name]
        file = files.setdefault(f"runs/{names[cell.configuration]}-level{level}/eval_results.json", {})
        sample = _sample(cell, results.seeds.index(cell.seed), baseline, cell.run in built)
        file.setdefault(problem, []).append(sample)
    return files


def _baseline_times_ms(results: Results, counted: Sequence[CellResult]) -> dict[str, dict[int, list[float]]]:
    """Return by baseline and problem what the baseline took beside each settled winner.

    The analysis drops a problem without a baseline time, and its failure with it. Where no winner was settled, the
    times beside correct kernels of the search count: the reference, at least, is one, beside the first baseline.
    """
    campaign = results.campaign
    found: dict[str, dict[int, list[float]]] = {baseline: defaultdict(list) for baseline in campaign.baselines}
    for cell in counted:
        for baseline, timed in cell.timed.items():
            if timed.is_correct and timed.time_us and timed.speedup:
                found[baseline][cell.problem].append(timed.time_us * timed.speedup / 1e3)
    first = found[campaign.baselines[0]]
    missing = {cell.problem for cell in counted} - first.keys()
    for problem, time_us, speedup in _searched(campaign, missing):
        first[problem].append(time_us * speedup / 1e3)
    return found


def _searched(campaign: Campaign, problems: Collection[int]) -> Iterable[tuple[int, float, float]]:
    """Return problem, time and speedup of the search's evaluations of correct kernels, seeds included."""
    rows = Evaluation.objects.filter(
        kernel__run__campaign_cell__campaign=campaign,
        kernel__run__campaign_cell__problem_version__in=problems,
        purpose=EvaluationPurpose.SEARCH,
        state=EvaluationState.DONE,
        status=EvaluationStatus.CORRECT,
        unconfirmed=False,
        time_us__isnull=False,
        speedup__isnull=False,
        copied_from__isnull=True,
    )
    timed = rows.order_by("pk").values_list("kernel__run__campaign_cell__problem_version", "time_us", "speedup")
    return [(problem, time_us, speedup) for problem, time_us, speedup in timed if time_us and speedup]


def _timing(campaign: Campaign, times_ms: Sequence[float]) -> dict[str, Any]:
    return {
        "mean": fmean(times_ms),
        "min": min(times_ms),
        "max": max(times_ms),
        "num_trials": len(times_ms),
        "hardware": campaign.target.title,
    }


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


def _entry(campaign: Campaign, cell: CellResult, baseline: str, elapsed_s: float) -> dict[str, Any]:
    timed = cell.timed.get(baseline)
    correct = timed is not None and timed.is_correct
    return {
        "run_id": f"campaign{campaign.pk}_run{cell.run}",
        "correct": correct,
        "has_solution": bool(cell.timed),
        "peak_fraction": timed.roofline_share if timed is not None and correct else None,
        "elapsed_seconds": round(elapsed_s),
    }


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
