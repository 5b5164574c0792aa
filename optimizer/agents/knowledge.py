"""Select the documents for a prompt: most specific and newest first, until the token budget is spent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

TOKEN_BUDGET = 12_000
CHARACTERS_PER_TOKEN = 4
_SPECIFICITY = {"guidance": 0, "digest": 1, "run": 2, "problem": 3, "target": 4}


@dataclass(frozen=True)
class KnowledgeItem:
    """Hold a finding, digest, hardware note, meta note or instruction. `ref` links back to its row."""

    ref: str
    scope: str
    title: str
    text: str
    origin: str = ""

    @property
    def tokens(self) -> int:
        """Estimate the length in tokens."""
        return len(self.text) // CHARACTERS_PER_TOKEN + 1


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


def choose_knowledge(items: Iterable[KnowledgeItem], budget_tokens: int = TOKEN_BUDGET) -> Selection:
    """Select documents within the budget; `items` are ordered from oldest to newest.

    People's guidance is always taken. Then come digest, run notes, problem findings and target notes, newest first.
    What does not fit is left out entirely, because half a fact misleads.
    """
    # The sort by scope is stable, so within a scope the newest stay first.
    newest_first = list(items)[::-1]
    newest_first.sort(key=lambda item: _SPECIFICITY.get(item.scope, 9))
    taken: list[KnowledgeItem] = []
    left: list[KnowledgeItem] = []
    spent = 0
    for item in newest_first:
        if item.scope == "guidance" or spent + item.tokens <= budget_tokens:
            taken.append(item)
            spent += item.tokens
        else:
            left.append(item)
    return Selection(taken, left, budget_tokens)


def _entry(item: KnowledgeItem) -> dict[str, object]:
    return {"ref": item.ref, "scope": item.scope, "title": item.title, "tokens": item.tokens}
