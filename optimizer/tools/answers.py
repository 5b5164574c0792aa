"""Answer the tools that need no runner: read a kernel of the run, search what is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from optimizer.agents import sections
from optimizer.agents.delimiters import Delimiters
from optimizer.agents.knowledge import KnowledgeItem
from optimizer.search.base import History
from optimizer.tools.catalogue import Arguments, ReadKernelArguments, SearchArguments

PAGE_CAP = 6_000


def answer(
    name: str, arguments: Arguments, history: History, knowledge: Sequence[KnowledgeItem], delimiters: Delimiters
) -> str:
    """Return the tool's answer, with everything from outside enclosed as data. Raises KeyError for other tools."""
    return _ANSWERS[name](arguments, history, knowledge, delimiters)


def _read_kernel(
    arguments: ReadKernelArguments, history: History, _: Sequence[KnowledgeItem], delimiters: Delimiters
) -> str:
    found = next((kernel for kernel in history.kernels if kernel.number == arguments.number), None)
    if found is None:
        return f"This run has no kernel #{arguments.number}. It has #0 to #{len(history.kernels) - 1}."
    return sections.kernel(found, history, delimiters, "Kernel")


def _search_knowledge(
    arguments: SearchArguments, _: History, knowledge: Sequence[KnowledgeItem], delimiters: Delimiters
) -> str:
    words = {word for word in arguments.query.lower().split() if len(word) > 1}
    ranked = sorted(knowledge, key=lambda item: -_hits(item, words))
    found = [item for item in ranked if _hits(item, words)][: arguments.limit]
    if not found:
        return "Nothing was found."
    return "\n\n".join(delimiters.enclose(item.text, item.title or item.ref, PAGE_CAP) for item in found)


def _hits(item: KnowledgeItem, words: set[str]) -> int:
    text = f"{item.title} {item.text}".lower()
    return sum(word in text for word in words)


_ANSWERS: Mapping[str, Callable[[Any, History, Sequence[KnowledgeItem], Delimiters], str]] = {
    "read_kernel": _read_kernel,
    "search_knowledge": _search_knowledge,
}
