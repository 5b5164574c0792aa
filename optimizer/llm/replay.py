"""The provider that is a record: what a model answered once is answered again, and said to be recorded."""

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
from optimizer.llm.record import RunRecord


class Replay(Provider):
    """Answers by (key, role) from one record. Kernels are built and timed anew; tokens are not spent again."""

    def __init__(self, record: RunRecord) -> None:
        self.record = record

    def complete(self, request: CompletionRequest, *, on_token: OnToken, cancelled: Cancelled) -> Completion:
        """See `Provider`. Raises ProviderRefusedError for a question that the record has no answer to: measured
        times differ from machine to machine, and with them the questions."""
        found = self.record.answer_to(request.key, request.role)
        if found is None:
            raise ProviderRefusedError(f"the record has no answer to {request.key} ({request.role})")
        on_token(found.answer_text)
        return Completion(
            text=found.answer_text,
            usage=Usage(prompt=0, answer=0),
            model=found.model,
            finish="stop",
            recorded=True,
        )
