"""What every provider is: a request goes in, a completion or a named failure comes out."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MAX_ANSWER_CHARACTERS = 2_000_000
CHARACTERS_PER_TOKEN = 4.0  # rule of thumb for English and code, used only where a server reports no usage

Message = Mapping[str, str]
OnToken = Callable[[str], None]
Cancelled = Callable[[], bool]


@dataclass(frozen=True)
class CompletionRequest:
    """One question. `schema` is the JSON schema that the answer must fit, or None for plain text. `temperature` and
    `effort` of None mean: the server's own. `api` is chat or responses. `key` and `role` find a recorded answer."""

    messages: Sequence[Message]
    model: str = ""
    temperature: float | None = None
    effort: str | None = None
    max_tokens: int | None = None
    schema: Mapping[str, Any] | None = None
    schema_name: str = "answer"
    api: str = "chat"
    timeout_s: float = 600.0
    key: str = ""
    role: str = ""
    attempt: int = 1


@dataclass(frozen=True)
class Usage:
    """Tokens as the server counted them; None where it did not say. `prompt` includes `cached`, `answer` includes
    `reasoning`."""

    prompt: int | None = None
    answer: int | None = None
    cached: int | None = None
    reasoning: int | None = None


@dataclass(frozen=True)
class Try:
    """A request that produced nothing and was sent again: what went wrong, and the pause before the next one."""

    error: str
    waited_s: float = 0.0


@dataclass(frozen=True)
class Completion:
    """An answer as it came. `finish` is stop, length, refusal or filter. `dropped` names the optional parameters
    that the server refused and that the request was repeated without."""

    text: str
    usage: Usage = Usage()
    finish: str = "stop"
    model: str = ""
    refusal: str = ""
    first_token_s: float | None = None
    duration_s: float | None = None
    tries: tuple[Try, ...] = ()
    dropped: tuple[str, ...] = ()
    recorded: bool = False
    request_id: str = ""


class ProviderError(Exception):
    """The provider gave no answer. `partial` is what had arrived: where it is not empty, or `maybe_spent` is set,
    tokens may have been paid for. `tries` are the repetitions that went before."""

    def __init__(
        self, message: str, *, partial: str = "", maybe_spent: bool = False, tries: tuple[Try, ...] = ()
    ) -> None:
        super().__init__(message)
        self.partial = partial
        self.maybe_spent = maybe_spent or bool(partial)
        self.tries = tries


class ProviderRefusedError(ProviderError):
    """The server refused for a reason that asking again will not mend: wrong key, unknown model, forbidden address."""


class ProviderUnavailableError(ProviderError):
    """The server did not answer, after all repetitions."""


class InterruptedStreamError(ProviderError):
    """The answer broke off: the stream was cut, fell silent, or took longer than its time."""


class CallCancelledError(ProviderError):
    """Whoever asked no longer wants the answer."""


class Provider(ABC):
    """Something that answers. One subclass per kind, registered in `optimizer.llm.registry`."""

    @abstractmethod
    def complete(self, request: CompletionRequest, *, on_token: OnToken, cancelled: Cancelled) -> Completion:
        """The answer to `request`. `on_token` gets pieces of it as they arrive, in order; `cancelled` is polled a
        few times a second and may end the request. Both are called from the caller's thread, which may use the
        database. Raises ProviderError."""


def estimated_tokens(messages: Sequence[Message], answer: str) -> int:
    """Tokens guessed from characters, rounded up: for budgets, where a server reports no usage."""
    characters = sum(len(message.get("content", "")) for message in messages) + len(answer)
    return math.ceil(characters / CHARACTERS_PER_TOKEN)
