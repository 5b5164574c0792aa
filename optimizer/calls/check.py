"""Try a provider with one small question before a run depends on it."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace

from optimizer.calls.registry import endpoint_of
from optimizer.llm.port import CompletionRequest, Provider, ProviderError
from optimizer.llm.retries import RetryPolicy
from optimizer.models import Provider as ProviderRow
from optimizer.models import ProviderKind

TIMEOUT_S = 30.0
_QUESTION = "This is a connection test. Answer with a JSON object whose field `sum` is the sum of 19 and 23."
_SCHEMA = {
    "type": "object",
    "properties": {"sum": {"type": "integer"}},
    "required": ["sum"],
    "additionalProperties": False,
}


@dataclass(frozen=True)
class ProviderCheck:
    """Hold the result of a check.

    `structured` means that the server enforced the JSON schema by itself, `understood` that the answer was right.
    `without` names the parameters that the server refused.
    """

    answers: bool
    seconds: float
    structured: bool = False
    understood: bool = False
    streams: bool = False
    model: str = ""
    without: tuple[str, ...] = ()
    error: str = ""

    @property
    def summary(self) -> str:
        """Summarise the result in one sentence."""
        if not self.answers:
            return f"Does not answer: {self.error}"
        form = "structured output works" if self.structured else "structured output is asked for in words"
        doubt = "" if self.understood else "; the test sum came out wrong, so expect little of this model"
        return f"Answers in {self.seconds:.1f} s, {form}{doubt}."


def check_provider(row: ProviderRow, model: str = "") -> ProviderCheck:
    """Ask the provider's server for a sum. Never raises for what the server does, and takes half a minute at most."""
    if row.kind != ProviderKind.OPENAI_COMPATIBLE:
        return ProviderCheck(answers=True, seconds=0.0, structured=True, understood=True, streams=False)
    from optimizer.llm.openai_compatible import OpenAiCompatible  # takes a second to import

    model = model or row.default_model
    started = time.monotonic()
    try:
        endpoint = endpoint_of(row, model)
        # Forget the known refusals: a check should find out what the server accepts today.
        patient = replace(endpoint, policy=RetryPolicy(tries=1), silence_s=TIMEOUT_S, without=frozenset())
        return _asked(OpenAiCompatible(patient), row, model)
    except ProviderError as error:
        return ProviderCheck(answers=False, seconds=time.monotonic() - started, error=str(error)[:500])


def _asked(provider: Provider, row: ProviderRow, model: str) -> ProviderCheck:
    request = CompletionRequest(
        messages=[{"role": "user", "content": _QUESTION}],
        model=model,
        schema=_SCHEMA,
        schema_name="connection_test",
        api=row.api,
        timeout_s=TIMEOUT_S,
    )
    started = time.monotonic()
    deadline_s = started + TIMEOUT_S
    got = provider.complete(request, on_token=lambda text: None, cancelled=lambda: time.monotonic() > deadline_s)
    # If the server refused the schema parameter, a fitting answer came from the prompt's words.
    asked_by_schema = not {"response_format", "text"} & set(got.dropped)
    value = _decoded(got.text)
    return ProviderCheck(
        answers=True,
        seconds=time.monotonic() - started,
        structured=asked_by_schema and isinstance(value, dict),
        understood=isinstance(value, dict) and value.get("sum") == 42,
        streams="stream" not in got.dropped,
        model=got.model,
        without=got.dropped,
    )


def _decoded(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return None
