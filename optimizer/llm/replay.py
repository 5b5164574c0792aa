"""Implement the provider that repeats the answers of a recording and marks them as recorded."""

from __future__ import annotations

from optimizer.llm.port import (
    Cancelled,
    Completion,
    CompletionRequest,
    OnToken,
    Provider,
    ProviderRefusedError,
    Usage,
)
from optimizer.llm.recording import RunRecord


class Replay(Provider):
    """Answer by (key, role) from one recording. Kernels are built and timed anew; no tokens are spent."""

    def __init__(self, record: RunRecord) -> None:
        self.record = record

    def complete(self, request: CompletionRequest, *, on_token: OnToken, cancelled: Cancelled) -> Completion:
        """Return the recorded answer. Raises ProviderRefusedError for a question that the recording does not answer.

        Measured times differ between machines, and with them the questions that a strategy asks.
        """
        found = self.record.answer_to(request.key, request.role)
        if found is None:
            raise ProviderRefusedError(f"the record has no answer to {request.key} ({request.role})")
        on_token(found.answer_text)
        return Completion(
            text=found.answer_text,
            # Zero instead of unknown: a recorded answer costs nothing, and budgets must not estimate it.
            usage=Usage(prompt=0, answer=0),
            model=found.model,
            finish="stop",
            recorded=True,
        )
