"""Two parents that are each best somewhere: a child may win everywhere."""

from __future__ import annotations

from collections.abc import Sequence

from optimizer.search.base import KernelView


def dominates(left: KernelView, right: KernelView) -> bool:
    """True when `left` is at least as fast in every case and faster in one. Kernels without common cases never
    dominate each other."""
    cases = left.times_us.keys() & right.times_us.keys()
    if not cases:
        return False
    no_worse = all(left.times_us[case] <= right.times_us[case] for case in cases)
    return no_worse and any(left.times_us[case] < right.times_us[case] for case in cases)


def pareto_front(kernels: Sequence[KernelView]) -> list[KernelView]:
    """The correct kernels that no other dominates over the cases, so that specialists of one shape survive."""
    correct = [kernel for kernel in kernels if kernel.correct and kernel.times_us]
    return [kernel for kernel in correct if not any(dominates(other, kernel) for other in correct)]


def complement(base: KernelView, kernels: Sequence[KernelView]) -> KernelView | None:
    """The kernel that would help `base` most: the one whose better cases save most, as the geometric mean of the
    per-case minimum against `base` alone. None when nobody beats `base` anywhere."""
    gains = [
        (_saving(base, other), -other.number, other) for other in kernels if other.key != base.key and other.correct
    ]
    best = max(gains, key=lambda gain: gain[:2], default=None)
    return best[2] if best and best[0] > 1.0 else None


def _saving(base: KernelView, other: KernelView) -> float:
    cases = base.times_us.keys() & other.times_us.keys()
    product = 1.0
    for case in cases:
        product *= max(1.0, base.times_us[case] / other.times_us[case])
    return product
