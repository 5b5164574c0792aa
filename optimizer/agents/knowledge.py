"""Select the documents for a prompt: hardware within its own share, the rest most specific and newest first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from optimizer.agents.bottlenecks import bottlenecks_in
from optimizer.agents.task_sections import vector_sets
from optimizer.knowledge import Task, pages_for
from optimizer.search.base import Ask, History, KernelView, fastest
from optimizer.search.machinery.librarian import FINDINGS_SHARE_TOKENS
from optimizer.text.tokens import tokens_of
from runners.job import Language

# Tokens reserved for hardware overviews and pages, however many findings there are. Findings may use what is left.
HARDWARE_SHARE = 5_000
TOKEN_BUDGET = HARDWARE_SHARE + FINDINGS_SHARE_TOKENS
# The librarian reads all findings, up to this.
LIBRARIAN_BUDGET = 100_000
_SPECIFICITY = {"guidance": 0, "digest": 1, "run": 2, "problem": 3, "target": 4}
HARDWARE = "hardware"


@dataclass(frozen=True)
class KnowledgeItem:
    """Hold a finding, digest, hardware page, meta note or instruction. `ref` links back to its row or page."""

    ref: str
    scope: str
    title: str
    text: str
    origin: str = ""

    @property
    def tokens(self) -> int:
        """Estimate the length in tokens."""
        return tokens_of(len(self.text))


@dataclass(frozen=True)
class Selection:
    """Hold which documents were taken and which left out; stored with the call and shown on its page."""

    taken: Sequence[KnowledgeItem]
    left_out: Sequence[KnowledgeItem]
    budget_tokens: int

    def report(self) -> dict[str, object]:
        """Return the selection in the form of `LlmCall.context_report`."""
        return {
            "budget_tokens": self.budget_tokens,
            "taken": [_entry(item) for item in self.taken],
            "left_out": [_entry(item) for item in self.left_out],
        }


def knowledge_for(
    ask: Ask, history: History, language: Language, findings: Sequence[KnowledgeItem], budget_tokens: int
) -> Selection:
    """Select the documents for an ask: findings and helpful pages, or all findings of agents for the librarian."""
    if ask.role == "librarian":
        agents = [item for item in findings if item.origin == "agent" and item.scope != "digest"]
        return choose_knowledge(agents, LIBRARIAN_BUDGET)
    return choose_knowledge([*findings, *task_pages(ask, history, language)], budget_tokens)


def choose_knowledge(items: Iterable[KnowledgeItem], budget_tokens: int = TOKEN_BUDGET) -> Selection:
    """Select documents within the budget; `items` are ordered from oldest to newest, hardware from best to worst.

    People's guidance is always taken. Hardware has a share of its own. Then come digest, run notes, problem findings
    and target findings, newest first. What does not fit is left out entirely, because half a fact misleads.
    """
    given = list(items)
    hardware = [item for item in given if item.scope == HARDWARE]
    # The sort by scope is stable, so within a scope the newest stay first.
    others = [item for item in given[::-1] if item.scope not in {HARDWARE, "guidance"}]
    others.sort(key=lambda item: _SPECIFICITY.get(item.scope, 9))
    guidance = [item for item in given[::-1] if item.scope == "guidance"]
    known = _fitting(hardware, HARDWARE_SHARE * budget_tokens // TOKEN_BUDGET)
    learnt = _fitting(others, budget_tokens - sum(item.tokens for item in [*guidance, *known]))
    taken = [*guidance, *known, *learnt]
    chosen = {id(item) for item in taken}
    return Selection(taken, [item for item in [*hardware, *others] if id(item) not in chosen], budget_tokens)


def task_pages(ask: Ask, history: History, language: Language) -> list[KnowledgeItem]:
    """Return the shipped pages that apply to the run's target and machine, the most helpful for this prompt first.

    They are chosen by the problem's words and by what limits the kernel that the prompt is about.
    """
    problem = history.problem
    words = f"{problem.title}\n{problem.description}"
    task = Task(words, history.target, language, bottlenecks_of(_subject(ask, history)), vector_sets(history))
    return [
        KnowledgeItem(f"page-{page.name}", HARDWARE, page.title, page.markdown, "shipped")
        for page in pages_for(task)
    ]


def bottlenecks_of(kernel: KernelView | None) -> frozenset[str]:
    """Return what limits a kernel, in the words of `optimizer.knowledge.library.BOTTLENECKS`.

    It is empty for a kernel that was not measured.
    """
    result = kernel.result if kernel else None
    return bottlenecks_in(result) if result else frozenset()


def _subject(ask: Ask, history: History) -> KernelView | None:
    """Return the kernel that the prompt is to improve, or else the run's best."""
    named = (history.kernel(str(ask.context[name])) for name in ("base", "node") if name in ask.context)
    return next((kernel for kernel in named if kernel), None) or fastest(history.kernels)


def _fitting(items: Iterable[KnowledgeItem], budget_tokens: int) -> list[KnowledgeItem]:
    taken: list[KnowledgeItem] = []
    for item in items:
        if item.tokens <= budget_tokens:
            taken.append(item)
            budget_tokens -= item.tokens
    return taken


def _entry(item: KnowledgeItem) -> dict[str, object]:
    return {"ref": item.ref, "scope": item.scope, "title": item.title, "tokens": item.tokens}
