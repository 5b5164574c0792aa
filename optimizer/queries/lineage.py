"""Lay out a run's family tree: the place of each kernel, the path to the best, and the winner of each case.

Generations go from left to right and leaves are evenly spaced from top to bottom. A parent is in the middle of its
children (Reingold and Tilford, "Tidier Drawings of Trees", 1981, without their contour walk: leaves never share a
row, so nothing can overlap). The run time is linear in the number of kernels.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from optimizer.models import EvaluationState, EvaluationStatus, KernelParent, Measurement, Run

# Larger trees are limited to the newest kernels and the best path.
MOST = 5_000

_WORDS = {
    "faster": ("faster than", "good"),
    "slower": ("slower than", "warn"),
    "same": ("not measurably different from", "muted"),
}


class Node(NamedTuple):
    """Hold a kernel of the tree; a tuple, since a page makes thousands of them.

    `parents` are numbers, base first. `tone` is the colour token of the outcome. `gain` is the measured speedup over
    the parent. `wins` are the cases in which no kernel is faster.
    """

    number: int
    parents: tuple[int, ...]
    author: str
    title: str
    outcome: str
    tone: str
    speedup: float | None
    gain: float | None
    wins: tuple[str, ...] = ()
    on_best_path: bool = False
    x: float = 0.0
    y: float = 0.0


class _Row(NamedTuple):
    """Hold what is read of a kernel."""

    pk: int
    number: int
    author_kind: str
    title: str
    idea: str | None
    state: str | None
    status: str | None
    verdict: str | None
    parent_verdict: str | None
    speedup: float | None
    parent_speedup: float | None


@dataclass(frozen=True)
class Tree:
    """Hold a run's lineage. `left_out` counts older kernels that are not in it."""

    nodes: Sequence[Node]
    best: int | None
    left_out: int


def tree_of(run: Run) -> Tree:
    """Read and lay out the tree with four queries, however many kernels there are."""
    links = _links(run)
    rows = _rows(run)
    best = next((row.number for row in rows if row.pk == run.best_kernel_id), None)
    path = best_path(best, links)
    kept = _kept(rows, path)
    numbers = {row.number for row in kept}
    bases = {number: links[number][0] for number in numbers if links.get(number) and links[number][0] in numbers}
    places = layout(sorted(numbers), bases)
    wins = _winners(run)
    nodes = [_node(row, links, wins, path, places[row.number]) for row in kept]
    return Tree(nodes, best, len(rows) - len(kept))


def layout(numbers: Sequence[int], bases: dict[int, int]) -> dict[int, tuple[float, float]]:
    """Return column (generation) and row of every kernel.

    `bases` names the parent of each kernel that has one; parents have smaller numbers than their children.
    """
    children: dict[int, list[int]] = defaultdict(list)
    depth: dict[int, int] = {}
    for number in numbers:
        base = bases.get(number)
        depth[number] = depth[base] + 1 if base is not None else 0
        if base is not None:
            children[base].append(number)
    rows: dict[int, float] = {}
    order = _leaves_in_order(numbers, bases, children)
    for row, leaf in enumerate(order):
        rows[leaf] = float(row)
    # Children have larger numbers than their parents, so going backwards all children have a row already.
    for number in reversed(numbers):
        if number not in rows:
            rows[number] = sum(rows[child] for child in children[number]) / len(children[number])
    return {number: (float(depth[number]), rows[number]) for number in numbers}


def best_path(best: int | None, links: dict[int, list[int]]) -> set[int]:
    """Return the best kernel and its bases back to the seed."""
    path: set[int] = set()
    # The second condition ends the walk even if corrupt data formed a cycle.
    while best is not None and best not in path:
        path.add(best)
        best = links[best][0] if links.get(best) else None
    return path


def _leaves_in_order(numbers: Sequence[int], bases: dict[int, int], children: dict[int, list[int]]) -> list[int]:
    leaves, stack = [], [number for number in reversed(numbers) if number not in bases]
    while stack:
        number = stack.pop()
        if not children[number]:
            leaves.append(number)
        stack.extend(reversed(children[number]))
    return leaves


def _links(run: Run) -> dict[int, list[int]]:
    rows = KernelParent.objects.filter(kernel__run=run).order_by("kernel_id", "rank")
    links: dict[int, list[int]] = defaultdict(list)
    for child, parent in rows.values_list("kernel__number", "parent__number"):
        links[child].append(parent)
    return links


def _rows(run: Run) -> list[_Row]:
    fields = ("pk", "number", "author_kind", "title", "hypothesis__title", "evaluation__state", "evaluation__status",
              "evaluation__verdict", "evaluation__parent_verdict", "evaluation__speedup",
              "evaluation__parent_speedup")  # fmt: skip
    return [_Row(*row) for row in run.kernels.order_by("number").values_list(*fields)]


def _kept(rows: Sequence[_Row], path: set[int]) -> list[_Row]:
    if len(rows) <= MOST:
        return list(rows)
    # The best path is always kept, however old its kernels are.
    newest = {row.number for row in rows[-(MOST - len(path)) :]}
    return [row for row in rows if row.number in newest or row.number in path]


def _winners(run: Run) -> dict[int, tuple[str, ...]]:
    """Return the cases that each kernel wins: those where it has the smallest median of the correct ones."""
    timed = Measurement.objects.filter(
        evaluation__first_of__run=run, evaluation__status=EvaluationStatus.CORRECT, subject="candidate"
    )
    rows = (
        # DISTINCT ON keeps the first row of each case, which is its fastest kernel.
        timed.order_by("case", "median_us", "pk").distinct("case").values_list("case", "evaluation__kernel__number")
    )
    wins: dict[int, list[str]] = defaultdict(list)
    for case, number in rows:
        wins[number].append(case)
    return {number: tuple(cases) for number, cases in wins.items()}


def _node(
    row: _Row, links: dict[int, list[int]], wins: dict[int, tuple[str, ...]], path: set[int],
    place: tuple[float, float],
) -> Node:  # fmt: skip
    outcome, tone = _outcome(row)
    return Node(
        number=row.number, parents=tuple(links.get(row.number, ())), author=row.author_kind,
        title=row.idea or row.title, outcome=outcome, tone=tone, speedup=row.speedup, gain=row.parent_speedup,
        wins=wins.get(row.number, ()), on_best_path=row.number in path, x=place[0], y=place[1],
    )  # fmt: skip


def _outcome(row: _Row) -> tuple[str, str]:
    """Return the outcome in words and as a tone: the verdict against the parent, else against the baseline."""
    if row.state != EvaluationState.DONE or not row.status:
        return "not evaluated yet", "muted"
    if row.status != EvaluationStatus.CORRECT:
        found = EvaluationStatus(row.status)
        return found.label.lower(), found.tone
    against = "its parent" if row.parent_verdict else "the baseline"
    word, tone = _WORDS.get(row.parent_verdict or row.verdict or "", ("correct, not compared with", "muted"))
    return f"{word} {against}", tone
