"""Run HIP and CUDA device code on the CPU, for correctness, where its device is absent.

`rewriting` turns the source into C++, `library` compiles it against our own header (`device/`) to a shared library
whose threads are fibers, and `report` reads what the library says when it stops. `docs/emulation.md` describes what is
covered.
"""

from __future__ import annotations

from runners.emulation.library import build, serves
from runners.emulation.rewriting import NotCovered

__all__ = ["NotCovered", "build", "serves"]
