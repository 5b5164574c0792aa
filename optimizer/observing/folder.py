"""Watch a folder of kernels (`runners.verbs.workbook`) and submit each state of each file to a run.

A file that changes is a new kernel, derived from its former state unless its notes name other parents. Nothing is
remembered but what the run holds: a kernel's key names file and content, so that a watcher may be stopped and started
again. Verdicts are written to `verdicts/` beside the kernels, for whoever optimises there.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from django.core.exceptions import ValidationError

from optimizer.actions.submission import Submission, do_submit
from optimizer.models import EvaluationState, Kernel, Run, User
from optimizer.models.choices import OPEN_EVALUATION_STATES
from optimizer.runs.history import problem_of
from runners import wire
from runners.job import JobResult, Source
from runners.state import write_json
from runners.verbs.describing import hidden_cases
from runners.verbs.errors import RefusedError
from runners.verbs.sources import read_source
from runners.verbs.verdicts import verdict_of
from runners.verbs.workbook import NOTES, Notes, kernel_files, read_notes

VERDICTS = "verdicts"
# An editor or agent may still be writing; a file counts once it has rested for this long.
RESTED_S = 1.0
# Names are part of keys, which are limited.
MAX_NAME = 80


@dataclass
class ObservedFolder:
    """Submit what lies in `folder` to `run`, as `user`. With `reported`, times in notes are believed until settled."""

    folder: Path
    run: Run
    user: User | None = None
    reported: bool = False
    _told: dict[str, str] = field(default_factory=dict)

    @cached_property
    def _hidden(self) -> frozenset[str]:
        return hidden_cases(problem_of(self.run), self.run.target.key)

    def scan(self) -> Iterator[str]:
        """Submit every new state of a file and write new verdicts. Yield what happened, a line each."""
        for path in kernel_files(self.folder):
            if _has_rested(path):
                yield from self._news(path.name, self._submit(path))
        yield from self._write_verdicts()

    def _submit(self, path: Path) -> str:
        """Submit a file unless the run has it. Return what happened, or why nothing did."""
        try:
            if len(path.name) > MAX_NAME:
                raise RefusedError(f"its name has more than {MAX_NAME} characters")
            notes = read_notes(path)
            source = _with_notes(read_source(path), notes)
            key = f"file:{path.name}@{source.content_hash[:12]}"
            if self.run.kernels.filter(key=f"external.{key}").exists():
                return ""
            kernel, _ = do_submit(self.user, self.run, self._submission(path, source, notes, key))
        except (RefusedError, ValidationError) as error:
            reason = "; ".join(error.messages) if isinstance(error, ValidationError) else str(error)
            self._write(path.name, {"state": "refused", "reason": reason})
            return f"{path.name}: not submitted: {reason}"
        return f"{path.name}: submitted as #{kernel.number}"

    def _submission(self, path: Path, source: Source, notes: Notes, key: str) -> Submission:
        claimed = self.reported and notes.reported is not None
        return Submission(
            source,
            key=key,
            title=notes.title or path.name,
            report=notes.report,
            parents=tuple(self._parents(path, notes)),
            hypothesis=notes.hypothesis,
            reported=notes.reported,
            measure=not claimed,
            meta={"file": path.name},
        )

    def _parents(self, path: Path, notes: Notes) -> list[int]:
        """Return the parents' numbers: those that the notes name, else the file's former state."""
        if not notes.parents:
            former = self._newest_of(path.name)
            return [former.number] if former else []
        found = [(name, self._newest_of(name)) for name in notes.parents]
        for name, kernel in found:
            if kernel is None:
                raise RefusedError(f"its parent {name[:100]!r} was not submitted from this folder")
        return [kernel.number for _, kernel in found if kernel is not None]

    def _newest_of(self, name: str) -> Kernel | None:
        return self.run.kernels.filter(key__startswith=f"external.file:{name}@").order_by("-number").first()

    def _write_verdicts(self) -> Iterator[str]:
        """Write the verdict of each file's newest state once it has one."""
        for path in kernel_files(self.folder):
            kernel = self._newest_of(path.name)
            evaluation = getattr(kernel, "evaluation", None)
            if kernel is None or evaluation is None or evaluation.state in OPEN_EVALUATION_STATES:
                continue
            result = evaluation.as_readable_result()
            told = f"#{kernel.number} {evaluation.get_state_display().lower()}"
            if evaluation.state == EvaluationState.DONE:
                told = f"#{kernel.number} {_in_short(evaluation.status, result)}"
            if self._told.get(f"verdict {path.name}") != told:
                verdict = verdict_of(result, self._hidden) if result else {}
                self._write(path.name, {"state": evaluation.state, "kernel": kernel.number, **verdict})
            yield from self._news(f"verdict {path.name}", told, prefix=f"{path.name}: ")

    def _news(self, subject: str, text: str, prefix: str = "") -> Iterator[str]:
        """Yield a line that was not said of this subject last time."""
        if text and self._told.get(subject) != text:
            self._told[subject] = text
            yield f"{prefix}{text}"

    def _write(self, name: str, answer: dict[str, Any]) -> None:
        target = self.folder / VERDICTS
        # A link would let whoever writes into the folder have us write elsewhere.
        if target.is_symlink():
            return
        target.mkdir(exist_ok=True)
        write_json(target / f"{name}{NOTES}", wire.to_plain(answer))


def _has_rested(path: Path) -> bool:
    newest = max(one.stat().st_mtime for one in (path, path.with_suffix(NOTES)) if one.exists())
    return time.time() - newest >= RESTED_S


def _with_notes(source: Source, notes: Notes) -> Source:
    return replace(source, tunables=dict(notes.tunables), flags=tuple(notes.flags))


def _in_short(status: str, result: JobResult | None) -> str:
    if result is None or result.speedup is None:
        return status.replace("_", " ")
    ratio = result.speedup
    return f"{status}, {ratio.median:.3f}× ({ratio.low:.3f} to {ratio.high:.3f}): {ratio.verdict.value}"
