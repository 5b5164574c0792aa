"""Measure a program with and without exported kernels, in fresh processes, and judge the difference.

With a function of the script, each process calls it in turns (A B B A) and against itself (A A A A); the ratio that
the program reaches against itself is the noise floor. A whole script runs once in each process, in the same orders.
Intervals and verdicts are those of the harness (`runners.harness.timing.statistics`).
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from runners.endtoend.child import WITH, WITHOUT
from runners.endtoend.parity import error_of
from runners.harness.timing.statistics import Interval, speedup, unit_log_ratio, verdict
from runners.job import Verdict
from runners.program import ProgramError

ROOT = Path(__file__).resolve().parents[2]
KERNEL = "kernel"


@dataclass(frozen=True)
class Order:
    """Say what to run: a script with its arguments, or a function of it, and the packages by folder or name."""

    script: Path
    packages: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    function: str = ""
    sessions: int = 3
    rounds: int = 7
    timeout_s: float = 1800.0


@dataclass(frozen=True)
class EndToEnd:
    """Report a program with kernels against the same without.

    `speedup` is the time without divided by the time with. `error` is the largest error of a result relative to its
    tolerance, 1 at the limit, and `own_error` that of the program against itself. `calls` counts what the kernels
    served, and `missed` why torch computed instead, by package. `kernels` has the content hash of each package's
    kernel, by which a site knows what the report is about; a package without provenance has none.
    """

    script: str
    function: str
    packages: list[str]
    without_s: float
    with_s: float
    speedup: float
    low: float
    high: float
    floor: float
    verdict: Verdict
    error: float
    own_error: float
    where: str
    results: int
    prints_alike: bool | None
    calls: dict[str, int]
    missed: dict[str, dict[str, int]]
    kernels: dict[str, str]
    device: str
    sessions: int
    rounds: int
    torch_version: str = field(default_factory=lambda: torch.__version__)

    @property
    def agrees(self) -> bool:
        """Return whether the results are the same, as far as the program's own are."""
        return self.error <= max(1.0, 2 * self.own_error) and self.prints_alike is not False

    @property
    def was_called(self) -> bool:
        """Return whether every package's kernel served calls."""
        return all(self.calls.values())

    def as_json(self) -> dict[str, Any]:
        """Return plain data; infinite errors become text, which JSON can hold."""
        plain = asdict(self) | {"agrees": self.agrees, "was_called": self.was_called}
        return {k: str(v) if isinstance(v, float) and not math.isfinite(v) else v for k, v in plain.items()}


def measure(order: Order) -> EndToEnd:
    """Run everything and judge. Raises ProgramError if the program or a package fails."""
    paths, names = _located(order.packages)
    with tempfile.TemporaryDirectory() as folder:
        if order.function:
            seen = [_child(order, paths, names, Path(folder), {}) for _ in range(order.sessions)]
            return _judged(order, names, seen, _parity_of_calls(seen), None)
        return _of_script(order, paths, names, Path(folder))


def _of_script(order: Order, paths: list[str], names: list[str], folder: Path) -> EndToEnd:
    """Run the script once for every letter of A B B A and A A A A, as often as there are rounds."""
    results: dict[str, Any] = {}
    printed: dict[str, str] = {}
    counts: list[Any] = []
    sessions = []
    for number in range(order.sessions):
        units: dict[str, list[list[float]]] = {"ABBA": [], "AAAA": []}
        for pattern in units:
            times = []
            for place, letter in enumerate(pattern):
                side = WITH if letter == "B" else WITHOUT
                tensors = folder / f"{number}{pattern}{place}.pt"
                seen = _child(order, paths, names, folder, {"side": side, "tensors": str(tensors)})
                role = side if side not in results else "again" if side == WITHOUT else side
                results.setdefault(role, torch.load(tensors, weights_only=True))
                printed.setdefault(role, seen["printed"])
                tensors.unlink()
                times.append(seen["seconds"])
                counts.append(seen)
            units[pattern].append(times)
        sessions.append({"units": units["ABBA"], "own_units": units["AAAA"]})
    error, where = error_of(results[WITH], results[WITHOUT])
    own, _ = error_of(results["again"], results[WITHOUT])
    # Text that differs from run to run, such as a time, says nothing about kernels.
    steady = printed["again"] == printed[WITHOUT]
    alike = printed[WITH] == printed[WITHOUT] if steady and not results[WITHOUT] else None
    parity = {"error": error, "own_error": own, "where": where, "results": len(results[WITHOUT])}
    return _judged(order, names, sessions, parity, alike, counts)


def _judged(
    order: Order,
    names: list[str],
    sessions: Sequence[dict[str, Any]],
    parity: dict[str, Any],
    alike: bool | None,
    counts: Sequence[dict[str, Any]] | None = None,
) -> EndToEnd:
    rng = random.Random(0)  # noqa: S311 - for resampling
    gained = speedup([_ratios(sessions, "units")], rng)
    own = speedup([_ratios(sessions, "own_units")], rng)
    floor = max(own.high, 1 / own.low)
    totals = {name: Counter[str]() for name in names}
    for seen in counts or sessions:
        for name in names:
            totals[name].update(seen["counts"][name])
    return EndToEnd(
        script=order.script.name, function=order.function, packages=names,
        without_s=_median(sessions, (0, 3)), with_s=_median(sessions, (1, 2)),
        speedup=gained.median, low=gained.low, high=gained.high, floor=floor, verdict=_verdict(gained, floor),
        prints_alike=alike, calls={name: totals[name].pop(KERNEL, 0) for name in names},
        missed={name: dict(totals[name]) for name in names},
        kernels=_kernels(order.packages, names), device=(counts or sessions)[0]["device"],
        sessions=order.sessions, rounds=order.rounds if order.function else 1, **parity,
    )  # fmt: skip


def _ratios(sessions: Sequence[dict[str, Any]], key: str) -> list[list[float]]:
    """Return the log-ratio of each unit: the outer calls against the inner ones."""
    return [[unit_log_ratio((u[0], u[3]), (u[1], u[2])) for u in session[key]] for session in sessions]


def _median(sessions: Sequence[dict[str, Any]], places: tuple[int, int]) -> float:
    times = sorted(unit[place] for session in sessions for unit in session["units"] for place in places)
    return float(times[len(times) // 2])


def _verdict(gained: Interval, floor: float) -> Verdict:
    return verdict(gained, floor)


def _parity_of_calls(seen: Sequence[dict[str, Any]]) -> dict[str, Any]:
    worst = max(seen, key=lambda one: float(one["error"]))
    return {key: worst[key] for key in ("error", "own_error", "where", "results")}


def _located(packages: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return folders to import from, and the packages' names. Raises ProgramError."""
    paths, names = [], []
    for package in packages:
        source = Path(package) / "src"
        found = sorted(path.parent.name for path in source.glob("*/declaration.json")) if source.is_dir() else []
        if found:
            paths.append(str(source.resolve()))
            names.append(found[0])
        elif package.isidentifier():
            names.append(package)
        else:
            raise ProgramError(
                f"{package}: neither the folder of an exported package nor the name of an installed one"
            )
    return paths, names


def _kernels(packages: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """Return the content hash of each package's kernel, by name, from the provenance that the export wrote."""
    found = {}
    for package, name in zip(packages, names, strict=True):
        folder = Path(package) / "src" / name
        if not folder.is_dir():
            spec = importlib.util.find_spec(name)
            folder = Path(spec.origin).parent if spec and spec.origin else folder
        try:
            found[name] = str(json.loads((folder / "provenance.json").read_text())["kernel"]["content_hash"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return found


def _why(done: subprocess.CompletedProcess[str]) -> str:
    """Return the last line of what the process wrote, or the signal that killed it: kernels run without a sandbox."""
    if done.returncode < 0:
        name = signal.Signals(-done.returncode).name
        return f"killed by {name}. A kernel that was not evaluated may have another signature than its problem"
    return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]


def _child(order: Order, paths: list[str], names: list[str], folder: Path, more: dict[str, str]) -> dict[str, Any]:
    """Run one process and return its answer and what it printed. Raises ProgramError."""
    told = {"script": str(order.script), "arguments": order.arguments, "function": order.function,
            "rounds": order.rounds, "paths": paths, "packages": names, **more}  # fmt: skip
    asked, answer = folder / "order.json", folder / "answer.json"
    asked.write_text(json.dumps(told))
    answer.unlink(missing_ok=True)
    inherited = os.environ.get("PYTHONPATH", "")
    env = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{inherited}" if inherited else str(ROOT)}
    command = [sys.executable, "-m", "runners.endtoend.child", str(asked), str(answer)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", env=env, timeout=order.timeout_s, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ProgramError(f"{order.script} ran longer than {order.timeout_s:g} s") from error
    if not answer.is_file():
        raise ProgramError(f"{order.script} failed: {_why(done)}")
    found: dict[str, Any] = json.loads(answer.read_text())
    return found | {"printed": done.stdout}
