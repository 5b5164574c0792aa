"""Rank measured kernels: the best lower bound leads, unless direct evidence contradicts it.

Speedups against the baseline come from different evaluations, so a small difference between two of them shows little.
Two kernels that were timed in turns in the same session show more. So kernels are ordered by the lower end of their
interval against the common baseline, and a kernel that was proven slower than another contender in a direct
comparison cannot lead before it. Evidence may be circular (A beats B, B beats C, C beats A); inside a circle it
decides nothing and the bounds decide.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import TypeVar

K = TypeVar("K", bound=Hashable)


def leader_of(ordered: Sequence[K], beaten_by: Mapping[K, Collection[K]]) -> K | None:
    """Return the first contender that no other one beats, or None without contenders.

    `ordered` holds all contenders, best bound first. `beaten_by` maps a contender to those that were proven faster in
    a direct comparison; those that are no contenders do not count.
    """
    contenders = set(ordered)
    return next((one for one in ordered if not is_beaten(one, beaten_by, contenders)), None)


def is_beaten(one: K, beaten_by: Mapping[K, Collection[K]], contenders: Collection[K]) -> bool:
    """Return True when a contender beats this one, directly or through others, and is not beaten by it in return."""
    # Whoever is above and below at once is in a circle with this one, which decides nothing.
    above = _above(one, beaten_by, contenders)
    return any(one not in _above(other, beaten_by, contenders) for other in above)


def _above(one: K, beaten_by: Mapping[K, Collection[K]], contenders: Collection[K]) -> set[K]:
    """Return the contenders that beat this one, directly or through others; itself too where it is in a circle."""
    found: set[K] = set()
    stack = [one]
    while stack:
        for other in beaten_by.get(stack.pop(), ()):
            # Marking what was found ends the walk even in a circle.
            if other in contenders and other not in found:
                found.add(other)
                stack.append(other)
    return found
