"""Make the baseline: the problem's reference as a Python candidate, eager or through torch.compile.

It is built, confined, started and called as every candidate is. The two sides of a comparison differ only in their
source text, so that nothing in the harness can favour one of them.
"""

from __future__ import annotations

from runners.candidate.entry import MODELS
from runners.job import Baseline, Language, Source
from runners.problems.base import Problem

# A graph has its inputs at fixed addresses: with fresh ones in every call it would copy them each time, and be slower
# than what it is to be compared with.
COMPILE_MODES = {Baseline.COMPILE: "default", Baseline.MAX_AUTOTUNE: "max-autotune-no-cudagraphs"}

# torch compiles for each shape: compiled once for all shapes, it was slower than eager on the first of them. A problem
# may have more cases than torch recompiles for by default, hence the limit.
_COMPILED = """

import torch as _torch
import torch._dynamo as _dynamo

_dynamo.config.recompile_limit = 64


def _compiled(entry):
    if not isinstance(entry, type):
        return _torch.compile(entry, mode={mode!r}, dynamic=False)
    construct = entry.__init__

    def construct_and_compile(self, *arguments, **named):
        construct(self, *arguments, **named)
        self.compile(mode={mode!r}, dynamic=False)

    # Not a subclass of the same name: the reference's own `super(Model, self)` would find that instead of itself.
    entry.__init__ = construct_and_compile
    return entry


for _name in {names!r}:
    if _name in globals():
        globals()[_name] = _compiled(globals()[_name])
        break
"""


def baseline_source(problem: Problem, baseline: Baseline, target: str) -> Source:
    """Return the reference as a candidate for a target, compiled if the baseline says so."""
    text = problem.reference_as_candidate(target)
    if mode := COMPILE_MODES.get(baseline):
        # kernelbench.com's references keep the name `Model` (see `entry_of`).
        text += _COMPILED.format(names=(problem.entry_point, *MODELS), mode=mode)
    return Source(Language.PYTHON, text)
