"""Implement STARK's strategic tree search (arXiv 2510.16996, section 4.4) and its context windows (section 4.5).

All functions are pure over an immutable tree. The score of a node is its run time, infinite when it did not compile
or is wrong. Failures stay in the tree.
"""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property

from optimizer.search.base import KernelView
from optimizer.search.ranking import leader_of

# Root throttle: with this many children the root cannot be chosen (section 4.4).
N_ROOT = 5
# Dead branch: a node with more children than this, all failing, cannot be chosen (section 4.4).
N_CHILD = 3
# Probability of exploring a leaf (section 4.4).
EPSILON = 0.3
# Size r of the leaderboard in the plan window (section 4.5).
LEADERBOARD = 2
# A larger window is sampled down to this many nodes (section 4.5).
WINDOW_CAP = 5


@dataclass(frozen=True)
class Node:
    """Hold one attempt. `score_us` is infinite for failures; `parent` is None for the root only.

    `pending` nodes are attempts in progress: they count as children and are never chosen. `given` nodes are no
    attempts (further seeds, people's edits, tuned configurations), so they do not use up their parent. `beaten_by`
    holds the keys of nodes that were proven faster in a direct comparison.
    """

    key: str
    parent: str | None
    score_us: float = math.inf
    failed: bool = False
    pending: bool = False
    given: bool = False
    beaten_by: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Rules:
    """Hold the search parameters of the paper, each of which is a setting of the run."""

    n_root: int = N_ROOT
    n_child: int = N_CHILD
    epsilon: float = EPSILON
    leaderboard: int = LEADERBOARD
    window_cap: int = WINDOW_CAP


@dataclass(frozen=True)
class Tree:
    """Hold all attempts in the order in which they were made; the root comes first."""

    nodes: Sequence[Node]
    rules: Rules = field(default_factory=Rules)

    @property
    def root(self) -> Node:
        """Return the reference implementation."""
        return self.nodes[0]

    @cached_property
    def by_key(self) -> Mapping[str, Node]:
        """Return the nodes by key."""
        return {node.key: node for node in self.nodes}

    @cached_property
    def _children(self) -> Mapping[str, list[Node]]:
        """Return the children by their parent's key. The root has no parent and is left out."""
        children: dict[str, list[Node]] = defaultdict(list)
        for node in self.nodes:
            if node.parent is not None:
                children[node.parent].append(node)
        return children

    @cached_property
    def _attempts(self) -> Counter[str | None]:
        """Count the attempts among each node's children, which alone matter when a node is chosen."""
        return Counter([node.parent for node in self.nodes if not node.given])

    @cached_property
    def _hopeful(self) -> Set[str | None]:
        """Return the keys of the nodes with an attempt that has not failed, which includes those in progress."""
        return {node.parent for node in self.nodes if not (node.failed or node.given)}

    def children(self, key: str) -> list[Node]:
        """Return the children of a node, oldest first."""
        return self._children.get(key, [])

    def is_leaf(self, node: Node) -> bool:
        """Return whether no attempt was made on a node."""
        return node.key not in self._attempts

    def siblings(self, key: str) -> list[Node]:
        """Return the other children of a node's parent, which the paper calls S(i)."""
        parent = self.by_key[key].parent
        return [] if parent is None else [node for node in self.children(parent) if node.key != key]

    def subtree(self, key: str) -> set[str]:
        """Return the keys of a node and all its descendants."""
        found: set[str] = set()
        stack = [key]
        while stack:
            current = stack.pop()
            found.add(current)
            stack.extend(child.key for child in self.children(current))
        return found

    def eligible(self, node: Node) -> bool:
        """Return whether a node may be chosen: not pending, not the throttled root, not a dead branch."""
        if node.pending:
            return False
        attempts = self._attempts.get(node.key, 0)  # not `[]`, which is slower for a missing key
        # Otherwise a fast reference would be extended forever.
        if node.parent is None and attempts >= self.rules.n_root:
            return False
        return attempts <= self.rules.n_child or node.key in self._hopeful


def select(tree: Tree, rng: random.Random) -> Node:
    """Choose the next node: with probability ε a uniformly random eligible leaf, else the best eligible node.

    The paper leaves two points open. Here, equal scores go to the newest node (all failures are equal, and the newest
    has been tried least); and when no node is eligible, the best correct node is taken, the root last.
    """
    # Draw before looking at the leaves, so that the generator advances equally on every path.
    explore = rng.random() < tree.rules.epsilon
    eligible = [node for node in tree.nodes if tree.eligible(node)]
    leaves = [node for node in eligible if tree.is_leaf(node)] if explore else []
    if leaves:
        return rng.choice(leaves)
    if eligible:
        return _best(list(reversed(eligible))) or tree.root
    return _fallback(tree)


def leaderboard(tree: Tree, without: set[str]) -> list[Node]:
    """Return the r fastest correct nodes outside `without`, fastest first; ties go to the older."""
    correct = [node for node in tree.nodes if math.isfinite(node.score_us) and node.key not in without]
    shown: list[Node] = []
    while correct and len(shown) < tree.rules.leaderboard:
        shown.append(_best(correct) or correct[0])
        correct.remove(shown[-1])
    return shown


def plan_window(tree: Tree, key: str, rng: random.Random) -> list[Node]:
    """Return {i, root} ∪ D(i) ∪ Top-r(C) without the node's own subtree, capped."""
    best = leaderboard(tree, tree.subtree(key))
    return _window(tree, key, [*tree.children(key), *best], rng)


def code_window(tree: Tree, key: str, rng: random.Random) -> list[Node]:
    """Return {i, root} ∪ D(i) ∪ the children of nodes in S(i), capped."""
    cousins = [child for sibling in tree.siblings(key) for child in tree.children(sibling.key)]
    return _window(tree, key, [*tree.children(key), *cousins], rng)


def debug_window(tree: Tree, key: str, rng: random.Random) -> list[Node]:
    """Return {i, root} ∪ S(i), capped."""
    return _window(tree, key, tree.siblings(key), rng)


def tree_of(
    root: KernelView,
    attempts: Sequence[KernelView],
    pending: Mapping[str, str],
    rules: Rules,
    given: Sequence[KernelView] = (),
) -> Tree:
    """Build the tree of a run's kernels.

    `pending` maps the key of each unfinished attempt to its parent's key. `given` are correct kernels that no attempt
    has produced; one without a parent in the tree becomes a child of the root.
    """
    finished = sorted(
        [*(kernel for kernel in attempts if kernel.finished), *given], key=lambda kernel: kernel.number
    )
    known = {root.key, *(kernel.key for kernel in finished)}
    own = {kernel.key for kernel in given}
    nodes = [_node(root, None)]
    nodes += [_node(kernel, _parent(kernel, known, root), given=kernel.key in own) for kernel in finished]
    nodes += [Node(key, parent, pending=True) for key, parent in pending.items()]
    return Tree(nodes, rules)


def _parent(kernel: KernelView, known: Set[str], root: KernelView) -> str:
    return next((key for key in kernel.parent_keys if key in known), root.key)


def _node(kernel: KernelView, parent: str | None, *, given: bool = False) -> Node:
    score = kernel.ranking_us if kernel.counts else math.inf
    return Node(kernel.key, parent, score, failed=kernel.failed, given=given, beaten_by=kernel.beaten_by)


def _best(nodes: Sequence[Node]) -> Node | None:
    """Return the node that leads, of equal ones the first; None where there is none."""
    quickest = min(nodes, key=lambda node: node.score_us, default=None)
    if quickest is None or not quickest.beaten_by:  # nobody beat it, so a large tree need not be sorted
        return quickest
    ordered = sorted(nodes, key=lambda node: node.score_us)
    leader = leader_of([node.key for node in ordered], {node.key: node.beaten_by for node in nodes})
    return next((node for node in nodes if node.key == leader), None)


def _fallback(tree: Tree) -> Node:
    # The root is the default below, so it is chosen only when nothing else works.
    correct = [node for node in tree.nodes if math.isfinite(node.score_us) and node.parent is not None]
    return _best(correct) or tree.root


def _window(tree: Tree, key: str, others: Sequence[Node], rng: random.Random) -> list[Node]:
    """Return the node first, then the others without repetition, capped by random sampling.

    The paper leaves open whether the sample keeps node i. Here it does, because the agent works on its source.
    """
    unique = {node.key: node for node in (tree.root, *others) if node.key != key and not node.pending}
    rest = list(unique.values())
    room = tree.rules.window_cap - 1
    if len(rest) > room:
        # Sorted first: the order of a set would make the sample differ between processes.
        picked = set(rng.sample(sorted(unique), room))
        rest = [node for node in rest if node.key in picked]
    return [tree.by_key[key], *rest]
