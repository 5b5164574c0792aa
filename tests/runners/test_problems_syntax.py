"""Test parsing beside other threads: the site and its workers read problems in several threads at once."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from runners.problems.syntax import NOT_PYTHON, expression_tree, module_tree

# Nested to a different depth each, so that one thread's count is wrong for the other.
TEXTS = ["f(" * depth + "1" + ")" * depth for depth in range(1, 60)]


@pytest.fixture
def interrupting_collections() -> Iterator[None]:
    """Collect garbage often, and let other threads run in the middle of every collection, as finalizers do."""
    thresholds = gc.get_threshold()

    def yield_to_others(phase: str, info: dict[str, int]) -> None:
        time.sleep(0)

    gc.callbacks.append(yield_to_others)
    gc.set_threshold(10)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(yield_to_others)


@pytest.mark.usefixtures("interrupting_collections")
def test_threads_that_parse_at_once_do_not_disturb_each_other() -> None:
    def parse_all(_: int) -> int:
        return sum(len(module_tree(text).body) + bool(expression_tree(text).body) for text in TEXTS)

    with ThreadPoolExecutor(4) as threads:
        assert set(threads.map(parse_all, range(40))) == {2 * len(TEXTS)}


@pytest.mark.parametrize("text", ["1 +", "a\0b", "(" * 300, "-" * 100_000 + "1"])
def test_text_that_is_no_python_raises_a_listed_exception(text: str) -> None:
    with pytest.raises(NOT_PYTHON):
        module_tree(text)
    with pytest.raises(NOT_PYTHON):
        expression_tree(text)
