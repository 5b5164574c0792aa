"""Let an agent write meta notes: every N kernels, what worked and what did not.

People may edit a note, and later prompts contain it (modelled on ShinkaEvolve's scratchpad). A later note never
replaces a person's text but is appended to it (see `optimizer.loop.steps`).
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from optimizer.search.base import History, Note
from optimizer.search.flow import Flow


class MetaSettings(BaseModel):
    """Define how often meta notes are written."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    every: int = Field(0, ge=0, le=1000, description="Write a note after every so many kernels; 0: never.")


def write_meta_notes(flow: Flow, number: int, settings: MetaSettings) -> None:
    """Request a note when kernel `number` completes a block of N. Raises Waiting until it is written."""
    if not settings.every or number % settings.every:
        return
    block = number // settings.every
    call = flow.ask(f"meta{block}", "meta", "NotesAnswer", {"upto": number})
    if call.answer is not None:
        text = "\n".join(f"- {note}" for note in call.answer["notes"])
        flow.note(Note(f"meta{block}.note", text, "run", _note_before(flow.history, block), call.key))


def _note_before(history: History, block: int) -> str | None:
    """Return the key of the last note before that block, or None. Calls that produced no note are skipped."""
    # Newest first, so the chain of notes has no gap even if a call failed.
    earlier = ((number, history.calls.get(f"meta{number}")) for number in range(block - 1, 0, -1))
    return next((f"meta{number}.note" for number, call in earlier if call and call.answer is not None), None)
