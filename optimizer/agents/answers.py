"""Define what agents may answer: one closed class per kind, registered by name, and how text is parsed into it.

A class is written either as JSON (`JsonAnswer`: the server gets a JSON schema) or as prose with code (`TextAnswer`:
the class parses the text itself). Both raise AnswerError, whose message goes back to the sender.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from optimizer.agents import kernel_answers, role_answers  # noqa: F401 - register the answers of the roles
from optimizer.agents.answer_base import ANSWERS, Answer, Basis, TextAnswer, register
from optimizer.agents.code_blocks import AnswerError, Fault, without_thoughts

MAX_ANSWER_BYTES = 2_000_000


@register
class FreeAnswer(TextAnswer):
    """Accept any text that is not empty."""

    text: str

    @classmethod
    def read(cls, text: str, basis: Basis | None) -> Self:
        """Return the text as the answer."""
        return cls(text=text.strip())


def parse_answer(
    schema: str, text: str, *, finish: str = "stop", refusal: str = "", basis: Basis | None = None
) -> Answer:
    """Parse a model's text as an answer of class `schema`. `finish` is the completion's.

    Raises AnswerError, and KeyError for an unregistered class, which is a bug.
    """
    cls = answer_class(schema)
    if refusal or finish in {"refusal", "filter"}:
        raise AnswerError(Fault.REFUSED, f"The model refused: {refusal or 'its answer was filtered'}"[:1000])
    if finish == "too_long" or len(text.encode("utf-8", "replace")) > MAX_ANSWER_BYTES:
        raise AnswerError(
            Fault.TOO_LONG, f"The answer is longer than {MAX_ANSWER_BYTES:,} bytes. Send only the answer."
        )
    if finish == "length":
        raise AnswerError(Fault.TRUNCATED, "The answer was cut at its token limit. Answer in fewer words.")
    # Reasoning may contain drafts of code blocks, which must not be taken for the answer.
    said = without_thoughts(text).replace("\r\n", "\n")
    if not said.strip():
        raise AnswerError(Fault.EMPTY, "The answer is empty.")
    return cls.read(said, basis)


def answer_class(schema: str) -> type[Answer]:
    """Return the answer class of that name, including those of the agents' roles. Raises KeyError."""
    return ANSWERS[schema]


def json_schema_of(schema: str) -> dict[str, Any] | None:
    """Return the strict JSON schema to request from a server, or None for an answer in prose."""
    cls = answer_class(schema)
    return _strict(cls.model_json_schema()) if cls.written_as_json else None


def _strict(schema: Any) -> Any:
    """Convert the schema to the form of servers' strict modes: all properties required, no others, no defaults."""
    if isinstance(schema, list):
        return [_strict(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    strict = {
        key: _strict(value) for key, value in schema.items() if key not in {"default", "title"} or _is_map(value)
    }
    if strict.get("type") == "object" and "properties" in strict:
        # Strict modes refuse schemas with optional properties; null stands for "absent".
        strict |= {"required": list(strict["properties"]), "additionalProperties": False}
    return strict


def _is_map(value: Any) -> bool:
    """Return True for a property that happens to be called `title` or `default`."""
    return isinstance(value, Mapping)
