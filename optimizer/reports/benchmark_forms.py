"""Write a campaign's results in the forms of other benchmarks: KernelBench's and kernelbench.com's."""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Mapping
from statistics import fmean
from typing import Any

from optimizer.models import Campaign, Evaluation, EvaluationStatus
from optimizer.queries.campaign_results import CellResult, Results, results_of

_NUMBERED = re.compile(r"(?:.*/)?level(\d+)/(\d+)_[^/]*$")


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
        if not math.isfinite(cell.score(campaign.baselines[0])):
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
        entries = {names[cell.problem]: _entry(campaign, cell, baseline) for cell in cells if cell.is_settled}
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
