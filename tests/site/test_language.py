"""Check the language of docstrings: the counting rules of `benchmarks.language`, and the code that meets them."""

from __future__ import annotations

import pytest

from benchmarks.language import count, full_line_comments, is_fragment

# Percentage of fragments that a folder may have: a heuristic is wrong now and then.
TOLERATED = 2.0


@pytest.mark.parametrize("folder", ["optimizer", "kernelsci_site"])
def test_docstrings_are_complete_sentences(folder: str) -> None:
    """Fail when more docstrings of the folder are fragments than the heuristic may get wrong."""
    (row,) = count([folder], depth=1).values()
    fragments = [line for lines in row.fragments.values() for line in lines]
    assert 100 * len(fragments) <= TOLERATED * sum(row.docstrings.values()), "\n".join(fragments)


@pytest.mark.parametrize(
    ("docstring", "kind"),
    [
        ("Whether anything waits.", "function"),
        ("What the runner said.", "function"),
        ("The number of kernels.", "function"),
        ("Name of the column.", "function"),
        ("One kernel as a row.", "class"),
        ("Metrics for Prometheus.", "module"),
    ],
)
def test_fragments_are_recognised(docstring: str, kind: str) -> None:
    """Count noun phrases, and clauses that open with a question word, as fragments."""
    assert is_fragment(docstring, kind)


@pytest.mark.parametrize(
    ("docstring", "kind"),
    [
        ("Return the number of kernels that wait.", "function"),
        ("Name the column after its unit.", "function"),
        ("A runner is alive while it reports.", "class"),
        ("A closed run takes no kernels.", "test"),
    ],
)
def test_sentences_are_recognised(docstring: str, kind: str) -> None:
    """Accept imperative sentences anywhere, and statements of classes, modules and tests."""
    assert not is_fragment(docstring, kind)


def test_comments_count_only_on_a_line_of_their_own() -> None:
    """Leave out comments behind code and instructions to tools."""
    assert full_line_comments("# why\na = 1  # what\n# noqa: E501\n") == 1
