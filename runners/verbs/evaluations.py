"""Evaluate in the background, one kernel at a time, and let callers wait as long as they like.

Clients of agents give up a call after a minute or less, and an evaluation may take ten. So a call starts it, waits for
a while, and returns either the result or a name with which to ask again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass, field

from runners.job import JobResult, JobSpec
from runners.verbs.errors import RefusedError

Evaluate = Callable[..., JobResult]
# Kernels that may wait beside the one at work: an agent that floods the machine hears it at once.
MAX_WAITING = 4
MAX_KEPT = 500


@dataclass
class Ongoing:
    """Hold one evaluation: what it is of, the stage it has reached, and its result once there is one.

    `then` is called with the result before anybody sees it, and what it returns is `kept`.
    """

    spec: JobSpec
    then: Callable[[JobResult], str] | None = None
    stage: str = "waiting"
    kept: str = ""
    cancelled: threading.Event = field(default_factory=threading.Event)
    result: Future[JobResult] = field(default_factory=Future)


class Evaluations:
    """Keep the evaluations of one service. Safe to call from several threads."""

    def __init__(self, evaluate: Evaluate) -> None:
        self._evaluate = evaluate
        self._lock = threading.Lock()
        self._known: OrderedDict[str, Ongoing] = OrderedDict()
        self._count = 0
        # One at a time: two evaluations beside each other would time each other's load.
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="evaluation")

    def start(self, spec: JobSpec, then: Callable[[JobResult], str] | None = None) -> str:
        """Queue an evaluation and return its name. Raises RefusedError while too many wait."""
        with self._lock:
            waiting = [name for name, one in self._known.items() if not one.result.done()]
            if len(waiting) > MAX_WAITING:
                raise RefusedError(
                    f"{len(waiting)} evaluations are under way ({', '.join(waiting)}): read their verdicts first."
                )
            self._count += 1
            name = f"e{self._count}"
            ongoing = self._known[name] = Ongoing(spec, then)
            while len(self._known) > MAX_KEPT:
                self._known.popitem(last=False)
        self._worker.submit(self._carry_out, ongoing)
        return name

    def wait(self, name: str, seconds: float) -> JobResult | None:
        """Return the result, or None if there is none after so many seconds. Raises RefusedError for unknown names."""
        try:
            return self._named(name).result.result(timeout=max(0.0, seconds))
        except NotYet:
            return None

    def stage_of(self, name: str) -> str:
        """Return which stage the evaluation has reached, in words."""
        return self._named(name).stage

    def spec_of(self, name: str) -> JobSpec:
        """Return what is evaluated under that name."""
        return self._named(name).spec

    def kept_as(self, name: str) -> str:
        """Return the name under which an evaluated kernel was kept, empty for a mere evaluation."""
        return self._named(name).kept

    def cancel(self, name: str) -> None:
        """Stop an evaluation; its result then says that it was cancelled."""
        self._named(name).cancelled.set()

    def close(self) -> None:
        """Stop everything and wait until nothing runs any more."""
        for one in list(self._known.values()):
            one.cancelled.set()
        self._worker.shutdown(wait=True)

    def _named(self, name: str) -> Ongoing:
        with self._lock:
            if name not in self._known:
                raise RefusedError(f"There is no evaluation {name[:40]!r}.")
            return self._known[name]

    def _carry_out(self, ongoing: Ongoing) -> None:
        def tell(stage: str, text: str) -> None:
            ongoing.stage = f"{stage} {text}".strip()

        try:
            found = self._evaluate(ongoing.spec, cancel=ongoing.cancelled.is_set, on_progress=tell)
            ongoing.kept = ongoing.then(found) if ongoing.then else ""
            ongoing.result.set_result(found)
        # A bug in the harness must reach whoever waits; without an answer they would wait for ever.
        except BaseException as error:
            ongoing.result.set_exception(error)
