"""Run the user's program in a process of its own, with and without kernels, and write what was seen to a file.

`python -m runners.endtoend.child ORDER ANSWER`: both are files, because the program owns the standard streams.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from runners.endtoend.parity import error_of, tensors_in
from runners.program import script_runner

WITHOUT, WITH = "without", "with"


def main() -> int:
    """Obey the order and return 0."""
    order = json.loads(Path(sys.argv[1]).read_text())
    sys.path[:0] = order["paths"]
    packages = [importlib.import_module(name) for name in order["packages"]]
    answer = _calls(order, packages) if order["function"] else _script(order, packages)
    answer["counts"] = {package.__name__: package.counts() for package in packages}
    answer["device"] = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    Path(sys.argv[2]).write_text(json.dumps(answer))
    return 0


def _script(order: dict[str, Any], packages: list[Any]) -> dict[str, Any]:
    """Run the whole script once, on the side that the order names, and save the tensors among its globals."""
    if order["side"] == WITH:
        for package in packages:
            package.activate()
    run = script_runner(Path(order["script"]), order["arguments"])
    torch.manual_seed(0)
    seconds, scope = _timed(run)
    named = {name: value for name, value in (scope or {}).items() if not name.startswith("__")}
    torch.save(tensors_in(named, "globals"), order["tensors"])
    return {"seconds": seconds}


def _calls(order: dict[str, Any], packages: list[Any]) -> dict[str, Any]:
    """Call one function of the script in turns, so that both sides share a process and its moods."""
    for package in packages:
        package.activate()
    # Imported while the kernels are active: functions that it imports by name are then the replaced ones.
    run = script_runner(Path(order["script"]), order["arguments"], order["function"])
    sides = {WITHOUT: False, WITH: True}
    seen = {side: _result(run, packages, active) for side, active in (*sides.items(), ("again", False))}
    error, where = error_of(seen[WITH], seen[WITHOUT])
    own, _ = error_of(seen["again"], seen[WITHOUT])
    for active in (False, True):
        _on(packages, active=active, run=run)
    units = [_unit(run, packages, pattern) for _ in range(order["rounds"]) for pattern in ("ABBA", "AAAA")]
    return {
        "units": units[::2], "own_units": units[1::2], "error": error, "where": where, "own_error": own,
        "results": len(seen[WITHOUT]),
    }  # fmt: skip


def _unit(run: Callable[[], Any], packages: list[Any], pattern: str) -> list[float]:
    """Return the seconds of four calls: A without kernels, B with them. A linear drift cancels in the order."""
    return [_on(packages, active=letter == "B", run=run) for letter in pattern]


def _on(packages: list[Any], *, active: bool, run: Callable[[], Any]) -> float:
    for package in packages if active else reversed(packages):
        package.activate() if active else package.deactivate()
    return _timed(run)[0]


def _result(run: Callable[[], Any], packages: list[Any], active: bool) -> dict[str, torch.Tensor]:
    for package in packages if active else reversed(packages):
        package.activate() if active else package.deactivate()
    torch.manual_seed(0)
    return tensors_in(run())


def _timed(run: Callable[[], Any]) -> tuple[float, Any]:
    _wait()
    started = time.perf_counter()
    result = run()
    _wait()
    return time.perf_counter() - started, result


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


if __name__ == "__main__":
    sys.exit(main())
