"""The table of cheats: `python -m tests.cheats.table [--target cpu] [--markdown FILE] [NAME…]`.

Evaluates every cheat and its honest twin. Exit code 1 where a cheat is `correct` and `faster`, ends otherwise than
its file says, or an honest twin is refused.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from runners.doctor import local_targets
from runners.harness import evaluate
from runners.harness.timing.environment import HARNESS_VERSION
from runners.job import JobResult, Status, Verdict
from runners.targets import TARGETS
from tests.cheats.fixture import Fixture, fixtures

CANARY = "KERNELSCI_CANARY_SECRET"
PICKLE_MARK = Path("/tmp/kernelsci-pickle-was-opened")


@dataclass(frozen=True)
class Row:
    """Hold what became of a cheat and of its twin."""

    fixture: Fixture
    cheat: JobResult
    twin: JobResult
    seconds: float

    @property
    def faults(self) -> list[str]:
        """Return what is not as it must be; nothing where the cheat is caught and the twin accepted."""
        return [*cheat_faults(self.fixture, self.cheat), *twin_faults(self.twin)]


def cheat_faults(fixture: Fixture, result: JobResult) -> list[str]:
    """Return the reasons why this outcome does not count as caught."""
    faults = []
    if won(result):
        faults.append("accepted as faster")
    if result.status.value not in fixture.expected:
        faults.append(f"expected {' or '.join(fixture.expected)}, got {_short(result)}")
    said = " ".join(result.reasons)
    if result.status is not Status.CORRECT and fixture.says not in said:
        faults.append(f"the reasons do not say {fixture.says!r}: {said[:200]}")
    if fixture.flag and fixture.flag not in result.flags:
        faults.append(f"no flag {fixture.flag}")
    if PICKLE_MARK.exists():
        faults.append("a pickle was opened")
    return faults


def twin_faults(result: JobResult) -> list[str]:
    """Return the reasons why this outcome does not count as an honest kernel accepted."""
    return [] if result.status is Status.CORRECT else [f"the honest twin was refused: {_short(result)}"]


def won(result: JobResult) -> bool:
    """Return whether a cheat got what it is after: accepted, faster than the baseline, and faster than its honest twin,
    which is timed in the same sessions so that load on the machine cannot make a winner."""
    twin = result.versus_parent
    better = result.verdict is Verdict.FASTER and (twin is None or twin.verdict is Verdict.FASTER)
    return result.status is Status.CORRECT and better


def run(fixture: Fixture, target: str) -> Row:
    """Evaluate a cheat and its twin."""
    started = time.monotonic()
    cheat = evaluate(fixture.spec(target, cheating=True))
    twin = evaluate(fixture.spec(target, cheating=False))
    return Row(fixture, cheat, twin, time.monotonic() - started)


def _short(result: JobResult) -> str:
    """Return one cell of the table."""
    verdict = f", {result.verdict.value}" if result.verdict else ""
    speedup = f" {result.speedup.median:.2f}×" if result.speedup else ""
    if result.status is Status.CORRECT and result.versus_parent:
        speedup += f" ({result.versus_parent.median:.2f}× its twin)"
    reason = f": {result.reasons[0].splitlines()[0][:90]}" if result.reasons else ""
    flags = f" [{', '.join(result.flags)}]" if result.flags else ""
    return f"{result.status.value}{verdict}{speedup}{reason}{flags}"


def markdown(rows: Iterable[Row]) -> str:
    """Return the table as a page."""
    lines = ["| row | cheat | file | cheat's verdict | honest twin | as it must be |", "|---|---|---|---|---|---|"]
    for row in rows:
        cells = [
            row.fixture.row,
            row.fixture.title,
            row.fixture.name,
            _short(row.cheat),
            _short(row.twin),
            "; ".join(row.faults) or "yes",
        ]
        lines.append("| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def summary(rows: list[Row]) -> str:
    """Return the last line."""
    accepted = sum(won(row.cheat) for row in rows)
    refused = sum(bool(twin_faults(row.twin)) for row in rows)
    faulty = sum(bool(row.faults) for row in rows)
    return (
        f"{len(rows)} cheats: {accepted} accepted as faster, {refused} honest twins refused, "
        f"{faulty} not as they must be; harness {HARNESS_VERSION}"
    )


def main() -> int:
    """Run, print, and perhaps write a page."""
    parser = argparse.ArgumentParser(prog="python -m tests.cheats.table", description="Evaluate every cheat.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="only cheats whose file name contains this")
    parser.add_argument(
        "--target", default="cpu", choices=["gpu", *sorted(TARGETS)], help="gpu: the one that is here"
    )
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="also write the table as a page")
    arguments = parser.parse_args()
    os.environ.setdefault(CANARY, "canary")
    target = _local_gpu() if arguments.target == "gpu" else arguments.target
    place = "cpu" if target == "cpu" else "gpu"
    chosen = [f for f in fixtures(place) if not arguments.names or any(n in f.name for n in arguments.names)]
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="kernelsci-cheats-") as state:
        os.environ.setdefault("KERNELSCI_STATE", state)
        for fixture in chosen:
            rows.append(_printed(run(fixture, target)))
            if arguments.markdown:  # after every row, so that an interrupted run leaves a page
                arguments.markdown.write_text(_page(rows))
    print(summary(rows))
    return 1 if any(row.faults for row in rows) else 0


def _local_gpu() -> str:
    found = [name for name in local_targets() if name != "cpu"]
    if not found:
        raise SystemExit("no GPU is here")
    return found[0]


def _printed(row: Row) -> Row:
    mark = "FAULT" if row.faults else "ok"
    print(f"{mark:5} {row.fixture.row:2} {row.fixture.name:38} {row.seconds:5.1f} s  {_short(row.cheat)}")
    print(f"{'':48} twin: {_short(row.twin)}")
    for fault in row.faults:
        print(f"{'':48} → {fault}")
    sys.stdout.flush()
    return row


def _page(rows: list[Row]) -> str:
    found = next((row.twin.environment for row in rows if row.twin.environment), {})
    facts = "\n".join(f"- {key}: {value}" for key, value in found.items() if key != "load_average")
    title = f"# Cheats on {found.get('device', 'an unknown device')}"
    return f"{title}\n\n{summary(rows)}\n\n{facts}\n\n{markdown(rows)}\n"


if __name__ == "__main__":
    sys.exit(main())
