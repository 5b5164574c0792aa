"""Define the base classes of what agents may answer, and how JSON is found in a text."""

from __future__ import annotations

import json
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from optimizer.agents.code_blocks import AnswerError, Fault
from optimizer.text.complaints import complaints_of

MAX_NAMED_PROBLEMS = 8
MAX_JSON_STARTS = 50


@dataclass(frozen=True)
class Basis:
    """Hold the kernel to which an answer's edits are applied."""

    text: str
    language: str


class Answer(BaseModel):
    """Provide the base class of all answers. The stored answer is `model_dump(mode="json")`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    written_as_json: ClassVar[bool]

    @classmethod
    @abstractmethod
    def read(cls, text: str, basis: Basis | None) -> Self:
        """Parse the answer in `text`. Raises AnswerError."""


class JsonAnswer(Answer):
    """Hold an answer that is one JSON object."""

    written_as_json = True

    @classmethod
    def read(cls, text: str, basis: Basis | None) -> Self:
        """Parse the answer; the JSON may be alone, in a code block, or between words. Raises AnswerError."""
        try:
            return cls.model_validate(extract_json(text))
        except ValidationError as error:
            raise AnswerError(Fault.WRONG_SHAPE, describe_problems(error)) from error


class TextAnswer(Answer):
    """Hold an answer in prose and code."""

    written_as_json = False


ANSWERS: dict[str, type[Answer]] = {}


AnswerClass = TypeVar("AnswerClass", bound=type[Answer])


def register(cls: AnswerClass) -> AnswerClass:
    """Make a class available as `answer_schema` under its own name."""
    ANSWERS[cls.__name__] = cls
    return cls


def extract_json(text: str) -> dict[str, Any]:
    """Return the JSON object in `text`; of several, the longest. Raises AnswerError."""
    whole = _decode(text.strip())
    if isinstance(whole, dict):
        return whole
    found = _objects(text)
    if not found:
        raise AnswerError(
            Fault.NOT_JSON, "There is no complete JSON object in the answer. Send one, and nothing else."
        )
    # Models quote small examples before the real answer, which is the longest object.
    return max(found, key=lambda pair: pair[0])[1]


def describe_problems(error: ValidationError) -> str:
    """Describe pydantic's errors as locations and messages, without the answer's own text."""
    lines = [complaint.told_of("answer") for complaint in complaints_of(error)]
    more = len(lines) - MAX_NAMED_PROBLEMS
    tail = [f"and {more} more"] if more > 0 else []
    return "The JSON object does not fit: " + "; ".join(lines[:MAX_NAMED_PROBLEMS] + tail)


def _decode(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except AnswerError:
        raise
    except (ValueError, RecursionError):
        return None


def _objects(text: str) -> list[tuple[int, dict[str, Any]]]:
    """Find JSON objects between words, with their lengths, trying a limited number of braces as hostile text has
    many.
    """
    decoder = json.JSONDecoder(parse_constant=_refuse_constant)
    found: list[tuple[int, dict[str, Any]]] = []
    position = text.find("{")
    # Each failed attempt may scan the rest of the text, so the number of attempts is limited.
    for _ in range(MAX_JSON_STARTS):
        if position < 0:
            break
        try:
            value, end = decoder.raw_decode(text, position)
            found.append((end - position, value))
        except AnswerError:
            raise
        except (ValueError, RecursionError):
            end = position + 1
        position = text.find("{", end)
    return found


def _refuse_constant(name: str) -> Any:
    """Raise AnswerError for NaN and Infinity, which Python accepts and JSON does not.

    Without this message, the answer would seem to contain no JSON at all.
    """
    raise AnswerError(Fault.NOT_JSON, f"{name} is no number in JSON. Give a finite one.")
