"""Attack the attribution of failures: what a candidate causes must be its own verdict, never the machine's."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from runners.harness import evaluate
from runners.harness.verdict import screen
from runners.job import Effort, JobSpec, Language, Limits, Source, Status
from runners.problems import load
from runners.problems.syntax import NOT_PYTHON
from runners.wire import dumps, loads

SOFTMAX = load("softmax_rows")
HONEST = "import torch\ndef custom_kernel(x):\n    return torch.softmax(x, -1)\n"
# Replaces what the candidate's process answers to the referee; `forge` changes an answer.
FORGES = """
import sys
import torch
channel = sys.modules["candidate.channel"]
honest_send = channel.Channel.send
def custom_kernel(x):
    return torch.softmax(x, -1)
def send(self, message):
    import json, os
    body = forge(json.dumps(message), message)
    view = memoryview(len(body).to_bytes(4, "big") + body)
    while view:
        view = view[os.write(self.descriptor, view):]
channel.Channel.send = send
"""
TIME_OF_400_DIGITS = (
    FORGES
    + """
def forge(text, message):
    if "inside_ns" in message:
        import re
        text = re.sub(r'"inside_ns": \\[(\\d+)', '"inside_ns": [1' + "0" * 400, text)
    return text.encode()
"""
)
TIME_OF_9000_DIGITS = TIME_OF_400_DIGITS.replace("400", "9000")
LONE_SURROGATE = (
    FORGES
    + """
def forge(text, message):
    if "inside_ns" in message:
        text = '{"nonce": "%s", "ok": false, "kind": "\\\\ud800", "message": "a\\\\udfff\\\\u0000b", "text": ""}' % (
            message["nonce"])
    return text.encode()
"""
)
NESTED = (
    FORGES
    + """
def forge(text, message):
    if "inside_ns" in message:
        text = text[:-1] + ', "more": ' + "[" * 900 + "]" * 900 + "}"
        text = text.replace('"inside_ns": [', '"inside_ns": [' + "[" * 900 + "]" * 900 + ", ")
    return text.encode()
"""
)


def evaluated(text: str) -> Any:
    spec = JobSpec("job", SOFTMAX, "cpu", Source(Language.PYTHON, text), Effort.CHECK, limits=Limits(call_s=20.0))
    return evaluate(spec)


@pytest.mark.evaluates
@pytest.mark.parametrize(
    "text",
    [
        pytest.param(TIME_OF_400_DIGITS, id="a time of 400 digits"),
        pytest.param(TIME_OF_9000_DIGITS, id="a time of 9,000 digits", marks=pytest.mark.long),
        pytest.param(LONE_SURROGATE, id="a message that is no text"),
        pytest.param(NESTED, id="nested lists for a time", marks=pytest.mark.long),
    ],
)
def test_forged_answer_is_the_candidates_crash_and_can_be_stored(text: str) -> None:
    found = evaluated(text)
    assert found.status is Status.CRASHED, found.reasons
    assert loads(type(found), dumps(found).encode()).status is Status.CRASHED


def test_control_a_time_of_400_digits_is_no_float() -> None:
    with pytest.raises(OverflowError):
        10**400 / 1e3


def test_control_the_parser_raises_more_than_syntax_errors_for_unary_operators() -> None:
    with pytest.raises((MemoryError, RecursionError, SystemError)):
        ast.parse("y = " + "-" * 8000 + "1")


@pytest.mark.parametrize("operator", ["-", "not ", "lambda: ", "(", "a.", "[", "1+", "*"])
@pytest.mark.parametrize("language", [Language.PYTHON, Language.TRITON])
def test_deeply_nested_text_is_refused_as_the_candidates(operator: str, language: Language) -> None:
    source = Source(language, f"{HONEST}y = {operator * 8000}1\n")
    found = evaluate(JobSpec("job", SOFTMAX, "cpu", source, Effort.BUILD))
    assert found.status in (Status.BUILD_FAILED, Status.REJECTED, Status.CORRECT), found.reasons


@pytest.mark.parametrize("error", [*NOT_PYTHON, OverflowError, UnicodeError, KeyError])
def test_text_that_breaks_the_screening_is_rejected(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_arguments: object) -> list[str]:
        raise error("unprepared")

    monkeypatch.setattr(screen, "complaints", broken)
    found = evaluate(JobSpec("job", SOFTMAX, "cpu", Source(Language.PYTHON, HONEST), Effort.BUILD))
    assert found.status is Status.REJECTED and "unprepared" in found.reasons[0]


def test_machine_that_fails_during_the_screening_is_not_blamed_on_the_candidate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_arguments: object) -> list[str]:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(screen, "complaints", broken)
    found = evaluate(JobSpec("job", SOFTMAX, "cpu", Source(Language.PYTHON, HONEST), Effort.BUILD))
    assert found.status is Status.INFRA_ERROR
