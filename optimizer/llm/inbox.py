"""The provider that is a person, or an agent outside: the prompt waits until somebody answers it."""

from __future__ import annotations

from optimizer.llm.port import Cancelled, Completion, CompletionRequest, OnToken, Provider, ProviderError


class AnsweredLaterError(ProviderError):
    """Nobody answers now; the prompt has to wait."""


class Inbox(Provider):
    """See the module. `optimizer.actions.inbox` takes the answers in."""

    def complete(self, request: CompletionRequest, *, on_token: OnToken, cancelled: Cancelled) -> Completion:
        """Never answers: raises AnsweredLaterError."""
        raise AnsweredLaterError("the prompt waits in the inbox")
