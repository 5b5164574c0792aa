"""Count how many configurations samplers try before they are near the optimum of a recorded tuning space.

    python -m benchmarks.search --data DIR [--seeds 30] [--samplers gp,random,…] [--features DIR] [--quick]
        [--files GLOB] [--cache DIR] [--until PERCENT] [--limit N]

DIR holds Kernel Tuner cache files (`*.json`, `*.json.gz`) in which every valid configuration was measured; the public
benchmark hub of auto-tuning (github.com/AutoTuningAssociation/benchmark_hub) has such files. Nothing runs on a GPU: a
suggestion is looked up. Failed configurations count as evaluations, repeated ones are free, and a sampler is stopped
at its limit (`_LIMITS`), after which a figure reads `>limit`. Samplers named `kt:…` are Kernel Tuner's strategies in
its simulation mode, where `kernel_tuner` can be imported (`pip install kernel_tuner==1.5.0`). Samplers named
`…+static` see all static features in `--features`, which `python -m benchmarks.landscape_features` compiles, and those
named `…+ahead` only the ones of the configurations that `tune` would have compiled until then.

Samplers named `…+from=GPU` start from 100 configurations of the same kernel that `gp` measured on that GPU before:
files are named KERNEL-GPU. Those searches, three for a file, are kept in `--cache`. `--until 5` stops a search that is
within 5 % of the optimum.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import importlib.util
import io
import itertools
import json
import multiprocessing
import os
import random
import sys
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from optimizer.search.machinery import ahead
from optimizer.search.machinery.ahead import Compiled, propose, shortlist
from optimizer.search.samplers import SAMPLERS, Trial
from optimizer.search.samplers.base import RelatedTask
from optimizer.search.space import Config, Key, Space
from runners.job import AheadBuild

PERCENT = (10, 5, 1)
CURVE = (1, 5, 10, 15, 20, 25)
KERNEL_TUNER = (
    "genetic_algorithm",
    "simulated_annealing",
    "greedy_ils",
    "mls",
    "pso",
    "diff_evo",
    "dual_annealing",
    "firefly_algorithm",
)
_LIMITS = {"optuna_gp": 60, "tpe": 200, "random": 600}
_LIMIT = 300
_QUICK = ("gp", "random", "tpe")
_WORKERS = 2
_PREFIX = "kt:"
_STATIC = "+static"
_AHEAD = "+ahead"
_FROM = "+from="
SOURCE_COUNT = 100  # configurations measured on the other GPU
SOURCE_SEEDS = 3  # searches there
_SOURCE_STREAM = 77  # keeps the random numbers of those searches apart from the others


@dataclass(frozen=True)
class Landscape:
    """Hold a recorded space: `times` maps every valid configuration to its time in ms, None where it failed."""

    name: str
    values: dict[str, list[Any]]
    times: dict[Key, float | None]

    @classmethod
    def read(cls, path: Path) -> Landscape:
        """Read a Kernel Tuner cache file, less the parameters that do not vary. Raises KeyError where it isn't one."""
        data = json.loads(gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes())
        values = {name: data["tune_params"][name] for name in data["tune_params_keys"]}
        values = {name: listed for name, listed in values.items() if len(listed) > 1}
        times = {tuple(record[name] for name in values): _time(record) for record in data["cache"].values()}
        return cls(path.name.removesuffix(".gz").removesuffix(".json"), values, times)

    @staticmethod
    def fixed(path: Path) -> dict[str, Any]:
        """Return the parameters of a cache file that do not vary, with their value."""
        data = json.loads(gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes())
        return {name: listed[0] for name, listed in data["tune_params"].items() if len(listed) == 1}

    def features(self, folder: Path) -> dict[Key, dict[str, float]]:
        """Return the static features of the configurations that were compiled for `folder`, by key."""
        stored = json.loads((folder / f"{self.name}.json").read_text())["features"]
        return {tuple(json.loads(key)): figures for key, figures in stored.items() if figures}

    @cached_property
    def space(self) -> Space:
        """Return the space whose valid configurations are those recorded."""
        return Space.of(self.values, [self.recorded], most_rows=max(200_000, len(self.times)))

    @property
    def gpu(self) -> str:
        """Return the name of the GPU, the end of the file's name."""
        return self.name.rpartition("-")[2]

    def trial(self, key: Key) -> Trial:
        """Return a configuration as a trial with its recorded outcome."""
        time = self.times[key]
        return Trial(dict(zip(self.values, key, strict=True)), None if time is None else time * 1000)

    def recorded(self, config: Config) -> bool:
        """Return whether this configuration is valid, that is, in the file."""
        return tuple(config[name] for name in self.values) in self.times

    @property
    def best(self) -> float:
        """Return the optimum, in ms."""
        return min(time for time in self.times.values() if time is not None)

    def within(self, percent: float) -> int:
        """Return the number of configurations at most `percent` slower than the optimum."""
        bound = self.best * (1 + percent / 100)
        return sum(time is not None and time <= bound for time in self.times.values())


@dataclass(frozen=True)
class Search:
    """Hold one seed's search: the optimum divided by the best time so far, after each unique evaluation."""

    sampler: str
    landscape: str
    reached: tuple[float, ...]

    def evaluations_to(self, percent: float) -> float:
        """Return the evaluations until within `percent` of the optimum, or infinity where the search ended before."""
        bound = 1 / (1 + percent / 100)
        return next((count for count, part in enumerate(self.reached, 1) if part >= bound), np.inf)

    def reached_after(self, count: int) -> float:
        """Return the fraction of the optimum's speed after `count` evaluations."""
        return self.reached[min(count, len(self.reached)) - 1]


@dataclass(frozen=True)
class Options:
    """Hold where features and the searches on other GPUs are, and when a search stops.

    With `until`, a search ends once it is within so many per cent; otherwise once all figures wanted are known.
    """

    features: Path | None = None
    cache: Path | None = None
    until: float | None = None
    limit: int | None = None


def limit_of(sampler: str, options: Options = Options()) -> int:
    """Return the evaluations after which a search is stopped."""
    return options.limit or _LIMITS.get(sampler, _LIMIT)


def search(path: Path, sampler: str, seed: int, options: Options = Options()) -> Search:
    """Search the landscape at `path` once."""
    landscape = _landscape(path)
    if sampler.startswith(_PREFIX):
        keys: Iterable[Key] = _tuned(path, sampler, seed, options)
    else:
        plain, _, gpu = sampler.partition(_FROM)
        sees = options.features is not None and plain.endswith((_STATIC, _AHEAD))
        known = landscape.features(options.features) if options.features and sees else {}
        related = [_source(path, gpu, seed % SOURCE_SEEDS, options.cache)] if gpu else []
        name = plain.removesuffix(_STATIC).removesuffix(_AHEAD)
        search = _ahead if plain.endswith(_AHEAD) else _sampled
        keys = search(landscape, name, seed, known, related)
    limit = limit_of(sampler, options)
    return Search(sampler, landscape.name, tuple(_progress(landscape, keys, limit, options.until)))


def _progress(landscape: Landscape, keys: Iterable[Key], limit: int, until: float | None = None) -> Iterator[float]:
    """Yield the fraction reached after each of `keys`, until the last figure wanted is known."""
    best_so_far = np.inf
    percent, least = (min(PERCENT), max(CURVE)) if until is None else (until, 1)
    for count, key in enumerate(keys, start=1):
        best_so_far = min(best_so_far, landscape.times[key] or np.inf)
        yield landscape.best / best_so_far
        near = best_so_far <= landscape.best * (1 + percent / 100)
        if count >= limit or (near and count >= least):
            return


def _source(path: Path, gpu: str, seed: int, cache: Path | None) -> RelatedTask:
    """Return what `gp` measured of the same kernel on another GPU, from `cache` where it was searched before."""
    other = _landscape(path.with_name(path.name.replace(_landscape(path).gpu, gpu)))
    file = cache / f"{other.name}-{SOURCE_COUNT}-{seed}.json" if cache else None
    if file and file.exists():
        keys = [tuple(key) for key in json.loads(file.read_text())]
    else:
        keys = list(itertools.islice(_sampled(other, "gp", seed, {}, stream=(_SOURCE_STREAM,)), SOURCE_COUNT))
        if file:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(keys))
    return RelatedTask(f"on {gpu}", tuple(other.trial(key) for key in keys))


def _sampled(
    landscape: Landscape,
    name: str,
    seed: int,
    features: Mapping[Key, Mapping[str, float]],
    related: Sequence[RelatedTask] = (),
    stream: Sequence[int] = (),
) -> Iterator[Key]:
    """Yield what our interface's sampler tries, one by one."""
    sampler, history = SAMPLERS[name](landscape.space, features=features, related=related), list[Trial]()
    while suggested := sampler.ask(history, 1, np.random.default_rng([seed, len(history), *stream])):
        key = landscape.space.key(suggested[0])
        history.append(landscape.trial(key))
        yield key


def _ahead(
    landscape: Landscape,
    name: str,
    seed: int,
    features: Mapping[Key, Mapping[str, float]],
    related: Sequence[RelatedTask] = (),
) -> Iterator[Key]:
    """Yield what `tune` tries when it compiles ahead: the features of so many configurations are known at a time."""
    space, history = landscape.space, list[Trial]()
    builds: dict[Key, AheadBuild] = {}
    while True:
        rng, compiled = np.random.default_rng([seed, len(history)]), Compiled(space, builds, frozenset(builds))
        asked = shortlist(name, compiled, history, ahead.COUNT, rng, related)
        builds |= {key: AheadBuild(figures=dict(features.get(key, {}))) for key in map(space.key, asked)}
        compiled = Compiled(space, builds, frozenset(builds))
        suggested = propose(name, compiled, history, 1, rng, related)
        if not suggested:
            return
        key = space.key(suggested[0])
        history.append(landscape.trial(key))
        yield key


def _tuned(path: Path, sampler: str, seed: int, options: Options) -> list[Key]:
    """Return what Kernel Tuner's strategy tries, each once, in its order. It draws from the global generators."""
    import kernel_tuner

    landscape = _landscape(path)
    random.seed(seed)
    np.random.seed(seed)
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results, _ = kernel_tuner.tune_kernel(
            "recorded",
            "__global__ void recorded() {}",
            1,
            [],
            landscape.values,
            restrictions=landscape.recorded,
            lang="CUDA",
            strategy=sampler.removeprefix(_PREFIX),
            strategy_options={"max_fevals": limit_of(sampler, options)},
            cache=str(_cache_file(path)),
            simulation_mode=True,
            quiet=True,
        )
    keys = [tuple(result[name] for name in landscape.values) for result in results if result]
    return [key for key in dict.fromkeys(keys) if key in landscape.times]


@lru_cache(maxsize=4)
def _cache_file(path: Path) -> Path:
    """Write the landscape as a cache file that Kernel Tuner takes: not packed, with the varying parameters alone."""
    landscape = _landscape(path)
    cache = {
        ",".join(map(str, key)): {
            **dict(zip(landscape.values, key, strict=True)),
            "time": "RuntimeFailedConfig" if time is None else time,
        }
        for key, time in landscape.times.items()
    }
    head = {"device_name": "", "kernel_name": "recorded", "problem_size": 1, "objective": "time"}
    names = {"tune_params_keys": list(landscape.values), "tune_params": landscape.values}
    file = Path(_folder().name) / f"{landscape.name}.json"
    file.write_text(json.dumps({**head, **names, "cache": cache}))
    return file


@lru_cache(maxsize=1)
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="recorded-spaces-")


@lru_cache(maxsize=4)
def _landscape(path: Path) -> Landscape:
    return Landscape.read(path)


def _time(record: dict[str, Any]) -> float | None:
    time = record.get("time")
    return float(time) if isinstance(time, int | float) and time < 1e10 else None


def all_searches(
    paths: Sequence[Path], samplers: Sequence[str], seeds: int, workers: int, options: Options = Options()
) -> Iterator[Search]:
    """Yield every search, made in workers whose linear algebra keeps to one thread each."""
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")
    tasks = [(path, sampler, seed, options) for path in paths for sampler in samplers for seed in range(seeds)]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        yield from pool.map(search, *zip(*tasks, strict=True))


def report(sampler: str, searches: Sequence[Search], options: Options = Options()) -> str:
    """Format one line: median and 90th percentile of evaluations for each of PERCENT, then the median curve."""
    cells = [_figures(searches, percent, limit_of(sampler, options)) for percent in PERCENT]
    curve = [f"{np.median([one.reached_after(count) for one in searches]):5.2f}" for count in CURVE]
    return f"{sampler:26}" + "".join(f"{cell:>14}" for cell in cells) + "   " + " ".join(curve)


def _figures(searches: Sequence[Search], percent: float, limit: int) -> str:
    counts = np.array([one.evaluations_to(percent) for one in searches])
    figures = [np.median(counts), np.quantile(counts, 0.9, method="inverted_cdf")]  # nine in ten are there by then
    return " / ".join(f"{figure:g}" if np.isfinite(figure) else f">{limit}" for figure in figures)


def heading(landscape: Landscape, seeds: int) -> str:
    """Say what the table below it is about."""
    failed = sum(time is None for time in landscape.times.values())
    within = " / ".join(str(landscape.within(percent)) for percent in reversed(PERCENT))
    columns = "".join(f"{f'within {percent} %':>14}" for percent in PERCENT)
    return (
        f"\n{landscape.name}: {len(landscape.times)} configurations, {failed} fail, {within} within 1 / 5 / 10 % "
        f"of the best; {seeds} seeds\n{'sampler (median / p90)':26}{columns}   "
        f"part of the optimum's speed after {', '.join(map(str, CURVE))} evaluations"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table for each file."""
    asked = _parser().parse_args(arguments)
    paths = sorted([*asked.data.glob(f"{asked.files}.json"), *asked.data.glob(f"{asked.files}.json.gz")])
    if not paths:
        print(f"no *.json or *.json.gz in {asked.data}", file=sys.stderr)
        return 2
    samplers, seeds = _chosen(asked), 10 if asked.quick else asked.seeds
    options, found = Options(asked.features, asked.cache, asked.until, asked.limit), list[Search]()
    for one in all_searches(paths, samplers, seeds, asked.workers, options):
        found.append(one)
        mine = [other for other in found if (other.landscape, other.sampler) == (one.landscape, one.sampler)]
        if one.sampler == samplers[0] and len(mine) == 1:
            landscape = next(_landscape(path) for path in paths if _landscape(path).name == one.landscape)
            print(heading(landscape, seeds), flush=True)
        if len(mine) == seeds:
            print(report(one.sampler, mine, options), flush=True)
    return 0


def _chosen(asked: argparse.Namespace) -> list[str]:
    """Return the samplers asked for, or all that can run."""
    if asked.samplers:
        return list(asked.samplers.split(","))
    if asked.quick:
        return list(_QUICK)
    if importlib.util.find_spec("kernel_tuner") is None:
        print("kernel_tuner is not installed: its strategies are left out (pip install kernel_tuner==1.5.0)")
        return list(SAMPLERS)
    return [*SAMPLERS, *(_PREFIX + strategy for strategy in KERNEL_TUNER)]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of Kernel Tuner cache files")
    parser.add_argument("--seeds", type=int, default=30, help="searches a sampler and file (30)")
    parser.add_argument("--features", type=Path, help="folder of static features, for samplers named `…+static`")
    parser.add_argument(
        "--cache", type=Path, help="folder in which searches on other GPUs are kept, for `…+from=GPU`"
    )
    parser.add_argument("--until", type=float, help="stop a search that is within so many per cent of the optimum")
    parser.add_argument("--limit", type=int, help="stop every search after so many evaluations")
    parser.add_argument("--files", default="*", help="files of --data to search, such as `*-MI250X` (all)")
    parser.add_argument("--samplers", help="comma-separated; `kt:NAME` is Kernel Tuner's strategy NAME")
    parser.add_argument("--workers", type=int, default=_WORKERS, help=f"searches at the same time ({_WORKERS})")
    parser.add_argument("--quick", action="store_true", help="10 seeds; gp, random and tpe")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
