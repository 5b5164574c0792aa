"""Make the baseline: the problem's reference as a Python candidate, eager or through torch.compile.

It is built, confined, started and called as every candidate is. The two sides of a comparison differ only in their
source text, so that nothing in the harness can favour one of them.
"""

from __future__ import annotations

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
if isinstance({entry}, type):

    class {entry}({entry}):
        def __init__(self, *arguments, **named):
            super().__init__(*arguments, **named)
            self.compile(mode={mode!r}, dynamic=False)

else:
    {entry} = _torch.compile({entry}, mode={mode!r}, dynamic=False)
"""


def baseline_source(problem: Problem, baseline: Baseline, target: str) -> Source:
    """Return the reference as a candidate for a target, compiled if the baseline says so."""
    text = problem.reference_as_candidate(target)
    if mode := COMPILE_MODES.get(baseline):
        text += _COMPILED.format(entry=problem.entry_point, mode=mode)
    return Source(Language.PYTHON, text)
