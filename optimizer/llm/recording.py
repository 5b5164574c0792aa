"""Define the file format of a recorded run: one JSON document, gzipped on disk, validated strictly when read."""

from __future__ import annotations

import datetime as dt
import gzip
import hashlib
import io
import json
import re
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from optimizer.text.complaints import complaints_of

# Since format 2, questions carry their context, so that a replay follows the recorded decisions.
FORMAT: Literal[2] = 2

MAX_RECORD_BYTES = 64 * 1024 * 1024
# As `optimizer.search.machinery.seeds.EARLIER_KEY` begins, with a number.
_EARLIER = re.compile(r"seed\.earlier[1-9][0-9]{0,3}")
_MARK = re.compile(r"(<<<(?:BEGIN|END) DATA) [0-9a-f]{16}")


class RecordError(ValueError):
    """Report a file that is not a recording; the message gives the reason."""


class RecordedToolCall(BaseModel):
    """Hold a tool call as the model wrote it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(max_length=40)
    arguments: dict[str, Any] = {}


class RecordedTurn(BaseModel):
    """Hold an answer that called tools. `calls` is empty where the calls are part of the text."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    text: str = Field(default="", max_length=2_100_000)
    calls: list[RecordedToolCall] = Field(default=[], max_length=20)


class RecordedCall(BaseModel):
    """Hold one attempt. `prompt_sha256` is the `prompt_hash` of the messages.

    `context` is that of the strategy's question: keys of kernels and hypotheses. It is empty in recordings of format 1.
    `turns` came before the answer; with `submitted`, the answer is a complete kernel whatever its schema.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    key: str = Field(max_length=120)
    role: str = Field(max_length=20)
    attempt: int = Field(ge=1)
    state: str = Field(max_length=10)
    model: str = Field(default="", max_length=120)
    prompt_version: str = Field(default="", max_length=80)
    prompt_sha256: str = Field(default="", max_length=64)
    context: dict[str, Any] = {}
    answer_schema: str = Field(default="", max_length=60)
    answer_text: str = Field(default="", max_length=2_100_000)
    error: str = Field(default="", max_length=4_000)
    prompt_tokens: int | None = None
    answer_tokens: int | None = None
    submitted: bool = False
    turns: list[RecordedTurn] = Field(default=[], max_length=200)


class RecordedKernel(BaseModel):
    """Hold a kernel that no recorded answer wrote and that recorded answers may build on.

    Either parameter tuning made it from its parent, or a warm start took it over from an earlier run, in which case
    `parent` is empty. A replay cannot make it again: tuning depends on measured times, and a warm start on the runs
    that exist.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    key: str = Field(max_length=120)
    parent: str = Field(default="", max_length=120)
    title: str = Field(default="", max_length=200)
    language: Literal["cpp", "hip", "cuda", "triton", "python"]
    text: str = Field(max_length=1_100_000)
    tunables: dict[str, int | float | str | bool] = {}
    flags: list[str] = []


class RunRecord(BaseModel):
    """Hold a recorded run: what was asked, what was answered, and the outcome on the machine where it ran."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal[1, 2] = FORMAT
    title: str = Field(default="", max_length=200)
    problem: str = Field(max_length=200)
    target: str = Field(max_length=80)
    strategy: str = Field(max_length=40)
    settings: dict[str, Any] = {}
    seed: int = 0
    recorded_on: dt.date
    kernels: int = 0
    evaluations: int = Field(default=0, ge=0)
    best_speedup: float | None = None
    calls: list[RecordedCall] = Field(max_length=100_000)
    tuned: list[RecordedKernel] = Field(default=[], max_length=10_000)
    earlier: list[RecordedKernel] = Field(default=[], max_length=10)

    @field_validator("earlier")
    @classmethod
    def _is_named_as_by_a_warm_start(cls, earlier: list[RecordedKernel]) -> list[RecordedKernel]:
        """Refuse keys that could be those of the run's own kernels, which would not be measured then."""
        keys = [kernel.key for kernel in earlier]
        if len(set(keys)) < len(keys) or not all(_EARLIER.fullmatch(key) for key in keys):
            raise ValueError(
                "the keys of kernels from earlier runs must be seed.earlier1, seed.earlier2 …, each once"
            )
        if any(kernel.parent for kernel in earlier):
            raise ValueError("a kernel from an earlier run must not have a parent")
        return earlier

    def answer_to(self, key: str, role: str) -> RecordedCall | None:
        """Return the accepted answer to a question, or None."""
        # A question may have failed attempts; only the accepted answer is replayed.
        fits = (call for call in self.calls if (call.key, call.role, call.state) == (key, role, "answered"))
        return next(fits, None)

    def turns_to(self, key: str, role: str) -> list[RecordedTurn]:
        """Return the turns with tool calls before the answer to a question, over all its attempts."""
        mine = sorted(
            (call for call in self.calls if (call.key, call.role) == (key, role)), key=lambda c: c.attempt
        )
        return [turn for call in mine for turn in call.turns]


def prompt_hash(messages: Any) -> str:
    """Return the SHA-256 of messages as canonical JSON, whatever the mark of their delimiters.

    The mark differs between runs, so equal prompts of two runs have equal hashes only without it.
    """
    plain = json.dumps(messages, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(_MARK.sub(r"\1", plain).encode()).hexdigest()


def to_bytes(record: RunRecord) -> bytes:
    """Return the content of the file. Equal recordings give equal bytes."""
    plain = json.dumps(record.model_dump(mode="json"), ensure_ascii=False, sort_keys=True, indent=1)
    # A time stamp in the gzip header would make equal recordings differ.
    return gzip.compress(plain.encode(), mtime=0)


def from_bytes(data: bytes) -> RunRecord:
    """Parse a recording, gzipped or not. Raises RecordError."""
    try:
        # The magic bytes of gzip.
        if data[:2] == b"\x1f\x8b":
            data = _unzipped(data)
        return RunRecord.model_validate_json(data)
    except ValidationError as error:
        raise RecordError(complaints_of(error)[0].told_of("file")) from error
    except (OSError, EOFError, ValueError) as error:
        raise RecordError(f"not a record: {error}") from error


def _unzipped(data: bytes) -> bytes:
    """Decompress up to the size limit. Raises RecordError beyond it, so that a small file cannot fill the memory."""
    with gzip.open(io.BytesIO(data)) as file:
        plain = file.read(MAX_RECORD_BYTES + 1)
    if len(plain) > MAX_RECORD_BYTES:
        raise RecordError("the record is larger than any run's")
    return plain
