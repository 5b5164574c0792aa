"""Define what agents may answer: one closed class per kind, registered by name, and how text is parsed into it.

A class is written either as JSON (`JsonAnswer`: the server gets a JSON schema) or as prose with code (`TextAnswer`:
the class parses the text itself). Both raise AnswerError, whose message goes back to the sender.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Self

from pydantic import Field

from optimizer.agents import role_answers  # noqa: F401 - registers the answers of the roles
from optimizer.agents.answer_base import ANSWERS, Answer, Basis, TextAnswer, register
from optimizer.agents.code_blocks import (
    AnswerError,
    Fault,
    apply_edits,
    has_edits,
    only_block,
    split_edits,
    without_thoughts,
)
from runners.job import Language

MAX_ANSWER_BYTES = 2_000_000
MAX_REPORT_CHARACTERS = 20_000
MAX_SOURCE_BYTES = 512 * 1024
_LABEL = re.compile(r"^[#*\s]*(TITLE|REPORT|RUBRIC)[*\s]*:[* \t]*", re.IGNORECASE | re.MULTILINE)


@register
class FreeAnswer(TextAnswer):
    """Accept any text that is not empty."""

    text: str

    @classmethod
    def read(cls, text: str, basis: Basis | None) -> Self:
        """Return the text as the answer."""
        return cls(text=text.strip())


@register
class KernelAnswer(TextAnswer):
    """Hold a kernel: a complete one in a single code block, or SEARCH/REPLACE edits of the basis.

    The text around the code is the writer's report and its statement on whether the experiment's rubric was followed.
    `language` is None where the answer does not say. `edits` is 0 for a complete kernel.
    """

    source: str
    language: Language | None = None
    title: str = ""
    report: str = ""
    rubric_followed: str = ""
    edits: int = Field(default=0, ge=0)

    @classmethod
    def read(cls, text: str, basis: Basis | None) -> Self:
        """Parse the kernel. Raises AnswerError."""
        answer = cls._edited(text, basis) if has_edits(text) else cls._complete(text)
        if len(answer.source.encode()) > MAX_SOURCE_BYTES:
            raise AnswerError(Fault.TOO_LONG, f"The kernel is longer than {MAX_SOURCE_BYTES // 1024} KiB.")
        return answer

    @classmethod
    def _complete(cls, text: str) -> Self:
        block, prose = only_block(text)
        return cls(source=block.text, language=language_named(block.info), **_told(prose))

    @classmethod
    def _edited(cls, text: str, basis: Basis | None) -> Self:
        edits, prose = split_edits(text)
        if basis is None:
            raise AnswerError(Fault.NO_BASIS, "There is no kernel to edit here. Send the complete kernel instead.")
        source = apply_edits(basis.text, edits)
        if not source.strip():
            raise AnswerError(Fault.NO_CODE, "The edits leave nothing of the kernel.")
        return cls(source=source, language=Language(basis.language), edits=len(edits), **_told(prose))


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


def language_named(info: str) -> Language | None:
    """Return the language that a code block's label names unambiguously (`python` may be Triton or plain Python)."""
    return {"c++": Language.CPP, "cpp": Language.CPP, "hip": Language.HIP, "cuda": Language.CUDA, "cu": Language.CUDA,
            "triton": Language.TRITON}.get(info)  # fmt: skip


def _told(prose: str) -> dict[str, str]:
    """Parse the text around the code by its labels TITLE:, REPORT: and RUBRIC:.

    Title and rubric take one line each. Unlabelled text belongs to the report.
    """
    before, *labelled = _LABEL.split(prose[:MAX_REPORT_CHARACTERS])
    said = {"TITLE": "", "RUBRIC": ""}
    report = [before]
    for label, text in zip(labelled[::2], labelled[1::2], strict=True):
        first, _, rest = text.partition("\n")
        if label.upper() in said:
            said[label.upper()] = first.strip(" *")
            report.append(rest)
        else:
            report.append(text)
    told = "\n".join(part.strip() for part in report if part.strip())
    return {"title": said["TITLE"][:200], "report": told, "rubric_followed": said["RUBRIC"][:400]}


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
