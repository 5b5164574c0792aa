"""Attack the attribution of failures: what a candidate causes must be its own verdict, never the machine's."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runners.harness import evaluate
from runners.harness.verdict import screen
from runners.job import Effort, JobSpec, Language, Limits, Source, Status
from runners.limited_child import LimitedChild
from runners.problems import load
from runners.problems.syntax import NOT_PYTHON
from runners.wire import dumps, loads
from tests.attack.growth import MOST_GROWTH, exponent_of

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


@pytest.fixture
def hostile_reader(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have sources read by `tests.attack.hostile_reader`, which does what their last line says."""
    child = LimitedChild("tests.attack.hostile_reader", 0.3, 60.0, 60.0)
    monkeypatch.setattr(screen, "READER", child)
    yield
    child.close()


def built(text: str) -> Any:
    return evaluate(JobSpec("job", SOFTMAX, "cpu", Source(Language.PYTHON, text), Effort.BUILD))


@pytest.mark.usefixtures("hostile_reader")
def test_text_that_breaks_its_reader_is_rejected_and_the_next_one_is_read() -> None:
    for what, reason in {
        "searches forever": "more than 0.3 s of processor time",
        "allocates 4GiB": "MemoryError",
        "crashes now": "exit code -11",
        **{f"raises {error.__name__}": "unprepared" for error in (*NOT_PYTHON, OverflowError, KeyError)},
    }.items():
        found = built(f"{HONEST}# {what}\n")
        assert found.status is Status.REJECTED and reason in found.reasons[0], (what, found.reasons)
        assert found.stages[0].seconds < 30
    assert built(f"{HONEST}# returns None\n").status is Status.CORRECT


@pytest.mark.usefixtures("hostile_reader")
def test_machine_that_fails_during_the_screening_is_not_blamed_on_the_candidate() -> None:
    assert built(f"{HONEST}# raises OSError\n").status is Status.INFRA_ERROR


def test_machine_that_is_too_busy_to_read_is_not_blamed_on_the_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    child = LimitedChild("tests.attack.hostile_reader", 60.0, 0.05, 1.0)
    monkeypatch.setattr(screen, "READER", child)
    assert built(f"{HONEST}# searches forever\n").status is Status.INFRA_ERROR
    assert child.pid is None


def test_reading_process_has_none_of_the_workers_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_KEY", "canary")
    screen.READER.close()
    assert built(HONEST).status is Status.CORRECT
    assert b"canary" not in Path(f"/proc/{screen.READER.pid}/environ").read_bytes()


def test_control_the_search_of_the_hostile_reader_takes_too_long() -> None:
    """Measure once: with texts twice as long the search would take minutes."""
    exponent, _ = exponent_of(lambda text: re.match(r"(a+)+$", text), lambda size: "a" * (size + 15) + "b", 1)
    assert exponent > MOST_GROWTH
