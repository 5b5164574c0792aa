"""Find the kernels from which a run starts. Their keys are `seed.<name>`; the torch reference always exists.

The best kernels of earlier runs, with which a warm start begins, are seeds too.
"""

from __future__ import annotations

from optimizer.search.base import History, KernelView, fastest

REFERENCE_KEY = "seed.reference"
# With this begin the keys of kernels that a warm start takes over from earlier runs.
EARLIER_KEY = "seed.earlier"


def reference_seed(history: History) -> KernelView:
    """Return the torch reference: STARK's root and the scientist's first seed. Raises LookupError without one."""
    kernel = history.kernel(REFERENCE_KEY)
    if kernel is None:
        raise LookupError("the run has no torch reference")
    return kernel


def starting_kernel(history: History) -> KernelView:
    """Return the kernel that strategies without a tree start from: the fastest given one, or the reference alone where
    the warm start is off.
    """
    reference = reference_seed(history)
    if not history.settings.warm_start:
        return reference
    return fastest([kernel for kernel in history.kernels if kernel.is_given]) or reference


def seeds(history: History) -> list[KernelView]:
    """Return all seeds in order."""
    return [kernel for kernel in history.kernels if kernel.author_kind == "seed"]


def seeds_finished(history: History) -> bool:
    """Return True once every seed has its outcome."""
    return all(kernel.finished for kernel in seeds(history))
