"""Record the stages of one evaluation: what ran, for how long, how it ended; and enforce its time limit."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from runners.errors import Cancelled, CandidateFailure
from runners.job import Limits, StageResult, Status


class Stages:
    """Keep the time of an evaluation. `on_progress` is told of every stage and step, `cancel` asked before each."""

    def __init__(
        self, limits: Limits, cancel: Callable[[], bool] | None, on_progress: Callable[[str, str], None] | None
    ) -> None:
        self.results: list[StageResult] = []
        self.cancel, self._on_progress, self._limits = cancel, on_progress, limits
        self._started = time.monotonic()
        self.current = ""
        """The stage that runs, or the last one that did."""

    def forgive(self, waited_s: float) -> None:
        """Exclude time spent waiting for the device from the limit."""
        self._started += waited_s

    def has_time_for(self, seconds: float) -> bool:
        """Return whether work of that length ends within the evaluation's limit."""
        return time.monotonic() - self._started + seconds < self._limits.total_s

    def progress(self, stage: str, text: str) -> None:
        """Begin a step. Raises Cancelled, and CandidateFailure if the evaluation has taken too long."""
        if self.cancel is not None and self.cancel():
            raise Cancelled
        if time.monotonic() - self._started > self._limits.total_s:
            raise CandidateFailure(Status.TIMEOUT, f"the evaluation took more than {self._limits.total_s:g} s")
        if self._on_progress is not None:
            self._on_progress(stage, text)

    @contextmanager
    def stage(self, name: str) -> Iterator[list[str]]:
        """Time a stage and note how it ended. Text in the list replaces its failure as its log.

        A stage that goes on right after its first part counts as one stage.
        """
        self.progress(name, "")
        self.current = name
        started = time.monotonic()
        failure: BaseException | None = None
        logs: list[str] = []
        try:
            yield logs
        except BaseException as error:
            failure = error
            raise
        finally:
            text = logs[-1] if logs else str(failure) if failure is not None else ""
            seconds = time.monotonic() - started
            self._note(StageResult(name, seconds, failure is None, text[-self._limits.log_bytes :]))

    def _note(self, result: StageResult) -> None:
        # A stage may go on in a second part, which is one stage to a reader.
        if self.results and self.results[-1].name == result.name and self.results[-1].ok:
            earlier = self.results.pop()
            log = "\n".join(filter(None, (earlier.log, result.log)))
            result = replace(result, seconds=earlier.seconds + result.seconds, log=log)
        self.results.append(result)
