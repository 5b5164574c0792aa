"""Answer the tools that need no runner: read a kernel of the run, search what is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from optimizer.agents import sections
from optimizer.agents.delimiters import Delimiters
from optimizer.agents.knowledge import KnowledgeItem
from optimizer.agents.task_sections import vector_sets
from optimizer.knowledge import search_knowledge
from optimizer.search.base import History
from optimizer.tools.catalogue import Arguments, ReadKernelArguments, SearchArguments

PAGE_CAP = 6_000
MOST_FINDINGS = 3


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
    arguments: SearchArguments, history: History, knowledge: Sequence[KnowledgeItem], delimiters: Delimiters
) -> str:
    """Return the shipped pages that fit best, and after them what the team has found out."""
    pages = search_knowledge(arguments.query, history.target, arguments.limit, vector_sets(history))
    found = [(page.title, page.markdown) for page in pages]
    found += [(item.title or item.ref, item.text) for item in _findings(arguments, knowledge)]
    if not found:
        return "Nothing was found."
    return "\n\n".join(delimiters.enclose(text, title, PAGE_CAP) for title, text in found)


def _findings(arguments: SearchArguments, knowledge: Sequence[KnowledgeItem]) -> list[KnowledgeItem]:
    """Return the findings that share most words with the query."""
    words = {word for word in arguments.query.lower().split() if len(word) > 2}
    hits = {item.ref: sum(word in f"{item.title} {item.text}".lower() for word in words) for item in knowledge}
    ranked = sorted((item for item in knowledge if hits[item.ref]), key=lambda item: -hits[item.ref])
    return ranked[:MOST_FINDINGS]


_ANSWERS: Mapping[str, Callable[[Any, History, Sequence[KnowledgeItem], Delimiters], str]] = {
    "read_kernel": _read_kernel,
    "search_knowledge": _search_knowledge,
}
