"""Find pairs of kernels that are each fastest on some cases, so that a child may be fastest on all."""

from __future__ import annotations

from collections.abc import Sequence

from optimizer.search.base import KernelView


def dominates(left: KernelView, right: KernelView) -> bool:
    """Return True when `left` is at least as fast in every case and faster in one.

    Kernels without common cases never dominate each other.
    """
    cases = left.times_us.keys() & right.times_us.keys()
    # Comparing disjoint cases would make every kernel dominate every other one.
    if not cases:
        return False
    no_worse = all(left.times_us[case] <= right.times_us[case] for case in cases)
    return no_worse and any(left.times_us[case] < right.times_us[case] for case in cases)


def pareto_front(kernels: Sequence[KernelView]) -> list[KernelView]:
    """Return the correct kernels that no other kernel dominates, so that specialists for one shape survive."""
    correct = [kernel for kernel in kernels if kernel.correct and kernel.times_us]
    return [kernel for kernel in correct if not any(dominates(other, kernel) for other in correct)]


def complement(base: KernelView, kernels: Sequence[KernelView]) -> KernelView | None:
    """Return the kernel that would help `base` most, or None when no kernel is faster in any case.

    The gain is the product over the common cases of `base`'s time divided by the faster of both times.
    """
    gains = [
        (_saving(base, other), -other.number, other) for other in kernels if other.key != base.key and other.correct
    ]
    best = max(gains, key=lambda gain: gain[:2], default=None)
    return best[2] if best and best[0] > 1.0 else None


def _saving(base: KernelView, other: KernelView) -> float:
    cases = base.times_us.keys() & other.times_us.keys()
    product = 1.0
    for case in cases:
        # A child could keep the faster of both in every case; cases where the other is slower cost nothing.
        product *= max(1.0, base.times_us[case] / other.times_us[case])
    return product
