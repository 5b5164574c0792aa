"""Measure how well the time model predicts configurations of recorded tuning spaces that it was not fitted to.

    python -m benchmarks.time_model --data DIR --features DIR [--measured 10,30,100] [--repeats 20]

Fits to so many random configurations and predicts 200 others: rank correlation, median error, and how many of the
80 % intervals hold. `rules` is the estimate of `runners.static_features.cost` alone, which is fitted to nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

from benchmarks.search import Landscape
from optimizer.search.machinery.time_model import TimeModel
from optimizer.search.space import Key
from runners.static_features.cost import descriptors

ASKED = 200


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
    found = [model.predict(known[key]) for key in chosen[count:]]
    pairs = [(one, time) for one, time in zip(found, times[count:], strict=True) if one is not None]
    logs = np.array([[one.time_us, one.low_us, one.high_us, time] for one, time in pairs])
    mean, low, high, true = np.log(logs).T
    held = float(np.mean((low <= true) & (true <= high)))
    return (
        float(spearmanr(mean, true).statistic),
        float(np.median(np.abs(mean - true))),
        held,
        float(np.median(high - low)),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures of every space that has features."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of Kernel Tuner cache files")
    parser.add_argument("--features", type=Path, required=True, help="folder of static features")
    parser.add_argument("--measured", default="10,30,100", help="configurations that a model is fitted to")
    parser.add_argument("--repeats", type=int, default=20)
    asked = parser.parse_args(arguments)
    counts = [int(one) for one in asked.measured.split(",")]
    for path in sorted([*asked.data.glob("*.json"), *asked.data.glob("*.json.gz")]):
        print(figures_of(path, asked.features, counts, asked.repeats), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
