"""Test that results survive JSON with their flags: known ones as members of `Flag`, all others as the text that they
are."""

from __future__ import annotations

import json

import pytest

from runners.job import CaseResult, Flag, JobResult, Status
from runners.wire import WireError, dumps, loads


def decoded(*flags: str) -> list[Flag | str]:
    """Return the flags of a result that was sent as JSON."""
    text = dumps(JobResult("1", Status.CORRECT, flags=list(flags), cases=[CaseResult("one", True)]))
    return loads(JobResult, text).flags


def test_a_known_flag_arrives_as_a_member_of_the_enumeration() -> None:
    (flag,) = decoded("unconfirmed")
    assert flag is Flag.UNCONFIRMED


def test_the_finding_of_a_second_reader_arrives_as_text() -> None:
    assert decoded("kernelguard:TIMER_MONKEYPATCH") == ["kernelguard:TIMER_MONKEYPATCH"]


def test_a_flag_travels_under_its_value() -> None:
    plain = json.loads(dumps(JobResult("1", Status.CORRECT, flags=[Flag.NOT_TIMED])))
    assert plain["flags"] == ["not_timed"]


def test_a_flag_that_is_no_text_is_refused() -> None:
    text = dumps(JobResult("1", Status.CORRECT)).replace('"flags": []', '"flags": [7]')
    with pytest.raises(WireError, match="flags"):
        loads(JobResult, text)
