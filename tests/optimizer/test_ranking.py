"""Test who leads among measured kernels, as a pure function."""

from __future__ import annotations

import random
from dataclasses import replace

from optimizer.search.base import fastest, is_ahead
from optimizer.search.ranking import leader_of
from optimizer.search.tree import Rules, leaderboard, select, tree_of
from tests.optimizer.simulated_run import seed


def random_evidence(rng: random.Random) -> tuple[list[int], dict[int, set[int]]]:
    """Return kernels in the order of their bounds, and direct comparisons between some of them, circles included."""
    kernels = list(range(rng.randrange(1, 9)))
    rng.shuffle(kernels)
    beaten: dict[int, set[int]] = {}
    for _ in range(rng.randrange(0, 12)):
        loser, winner = rng.randrange(10), rng.randrange(10)
        if loser != winner:
            beaten.setdefault(loser, set()).add(winner)
    return kernels, beaten


def test_the_best_bound_leads_where_nothing_was_compared_directly() -> None:
    assert leader_of([3, 1, 2], {}) == 3
    assert leader_of([], {}) is None


def test_a_kernel_proven_slower_than_its_parent_does_not_lead() -> None:
    assert leader_of(["child", "parent"], {"child": {"parent"}}) == "parent"


def test_evidence_against_a_kernel_that_may_not_lead_itself_does_not_count() -> None:
    assert leader_of(["child"], {"child": {"refuted parent"}}) == "child"


def test_in_a_circle_the_bound_decides() -> None:
    circle = {"a": {"b"}, "b": {"c"}, "c": {"a"}}
    assert leader_of(["b", "a", "c"], circle) == "b"
    assert leader_of(["b", "a", "c"], circle | {"b": {"c", "d"}}) == "b", "d is no contender"


def test_whoever_beats_the_leader_is_beaten_by_it_in_return_whatever_the_evidence() -> None:
    for number in range(500):
        ordered, beaten = random_evidence(random.Random(number))
        leader = leader_of(ordered, beaten)
        assert leader in ordered
        for other in set(ordered) & beaten.get(leader or 0, set()):
            assert leader in all_above(other, beaten, ordered)


def all_above(one: int, beaten: dict[int, set[int]], contenders: list[int]) -> set[int]:
    """Return all that beat a kernel, directly or through others, by adding one step at a time."""
    found: set[int] = set()
    for _ in contenders:
        found |= {
            winner for kernel in found | {one} for winner in beaten.get(kernel, set()) if winner in contenders
        }
    return found


def test_strategies_prefer_a_certain_gain_to_an_uncertain_one() -> None:
    sure = replace(seed("sure", 50.0, 1), bound_us=52.0)
    lucky = replace(seed("lucky", 45.0, 2), bound_us=70.0)
    assert fastest([sure, lucky]) == sure
    assert is_ahead(sure, lucky) and not is_ahead(lucky, sure)


def test_strategies_do_not_build_on_a_kernel_that_was_slower_than_its_parent() -> None:
    parent = seed("parent", 60.0, 0)
    child = replace(seed("child", 50.0, 1), parent_keys=(parent.key,), beaten_by=frozenset({parent.key}))
    assert fastest([child, parent]) == parent
    assert is_ahead(parent, child)
    tree = tree_of(
        seed("root", 100.0, 2), [replace(parent, parent_keys=("seed.root",)), child], {}, Rules(epsilon=0.0)
    )
    assert select(tree, random.Random(1)).key == parent.key
    assert [node.key for node in leaderboard(tree, set())] == [parent.key, child.key]
