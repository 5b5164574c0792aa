"""Name cases and their inputs on pages, charts and reports."""

from __future__ import annotations

from collections.abc import Iterable


def given_words(name: str) -> str:
    """Return the name of a case or of its inputs in words: those that the problem's own file makes are as given."""
    return "as given" if name == "published" else name


def inputs_words(names: Iterable[str]) -> str:
    """Return the names of several kinds of inputs in words."""
    return ", ".join(given_words(name).replace("_", " ") for name in names)
