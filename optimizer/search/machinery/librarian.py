"""Let an agent consolidate findings when they exceed their share of a prompt.

Every run of a problem adds findings that every later run reads, so they repeat each other and the oldest no longer fit.
The librarian reads the agents' findings and writes one document that supersedes them. People's findings stay as they
are.
"""

from __future__ import annotations

from optimizer.search.base import History, Note
from optimizer.search.flow import Flow
from optimizer.text.tokens import CHARACTERS_PER_TOKEN

# Tokens of a prompt for findings, digests and notes; hardware has a share of its own (`optimizer.agents.knowledge`).
FINDINGS_SHARE_TOKENS = 7_000


def exceed_their_share(history: History) -> bool:
    """Return True when the agents' findings that apply to the run do not fit into their share of a prompt."""
    return sum(map(len, history.findings)) > FINDINGS_SHARE_TOKENS * CHARACTERS_PER_TOKEN


def consolidate_findings(flow: Flow, number: int) -> None:
    """Request the document after round `number` if the findings are too long. Raises Waiting until it is written."""
    key = f"r{number}.librarian"
    # Only the newest round asks; a question that was asked once is part of every replay.
    is_newest = f"r{number + 1}.select" not in flow.history.calls
    if key not in flow.history.calls and not (is_newest and exceed_their_share(flow.history)):
        return
    call = flow.ask(key, "librarian", "LibrarianAnswer", {"round": number})
    if call.answer is not None:
        text = "\n".join(f"- {finding}" for finding in call.answer["findings"])
        flow.note(Note(f"{key}.note", text, "problem", call_key=call.key, consolidates=True))
