"""Find the kernels from which a run starts. Their keys are `seed.<name>`; the torch reference always exists."""

from __future__ import annotations

from optimizer.search.base import History, KernelView

REFERENCE_KEY = "seed.reference"


def reference_seed(history: History) -> KernelView:
    """Return the torch reference: STARK's root and the scientist's first seed. Raises LookupError without one."""
    kernel = history.kernel(REFERENCE_KEY)
    if kernel is None:
        raise LookupError("the run has no torch reference")
    return kernel


def seeds(history: History) -> list[KernelView]:
    """Return all seeds in order."""
    return [kernel for kernel in history.kernels if kernel.author_kind == "seed"]


def seeds_finished(history: History) -> bool:
    """Return True once every seed has its outcome."""
    return all(kernel.finished for kernel in seeds(history))
