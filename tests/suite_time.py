"""Show where the time of a test run went: `make suite-time`, or `python -m tests.suite_time [FILE] [--slowest N]`.

Reads the report (JUnit's XML) that `make test` leaves in var/tests.xml. A part is a folder of tests, cheats apart.
Seconds add up over the processes that run tests at the same time; processor seconds are those of the test's process
and of the children that it waited for, and leave out servers and what they start.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

REPORT = Path("var/tests.xml")
PARTS = {"runners.test_cheats": "cheats"}
"""Modules that are parts of their own."""


@dataclass(frozen=True)
class Test:
    """Hold one test of a report. `module` is below `tests`, with dots."""

    module: str
    name: str
    seconds: float
    processor_s: float

    @property
    def part(self) -> str:
        """Return the part of the suite that it belongs to."""
        return PARTS.get(self.module, self.module.partition(".")[0])


def read(path: Path) -> tuple[list[Test], float]:
    """Return the tests of a report and the seconds that the run took by the clock. Raises OSError, ParseError."""
    root = ElementTree.parse(path).getroot()  # noqa: S314 - our own pytest wrote it
    tests = [_test(case) for case in root.iter("testcase")]
    return tests, sum(float(suite.get("time", 0)) for suite in root.iter("testsuite"))


def _test(case: ElementTree.Element) -> Test:
    noted = {one.get("name"): one.get("value", "0") for one in case.iter("property")}
    module = case.get("classname", "").removeprefix("tests.")
    return Test(module, case.get("name", ""), float(case.get("time", 0)), float(noted.get("processor_s", 0)))


def table(tests: Iterable[Test], by: str) -> list[str]:
    """Return one line for each part (`by` is `part`) or file (`module`), the longest first."""
    groups: dict[str, list[Test]] = defaultdict(list)
    for test in tests:
        groups[getattr(test, by)].append(test)
    rows = [(sum(t.seconds for t in many), sum(t.processor_s for t in many), name, len(many))
            for name, many in groups.items()]  # fmt: skip
    return [
        f"{seconds:8.1f} s  {cpu:8.1f} s  {count:5}  {name}" for seconds, cpu, name, count in sorted(rows)[::-1]
    ]


def report(tests: list[Test], wall_s: float, slowest: int) -> str:
    """Return the tables as text."""
    head = f"{'seconds':>10}  {'processor':>10}  tests"
    ends = sorted(tests, key=lambda test: -test.seconds)[:slowest]
    return "\n".join([
        f"{len(tests)} tests in {wall_s:.0f} s by the clock; {sum(t.seconds for t in tests):.0f} s added up",
        "", f"{head}  part", *table(tests, "part"),
        "", f"{head}  file", *table(tests, "module")[:slowest],
        "", "The slowest tests", *(f"{t.seconds:8.1f} s  {t.processor_s:8.1f} s  {t.module}: {t.name}" for t in ends),
    ])  # fmt: skip


def main() -> int:
    """Print the tables; 1 where there is no report."""
    parser = argparse.ArgumentParser(prog="python -m tests.suite_time", description="Where a test run's time went.")
    parser.add_argument("file", nargs="?", type=Path, default=REPORT, help="default %(default)s")
    parser.add_argument("--slowest", type=int, default=15, metavar="N", help="how many files and tests to name")
    arguments = parser.parse_args()
    if not arguments.file.exists():
        print(f"{arguments.file} is not there: `make test` writes it", file=sys.stderr)
        return 1
    print(report(*read(arguments.file), arguments.slowest))
    return 0


if __name__ == "__main__":
    sys.exit(main())
