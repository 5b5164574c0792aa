"""Implement the provider that is a person or an outside agent: the prompt waits until somebody answers it."""

from __future__ import annotations

from optimizer.llm.port import Cancelled, Completion, CompletionRequest, OnToken, Provider, ProviderError


class AnsweredLaterError(ProviderError):
    """Signal that the prompt has to wait, because nobody answers immediately."""


class Inbox(Provider):
    """Leave prompts to the inbox. `optimizer.actions.inbox` accepts the answers."""

    def complete(self, request: CompletionRequest, *, on_token: OnToken, cancelled: Cancelled) -> Completion:
        """Raise AnsweredLaterError in every case."""
        raise AnsweredLaterError("the prompt waits in the inbox")
