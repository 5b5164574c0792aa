"""Carry out what an agent asks of this machine: the verbs behind `python -m runners mcp` and its commands.

Kernels are named by a file below the service's folder, or sent as text with a language. What comes back is plain JSON.
A verb that does nothing raises RefusedError with the reason.
"""

from __future__ import annotations

import difflib
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runners.errors import InfraFailure
from runners.harness import evaluate
from runners.job import Baseline, Effort, JobResult, JobSpec, Language, Limits, ProblemBundle, Source, TunableValue
from runners.problems import load, open_bundle, shipped
from runners.problems.base import ProblemError
from runners.problems.filters import with_signature
from runners.sandbox import SandboxError
from runners.targets import TARGETS, Target, UnknownTarget, canonical
from runners.verbs.building import build
from runners.verbs.describing import describe, hidden_cases, shipped_problems
from runners.verbs.errors import RefusedError
from runners.verbs.evaluations import Evaluate, Evaluations
from runners.verbs.knowledge import search_knowledge
from runners.verbs.sources import read_source
from runners.verbs.verdicts import build_of, verdict_of
from runners.verbs.workbook import Notes, Workbook

RECORD = "kernelsci-kernels"
# A client that waits longer than this may give up the call (many do after 60 s).
MAX_WAIT_S = 600.0
DIFF_BYTES = 256 << 10
DIFF_LINES = 4_000


@dataclass(frozen=True)
class KernelNamed:
    """Name a kernel: a file below the folder, or text with its language."""

    file: str = ""
    source: str = ""
    language: str = ""
    tunables: dict[str, TunableValue] = field(default_factory=dict)
    flags: tuple[str, ...] = ()


class Service:
    """Serve one agent. `folder` is where its files are, and nothing outside it is read."""

    def __init__(self, folder: Path, target: str = "cpu", evaluate: Evaluate = evaluate) -> None:
        self.folder = folder.resolve()
        self.target = canonical(target)
        self.evaluations = Evaluations(evaluate)
        self._problems: dict[str, ProblemBundle] = {}

    def list_problems(self) -> list[dict[str, Any]]:
        """Return the shipped problems."""
        return shipped_problems()

    def read_problem(self, problem: str, target: str = "") -> dict[str, Any]:
        """Return what a kernel has to compute, how it is judged, and the kernels that ship with the problem."""
        return describe(open_bundle(self._bundle(problem)), self._target(target))

    def search_knowledge(self, query: str, target: str = "", limit: int = 5) -> list[dict[str, Any]]:
        """Return pages on hardware and techniques, with tested snippets."""
        return search_knowledge(query, self._target(target).key, limit)

    def build(self, kernel: KernelNamed, problem: str = "", target: str = "") -> dict[str, Any]:
        """Compile a kernel for a target, which may be absent here."""
        opened = open_bundle(self._bundle(problem)) if problem else None
        try:
            return build_of(build(self._source(kernel), self._target(target), opened))
        except (InfraFailure, SandboxError) as error:
            raise RefusedError(f"This machine cannot build it: {error}") from error

    def evaluate(
        self,
        kernel: KernelNamed,
        problem: str,
        *,
        target: str = "",
        effort: str = Effort.FULL.value,
        against: KernelNamed | None = None,
        profile: bool = False,
        wait_s: float = 50.0,
    ) -> dict[str, Any]:
        """Build, check and time a kernel. Return the verdict, or what to ask again with if it takes longer."""
        spec = self._spec(kernel, problem, target, effort, against, profile)
        return self.verdict(self.evaluations.start(spec), wait_s)

    def verdict(self, evaluation: str, wait_s: float = 50.0) -> dict[str, Any]:
        """Wait for an evaluation. Return its verdict, or the stage it has reached."""
        result = self.evaluations.wait(evaluation, min(wait_s, MAX_WAIT_S))
        if result is None:
            return {"state": "running", "evaluation": evaluation, "stage": self.evaluations.stage_of(evaluation)}
        found = {
            "state": "done",
            "evaluation": evaluation,
            **self._shown(self.evaluations.spec_of(evaluation), result),
        }
        kept = self.evaluations.kept_as(evaluation)
        return {**found, "kernel": kept} if kept else found

    def submit(
        self,
        kernel: KernelNamed,
        problem: str,
        notes: Notes,
        *,
        target: str = "",
        wait_s: float = 50.0,
    ) -> dict[str, Any]:
        """Evaluate a kernel in full, in turns with its first parent, and keep it in the workbook with the verdict."""
        workbook = self._workbook(problem, target)
        base = workbook.named(notes.parents[0]) if notes.parents else None
        against = KernelNamed(file=str(base.path)) if base else None
        spec = self._spec(kernel, problem, target, Effort.FULL.value, against, True)

        def keep(result: JobResult) -> str:
            return workbook.add(spec.candidate, notes, result, self._shown(spec, result)).name

        return self.verdict(self.evaluations.start(spec, keep), wait_s)

    def best(self, problem: str, target: str = "") -> dict[str, Any]:
        """Return the best kernel of the workbook with its source, or say that there is none."""
        found = self._workbook(problem, target).best()
        if found is None:
            raise RefusedError("No correct kernel was submitted yet.")
        return {
            "kernel": found.name,
            "title": found.notes.title,
            "source": found.path.read_text(),
            **found.notes.measured,
        }

    def kernels(self, problem: str, target: str = "") -> list[dict[str, Any]]:
        """Return what was submitted so far: names, titles, parents and verdicts, without sources."""
        return [
            {"kernel": one.name, "title": one.notes.title, "parents": one.notes.parents,
             **{name: one.notes.measured.get(name) for name in ("status", "verdict", "speedup")}}
            for one in self._workbook(problem, target).kernels()
        ]  # fmt: skip

    def diff(self, before: KernelNamed, after: KernelNamed) -> str:
        """Return a unified diff of two kernels. Raises RefusedError for texts that are too long to compare."""
        old, new = self._source(before), self._source(after)
        if len(old.text) + len(new.text) > 2 * DIFF_BYTES:
            raise RefusedError(f"A diff takes texts of {DIFF_BYTES >> 10} KiB at most.")
        names = before.file or "before", after.file or "after"
        lines = list(difflib.unified_diff(old.text.splitlines(), new.text.splitlines(), *names, lineterm=""))
        rest = [f"[… {len(lines) - DIFF_LINES} lines left out …]"] if len(lines) > DIFF_LINES else []
        return "\n".join([*lines[:DIFF_LINES], *rest])

    def close(self) -> None:
        """End everything that is under way."""
        self.evaluations.close()

    def _shown(self, spec: JobSpec, result: JobResult) -> dict[str, Any]:
        return verdict_of(result, hidden_cases(open_bundle(spec.problem), spec.target))

    def _spec(
        self,
        kernel: KernelNamed,
        problem: str,
        target: str,
        effort: str,
        against: KernelNamed | None,
        profile: bool,
    ) -> JobSpec:
        if effort not in set(Effort):
            raise RefusedError(f"There is no effort {effort[:40]!r}: {', '.join(Effort)}.")
        return JobSpec(
            job_id=uuid.uuid4().hex,
            problem=self._bundle(problem),
            target=self._target(target).key,
            candidate=self._source(kernel),
            effort=Effort(effort),
            baseline=Baseline.EAGER,
            parent=self._source(against) if against else None,
            profile=profile,
        )

    def _source(self, kernel: KernelNamed) -> Source:
        if bool(kernel.file) == bool(kernel.source):
            raise RefusedError("Name a kernel by `file`, or send its `source` with a `language`: one of the two.")
        if kernel.file:
            found = read_source(self._inside(kernel.file))
            return Source(found.language, found.text, kernel.tunables, kernel.flags)
        if kernel.language not in set(Language):
            raise RefusedError(f"Name the language of the source: {', '.join(Language)}.")
        if len(kernel.source.encode(errors="replace")) > Limits().source_bytes:
            raise RefusedError(f"A source has at most {Limits().source_bytes >> 10} KiB.")
        return Source(Language(kernel.language), kernel.source, kernel.tunables, kernel.flags)

    def _inside(self, name: str) -> Path:
        """Return the file's path. Raises RefusedError where it is not below the folder, links resolved."""
        path = (self.folder / name).resolve()
        # An agent that was misled by a text it read must not show us any other file of this machine.
        if not path.is_relative_to(self.folder):
            raise RefusedError(f"{name[:200]}: not below {self.folder}, where this service reads files.")
        return path

    def _bundle(self, name: str) -> ProblemBundle:
        if name not in self._problems:
            try:
                found = load(name if name in shipped() else self._inside(name))
                self._problems[name] = with_signature(found)
            except ProblemError as error:
                raise RefusedError(str(error)) from error
        return self._problems[name]

    def _target(self, name: str) -> Target:
        try:
            return TARGETS[canonical(name) if name else self.target]
        except UnknownTarget as error:
            raise RefusedError(str(error)) from error

    def _workbook(self, problem: str, target: str) -> Workbook:
        return Workbook(self.folder / RECORD / f"{self._bundle(problem).name}-{self._target(target).key}")
