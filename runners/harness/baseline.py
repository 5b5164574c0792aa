"""The baseline: the problem's reference as torch runs it, in a clean process of its own, on buffers of its arena.

Answers the same questions as a candidate, so that both are timed by the same protocol.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from runners.harness.candidate.calls import Caller
from runners.harness.candidate.structure import tensors_in
from runners.harness.candidate.tensors import Arena, tensor_at
from runners.harness.trusted import open_problem
from runners.job import Baseline
from runners.problems.base import CallInputs, Case
from runners.wire import from_plain

COMPILE_MODES = {Baseline.COMPILE: "default", Baseline.MAX_AUTOTUNE: "max-autotune-no-cudagraphs"}
"""A graph has its inputs at fixed addresses: with fresh ones in every call it would copy them each time, and be slower
than what it is to be compared with."""


@dataclass
class Prepared:
    """One call, and once it was made what it returned."""

    call: Callable[[], Any]
    result: Any = None


class BaselineCallee:
    """Answers `open` itself and leaves `case`, `run` and `store` to the Caller that candidates have too."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self._case: dict[str, Any] = {}
        self._bundle: dict[str, Any] | None = None
        self._caller = Caller(self)

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        """Dispatch one question by its `op`."""
        return self._open(question) if question["op"] == "open" else self._caller.answer(question)

    def _open(self, question: dict[str, Any]) -> dict[str, Any]:
        if question["bundle"] != self._bundle:
            self._bundle, self._problem = question["bundle"], open_problem(question["bundle"])
        self._mode = COMPILE_MODES.get(Baseline(question["baseline"]))
        return {}

    def set_case(self, case: dict[str, Any]) -> None:
        """Take the layout of the coming calls, and have the problem prepare itself for them."""
        self._problem.prepare(from_plain(Case, case["case"]))
        self._case = case

    def prepare(self, call: dict[str, Any]) -> Prepared:
        """The reference on views of the inputs in the arena, before the clock starts."""
        pairs = zip(self._case["inputs"], call["inputs"], strict=True)
        values = {s["name"]: tensor_at(self._arena, s, v) if "shape" in s else v for s, v in pairs}
        return Prepared(self._problem.bound(CallInputs(values, self._case["structure"]), self._mode))

    def run(self, prepared: Prepared) -> int:
        """One call; nanoseconds."""
        call = prepared.call
        start = time.perf_counter_ns()
        result = call()
        elapsed = time.perf_counter_ns() - start
        prepared.result = result
        return elapsed

    def finish(self, prepared: Prepared, call: dict[str, Any]) -> None:
        """Copy the results into the arena, so that the baseline is checked like a candidate."""
        results = tensors_in(prepared.result)
        for result, spec, offset in zip(results, self._case["outputs"], call["outputs"], strict=True):
            tensor_at(self._arena, spec, offset).copy_(result)

    def report(self) -> dict[str, Any]:
        """Nothing beyond the times."""
        return {}
