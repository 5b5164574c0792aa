"""Measure how well the time model predicts configurations of recorded tuning spaces that it was not fitted to.

    python -m benchmarks.time_model --data DIR --features DIR [--measured 10,30,100] [--repeats 20] [--leave-out]

Fits to so many random configurations and predicts 200 others: rank correlation, median error, and how many of the
80 % intervals hold. `rules` is the estimate of `runners.static_features.cost` alone, which is fitted to nothing.

With `--leave-out`, files are named KERNEL-GPU, and each is predicted from the others: the same kernel on other GPUs,
and other kernels on any GPU. Scales differ between them, so the times of each file are divided by their median, that of
the predicted file by the median of ten measured configurations.

    python -m benchmarks.time_model --kernels docs/evidence/kernels-h100.jsonl.gz

predicts each measured kernel of a problem from the problem's other kernels, and then each two of them from the rest:
which of the two is faster is what the product asks. (Predicted from the others alone, kernels of a model that has
learnt nothing are ranked in reverse: the slowest one gets the median of the faster ones.)
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

from benchmarks.search import Landscape
from optimizer.search.machinery.time_model import Floats, Prediction, TimeModel
from optimizer.search.space import Key
from runners.static_features.cost import descriptors, typical_programs

ASKED = 200
POOLED = 300  # configurations of all other files together
ALIKE = 0.05  # logarithm of the ratio of two times below which neither kernel is called faster
SCALED_BY = 10  # measured configurations that tell the scale of a left-out file


@dataclass(frozen=True)
class Recorded:
    """Hold the configurations of a file whose machine code is known, with their logarithmic times over the median."""

    name: str
    figures: Sequence[dict[str, float]]
    logs: Floats

    @classmethod
    def read(cls, path: Path, features: Path) -> Recorded:
        landscape = Landscape.read(path)
        known = landscape.features(features)
        pairs = [(known[key], time) for key in known if (time := landscape.times[key]) is not None]
        logs = np.log([time for _, time in pairs])
        return cls(landscape.name, [figures for figures, _ in pairs], logs - np.median(logs))

    @property
    def kernel(self) -> str:
        return self.name.rpartition("-")[0]


def left_out(files: Sequence[Recorded], repeats: int) -> Iterator[str]:
    """Yield a line for each file and each way of leaving it out."""
    for one in files:
        others = {
            "same kernel, other GPUs": [file for file in files if file.kernel == one.kernel and file is not one],
            "other kernels": [file for file in files if file.kernel != one.kernel],
        }
        rules = spearmanr([descriptors(figures)["cost"] for figures in one.figures], one.logs).statistic
        for title, pool in others.items():
            if not pool:
                continue
            found = np.array([_from_others(one, pool, seed) for seed in range(repeats)])
            rank, error, held, width = np.median(found, axis=0)
            yield (
                f"{one.name} from {title} ({', '.join(file.name for file in pool)}): rules {rules:.2f}, rank "
                f"correlation {rank:.2f}, median error ×{np.exp(error):.2f}, 80 % intervals hold {held:.0%}, median "
                f"width ×{np.exp(width):.1f}"
            )


def _from_others(one: Recorded, pool: Sequence[Recorded], seed: int) -> tuple[float, float, float, float]:
    """Return the figures of `_judged` for a file that is predicted from others."""
    rng, share = np.random.default_rng(seed), POOLED // len(pool)
    chosen = [(file, at) for file in pool for at in rng.permutation(len(file.logs))[:share]]
    times = np.exp([file.logs[at] for file, at in chosen])
    model = TimeModel.fit([file.figures[at] for file, at in chosen], times.tolist())
    asked = rng.permutation(len(one.logs))[: ASKED + SCALED_BY]
    scale = np.median(one.logs[asked[:SCALED_BY]])
    if model is None:
        raise SystemExit("too few configurations with features")
    return _judged(model, [one.figures[at] for at in asked[SCALED_BY:]], one.logs[asked[SCALED_BY:]] - scale)


def figures_of(path: Path, features: Path, counts: Sequence[int], repeats: int) -> str:
    """Return one line for each number of measured configurations."""
    landscape = Landscape.read(path)
    known = landscape.features(features)
    keys = [key for key in known if landscape.times[key] is not None]
    logs = np.log([landscape.times[key] or np.nan for key in keys])
    cost = [descriptors(known[key])["cost"] for key in keys]
    rules = spearmanr(cost, logs).statistic
    lines = [f"{landscape.name}: {len(keys)} with features; rank correlation of the rules alone {rules:.2f}"]
    for count in counts:
        found = np.array([_tried(landscape, known, keys, count, seed) for seed in range(repeats)])
        rank, error, _, width = np.median(found, axis=0)
        lines.append(f"  {count:4} measured: rank correlation {rank:.2f}, median error ×{np.exp(error):.2f}, "
                     f"80 % intervals hold {np.mean(found[:, 2]):.0%}, median width ×{np.exp(width):.1f}")  # fmt: skip
    return "\n".join(lines)


def _tried(
    landscape: Landscape, known: dict[Key, dict[str, float]], keys: Sequence[Key], count: int, seed: int
) -> tuple[float, float, float, float]:
    """Return rank correlation, median absolute log error, share of intervals that hold, and their log width."""
    order = np.random.default_rng(seed).permutation(len(keys))[: count + ASKED]
    chosen = [keys[at] for at in order]
    times = [1000 * (landscape.times[key] or np.nan) for key in chosen]
    model = TimeModel.fit([known[key] for key in chosen[:count]], times[:count])
    if model is None:
        raise SystemExit("too few measured configurations")
    return _judged(model, [known[key] for key in chosen[count:]], np.log(times[count:]))


def _judged(
    model: TimeModel, figures: Sequence[dict[str, float]], true: Floats
) -> tuple[float, float, float, float]:
    """Return rank correlation, median absolute log error, share of intervals that hold, and their log width."""
    return _scored([one for one in map(model.predict, figures) if one is not None], true)


def _scored(found: Sequence[Prediction], true: Floats) -> tuple[float, float, float, float]:
    """Return the same figures of predictions beside the logarithms of the true times."""
    mean, low, high = np.log([[one.time_us, one.low_us, one.high_us] for one in found]).T
    held = float(np.mean((low <= true) & (true <= high)))
    return (
        float(spearmanr(mean, true).statistic),
        float(np.median(np.abs(mean - true))),
        held,
        float(np.median(high - low)),
    )


def one_by_one(path: Path) -> Iterator[str]:
    """Yield a line for each problem of a file of measured kernels (JSON lines, gzip): each from the others."""
    problems: dict[str, list[tuple[dict[str, float], float]]] = defaultdict(list)
    with gzip.open(path, "rt") as lines:
        for row in map(json.loads, lines):
            if row["figures"] and row["time_us"]:  # a kernel that did not run has no time
                problems[row["problem"]].append((row["figures"], row["time_us"]))
    for name, kernels in sorted(problems.items()):
        models = [_fitted(kernels[:at] + kernels[at + 1 :]) for at in range(len(kernels))]
        if None in models:
            yield f"{name}: {len(kernels)} kernels, too few to predict one from the others"
            continue
        true = np.log([time for _, time in kernels])
        found = [model.predict(figures) for model, (figures, _) in zip(models, kernels, strict=True) if model]
        rank, error, held, width = _scored([one for one in found if one], true)
        programs = typical_programs([figures for figures, _ in kernels])
        rules = [descriptors(figures, programs)["cost"] for figures, _ in kernels]
        yield (
            f"{name}: {len(kernels)} kernels, {np.exp(true.min()):.0f} to {np.exp(true.max()):.0f} µs; "
            f"rank correlation {rank:.2f} (rules alone {spearmanr(rules, true).statistic:.2f}), "
            f"median error {np.expm1(error):.0%}, 80 % intervals hold {held:.0%}, median width ×{np.exp(width):.2f}"
        )
        if (pairs := in_pairs(kernels)) is not None:
            yield f"  the faster of two: {pairs[0]:.0%} right (rules alone {pairs[1]:.0%}) of {pairs[2]} pairs"


def _fitted(kernels: Sequence[tuple[dict[str, float], float]]) -> TimeModel | None:
    return TimeModel.fit([figures for figures, _ in kernels], [time for _, time in kernels])


def in_pairs(kernels: Sequence[tuple[dict[str, float], float]]) -> tuple[float, float, int] | None:
    """Return how often model and rules name the faster of two kernels, and the number of pairs whose times differ.

    The model is fitted to the other kernels; None where these are too few.
    """
    programs = typical_programs([figures for figures, _ in kernels])
    right: list[tuple[float, float]] = []
    for pair in itertools.combinations(kernels, 2):
        if abs(np.log(pair[0][1] / pair[1][1])) < ALIKE:
            continue
        model = _fitted([one for one in kernels if one not in pair])
        if model is None:
            return None
        predicted = [found.time_us if (found := model.predict(figures)) else 0.0 for figures, _ in pair]
        costs = [descriptors(figures, programs)["cost"] for figures, _ in pair]
        times = [time for _, time in pair]
        right.append((_agreement(predicted, times), _agreement(costs, times)))
    by_model, by_rules = np.mean(right, axis=0)
    return float(by_model), float(by_rules), len(right)


def _agreement(said: Sequence[float], times: Sequence[float]) -> float:
    """Return 1 if the kernel that is said to be faster is, a half if neither is said to be."""
    return 0.5 if said[0] == said[1] else float((said[0] < said[1]) == (times[0] < times[1]))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures of every space that has features."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, help="folder of Kernel Tuner cache files")
    parser.add_argument("--features", type=Path, help="folder of static features")
    parser.add_argument("--kernels", type=Path, help="file of measured kernels, each predicted from the others")
    parser.add_argument("--measured", default="10,30,100", help="configurations that a model is fitted to")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--leave-out", action="store_true", help="predict each file from the others")
    asked = parser.parse_args(arguments)
    if asked.kernels:
        for line in one_by_one(asked.kernels):
            print(line)
        return 0
    if not (asked.data and asked.features):
        parser.error("name --data and --features, or --kernels")
    counts = [int(one) for one in asked.measured.split(",")]
    paths = sorted([*asked.data.glob("*.json"), *asked.data.glob("*.json.gz")])
    if asked.leave_out:
        known = [path for path in paths if (asked.features / f"{path.name.partition('.')[0]}.json").exists()]
        for line in left_out([Recorded.read(path, asked.features) for path in known], asked.repeats):
            print(line, flush=True)
        return 0
    for path in paths:
        print(figures_of(path, asked.features, counts, asked.repeats), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
