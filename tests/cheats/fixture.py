"""Read cheats from files: a header of comments that says what must become of them, and a kernel with a switch.

    // cheat 2: a thread finishes later
    // expect: incorrect
    // says: nan

`expect` lists the statuses that count as caught, `says` what the reasons must contain, `flag` a flag that must be set,
`effort` and `policy` (the problem's torch policy) how to run it. CHEAT=0 turns the same file into its honest twin,
unless `twin` names another file. A prelude per language brings a slow honest kernel for the folder `problem`; `problem`
in the header names a KernelBench file of the folder `tolerances` instead, for which the file brings its own.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from runners.commands.reading import language_of
from runners.job import Effort, JobSpec, Limits, ProblemBundle, Source
from runners.problems import load

HERE = Path(__file__).parent
PLACES = {"cpu": ("cpu", "both"), "gpu": ("gpu", "both")}
LIMITS = Limits(call_s=5.0, total_s=120.0, memory_bytes=1 << 30, log_bytes=16 << 10)
_HEADER = re.compile(r"^(?://|#) (cheat \d+|honest|\w+): (.*)$")


@dataclass(frozen=True)
class Fixture:
    """Hold one file. `row` is its row in docs/cheats.md, 0 for a twin with a file of its own."""

    path: Path
    row: int
    title: str
    expected: tuple[str, ...] = ()
    says: str = ""
    flag: str = ""
    effort: Effort = Effort.QUICK
    policy: str = "allow"
    twin: str = ""
    problem: str = ""

    @property
    def name(self) -> str:
        """Return the name of the file, such as `02_thread_later.cpp`."""
        return self.path.name

    def spec(self, target: str, *, cheating: bool) -> JobSpec:
        """Return the job that evaluates the cheat beside its twin, or the twin alone."""
        twin = self._source(self.path.with_name(self.twin) if self.twin else self.path, cheating=False)
        job = JobSpec(self.name, _problem(self.policy, self.problem), target, twin, limits=LIMITS)
        if not cheating:
            return dataclasses.replace(job, effort=Effort.QUICK)
        return dataclasses.replace(
            job, candidate=self._source(self.path, cheating=True), parent=twin, effort=self.effort
        )

    def _source(self, path: Path, *, cheating: bool) -> Source:
        text = path.read_text()
        prelude = (HERE / "preludes" / ("plain.py" if self.problem else f"prelude{path.suffix}")).read_text()
        return Source(language_of(path, text), prelude + text, {"CHEAT": int(cheating)})


def fixtures(place: str) -> Iterator[Fixture]:
    """Return all cheats of a place (`cpu` or `gpu`), by row."""
    paths = [path for folder in PLACES[place] for path in (HERE / "fixtures" / folder).iterdir() if path.is_file()]
    for path in sorted(paths, key=lambda path: (path.name, path.parent.name)):
        fixture = read(path)
        if fixture.row:
            yield fixture


def read(path: Path) -> Fixture:
    """Parse the header. Raises ValueError naming the line."""
    values: dict[str, str] = {}
    row = 0
    for line in path.read_text().splitlines():
        match = _HEADER.match(line)
        if match is None:
            break
        key, _, number = match[1].partition(" ")
        row = int(number or row)
        values[key] = match[2]
    if not {"cheat", "honest"} & set(values) or (row and "expect" not in values):
        raise ValueError(f"{path}: the header names no cheat or what to expect")
    return Fixture(
        path,
        row,
        values.get("cheat") or values["honest"],
        tuple(values.get("expect", "").split()),
        values.get("says", ""),
        values.get("flag", ""),
        Effort(values.get("effort", "quick")),
        values.get("policy", "allow"),
        values.get("twin", ""),
        values.get("problem", ""),
    )


@cache
def _problem(policy: str, file: str) -> ProblemBundle:
    if file:
        return load(HERE / "tolerances" / f"{file}.py")
    bundle = load(HERE / "problem")
    declared = bundle.files[bundle.entry].replace('torch_policy = "allow"', f'torch_policy = "{policy}"')
    return dataclasses.replace(bundle, files={**bundle.files, bundle.entry: declared})
