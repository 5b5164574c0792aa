"""Ask any server that speaks OpenAI's API: OpenAI, Azure (its v1 address), Gemini, the compatible endpoints of
Anthropic and AMD, vLLM, llama.cpp, Ollama.

Differences between servers are discovered by asking: a request is sent with all parameters, and repeated without the
optional one that the server refused. A failure before an answer is retried with back-off. A failure in the middle of
an answer is not (nor does the SDK), because tokens may have been paid for; the caller decides.
"""

from __future__ import annotations

import asyncio
import functools
import json
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import httpx2
import openai
from openai import AsyncOpenAI

from optimizer.llm.addresses import ForbiddenAddressError, PinnedTransport, check_base_url
from optimizer.llm.dialects import DIALECTS, Dialect, NotThisApiError, PartialAnswer, ServerReportedError
from optimizer.llm.endpoint import Endpoint
from optimizer.llm.port import (
    CallCancelledError,
    Cancelled,
    Completion,
    CompletionRequest,
    InterruptedStreamError,
    OnToken,
    Provider,
    ProviderRefusedError,
    ProviderUnavailableError,
    RequestedTool,
    Try,
)
from optimizer.llm.pump import Pump, PumpCancelledError
from optimizer.llm.retries import RETRIED_STATUSES, retry_after_s
from optimizer.secrets.keys import Scrubber, redact, redact_values

MAX_ERROR_CHARACTERS = 2_000
# What reading an answer raises that has another shape than the API's: the SDK checks none of it.
MISSHAPEN = (AttributeError, TypeError, LookupError)


@dataclass
class _Progress:
    """Hold what happened so far while one request is answered."""

    without: set[str]
    dropped: list[str] = field(default_factory=list)
    tries: list[Try] = field(default_factory=list)
    answer: PartialAnswer | None = None

    @property
    def partial(self) -> str:
        return self.answer.content if self.answer else ""


class OpenAiCompatible(Provider):
    """Ask one endpoint; the module describes the policy. Nothing is kept between requests."""

    def __init__(self, endpoint: Endpoint, rng: random.Random | None = None) -> None:
        self.endpoint = endpoint
        self._rng = rng or random.SystemRandom()

    def complete(self, request: CompletionRequest, *, on_token: OnToken, cancelled: Cancelled) -> Completion:
        """Send the request and return the completion. Raises ProviderError (see `Provider.complete`)."""
        progress = _Progress(set(self.endpoint.without))
        scrub = functools.partial(redact, key=self.endpoint.key)
        # The server may be hostile or echo its input: the key must not reach a page, not even split over two
        # pieces.
        pieces = Scrubber(self.endpoint.key, on_token)
        try:
            completion = Pump(lambda emit: self._answer(request, progress, emit)).run(pieces.feed, cancelled)
            pieces.close()
            return completion
        except PumpCancelledError:
            raise CallCancelledError(
                "cancelled", partial=scrub(progress.partial), maybe_spent=progress.answer is not None
            ) from None
        except ForbiddenAddressError as error:
            raise ProviderRefusedError(str(error)) from error

    async def _answer(
        self, request: CompletionRequest, progress: _Progress, emit: Callable[[str], None]
    ) -> Completion:
        check_base_url(self.endpoint.base_url)
        dialect = DIALECTS[request.api]
        async with self._client() as client:
            while True:
                answer = progress.answer = PartialAnswer(emit)
                parameters = dialect.parameters(request, frozenset(progress.without))
                try:
                    async with asyncio.timeout(request.timeout_s):
                        await dialect.ask(client, parameters, answer)
                    return self._completion(answer, progress, parameters)
                # An empty stream was answered: ask once more without streaming.
                except _Repeat:
                    continue
                except (
                    openai.OpenAIError,
                    httpx2.HTTPError,
                    TimeoutError,
                    ValueError,
                    ServerReportedError,
                    NotThisApiError,
                    *MISSHAPEN,
                ) as error:
                    await self._recover(error, dialect, parameters, progress)

    def _client(self) -> AsyncOpenAI:
        transport = PinnedTransport(allow_private=self.endpoint.allow_private)
        timeout = httpx2.Timeout(self.endpoint.silence_s, connect=self.endpoint.connect_s)
        # The SDK would otherwise take a key from the environment of whoever started the worker.
        key = self.endpoint.key or "none"
        return AsyncOpenAI(
            api_key=key,
            base_url=self.endpoint.base_url,
            # Retries are our own: the SDK's are not recorded, and it may repeat what has been paid for.
            max_retries=0,
            timeout=timeout,
            default_headers={"Authorization": f"Bearer {key}"},
            http_client=httpx2.AsyncClient(
                transport=transport, timeout=timeout, follow_redirects=False, trust_env=False
            ),
        )

    def _completion(self, answer: PartialAnswer, progress: _Progress, parameters: dict[str, Any]) -> Completion:
        """Return the finished answer. Raises InterruptedStreamError where the stream stopped without saying that it
        ended.
        """
        text = answer.content
        if not answer.finish and not answer.refusal:
            if not text and not answer.tools.calls and parameters.get("stream"):
                self._drop("stream", "the stream was empty", progress)
                raise _Repeat
            raise InterruptedStreamError(
                "the stream ended in the middle of the answer"
                if parameters.get("stream")
                else "the server did not say that its answer was complete",
                partial=redact(text, self.endpoint.key),
                maybe_spent=True,
                tries=tuple(progress.tries),
            )
        return Completion(
            text=redact(text, self.endpoint.key),
            usage=answer.usage,
            finish="refusal" if answer.refusal and not text else answer.finish or "stop",
            model=answer.model[:120],
            refusal=redact(answer.refusal, self.endpoint.key)[:MAX_ERROR_CHARACTERS],
            first_token_s=answer.first_token_s,
            duration_s=time.monotonic() - answer.started,
            tries=tuple(progress.tries),
            dropped=tuple(progress.dropped),
            request_id=answer.request_id[:100],
            tool_calls=tuple(self._redacted(call) for call in answer.tools.finished()),
            items=tuple(answer.items),
        )

    def _redacted(self, call: RequestedTool) -> RequestedTool:
        """Return a tool call without the key, which the server may echo in any text."""
        return replace(call, arguments=redact_values(call.arguments, self.endpoint.key))

    async def _recover(
        self, error: Exception, dialect: Dialect, sent: Mapping[str, Any], progress: _Progress
    ) -> None:
        """Return to have the request sent again; raise ProviderError when it must not be."""
        words = self._words(error)
        forbidden = _cause(error, ForbiddenAddressError)
        if forbidden is not None:
            raise ProviderRefusedError(str(forbidden), tries=tuple(progress.tries)) from error
        if isinstance(error, NotThisApiError):
            raise ProviderRefusedError(words, tries=tuple(progress.tries)) from error
        if isinstance(error, openai.APIStatusError):
            await self._recover_status(error, words, dialect, sent, progress)
        # No connection was made, so nothing can have been charged.
        elif _was_never_sent(error):
            await self._pause(words, None, progress)
        else:
            raise InterruptedStreamError(
                words,
                partial=redact(progress.partial, self.endpoint.key),
                maybe_spent=True,
                tries=tuple(progress.tries),
            ) from error

    async def _recover_status(
        self,
        error: openai.APIStatusError,
        words: str,
        dialect: Dialect,
        sent: Mapping[str, Any],
        progress: _Progress,
    ) -> None:
        if error.status_code in {400, 404, 415, 422, 501}:
            name = refused_parameter(error, dialect, sent)
            if name is not None:
                self._drop(name, words, progress)
                return
        if error.status_code not in RETRIED_STATUSES or _is_out_of_credit(error):
            raise ProviderRefusedError(words, tries=tuple(progress.tries)) from error
        await self._pause(words, retry_after_s(error.response.headers), progress)

    def _drop(self, name: str, words: str, progress: _Progress) -> None:
        """Continue without an optional parameter."""
        progress.without.add(name)
        progress.dropped.append(name)
        progress.tries.append(Try(words))

    async def _pause(self, words: str, asked_s: float | None, progress: _Progress) -> None:
        """Wait before the next try, or raise when no try is left."""
        # Tries without a pause only dropped a parameter and are no failures.
        failures = sum(1 for earlier in progress.tries if earlier.waited_s) + 1
        pause_s = self.endpoint.policy.pause_s(failures, asked_s, self._rng)
        if pause_s is None:
            asked = f" (the server asks to wait {asked_s:.0f} s)" if asked_s else ""
            raise ProviderUnavailableError(f"{words}{asked}", tries=tuple(progress.tries))
        progress.tries.append(Try(words, waited_s=max(round(pause_s, 3), 0.001)))
        progress.answer = None
        await asyncio.sleep(pause_s)

    def _words(self, error: Exception) -> str:
        """Describe the error without the key, cut to a readable length."""
        return redact(_describe(error), self.endpoint.key)[:MAX_ERROR_CHARACTERS]


class _Repeat(Exception):
    """Signal that the request should be sent again immediately."""


def refused_parameter(error: openai.APIStatusError, dialect: Dialect, sent: Mapping[str, Any]) -> str | None:
    """Return the optional parameter about which a server's 4xx answer complains, or None.

    Servers that only say "bad request" usually mean the structured answer.
    """
    body = error.body if isinstance(error.body, dict) else {}
    named = str(body.get("param") or "").lower()
    message = f"{error.message} {json.dumps(body, default=str)}".lower()
    for name, words in dialect.optional.items():
        if name in sent and named and any(named.startswith(word) for word in words):
            return name
    for name, words in dialect.optional.items():
        if name in sent and any(word in message for word in words):
            return name
    # Dropping the schema is the most likely cure for an unexplained 400.
    structured = next((name for name in ("response_format", "text") if name in sent), None)
    return structured if error.status_code in {400, 422} and not _is_about_length(message) else None


def _is_about_length(message: str) -> bool:
    return "context" in message or "too long" in message or "maximum" in message


def _is_out_of_credit(error: openai.APIStatusError) -> bool:
    """Return whether the account is empty. OpenAI answers 429 for that too, but waiting does not help."""
    return error.code == "insufficient_quota"


def _was_never_sent(error: Exception) -> bool:
    """Return True when the server cannot have begun an answer."""
    return _cause(error, httpx2.ConnectError) is not None or _cause(error, httpx2.ConnectTimeout) is not None


def _cause(error: BaseException | None, kind: type[BaseException]) -> BaseException | None:
    """Return the first error of that kind in the chain of causes, or None."""
    # The SDK wraps the errors of the HTTP library in its own.
    while error is not None and not isinstance(error, kind):
        error = error.__cause__ or error.__context__
    return error


def _describe(error: Exception) -> str:
    if isinstance(error, openai.APIStatusError):
        return f"HTTP {error.status_code}: {_status_message(error)}"
    if isinstance(error, TimeoutError):
        return "the answer took longer than its time"
    if isinstance(error, openai.APITimeoutError):
        return "the server stopped sending"
    if isinstance(error, openai.APIConnectionError):
        return f"the connection failed: {error.__cause__ or error}"
    if isinstance(error, json.JSONDecodeError):
        return "the server sent something that is not JSON"
    if isinstance(error, ServerReportedError | NotThisApiError):
        return str(error)
    if isinstance(error, MISSHAPEN):
        return f"the server sent something that has another shape than an answer: {error}"
    return f"{type(error).__name__}: {error}"


def _status_message(error: openai.APIStatusError) -> str:
    """Return the server's own message: of OpenAI's error object, of FastAPI's `detail`, or the plain text it sent."""
    if isinstance(error.body, dict):
        return str(error.body.get("message") or error.body.get("detail") or error.message)
    return str(error.body or error.message)
