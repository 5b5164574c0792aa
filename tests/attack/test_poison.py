"""Attack the exchange of jobs as files: nothing that lies in a spool directory may keep the rest from arriving."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from runners import wire
from runners.dispatch.spool import Slip, Spool
from runners.job import JobResult, JobSpec, Language, ProblemBundle, Source, Status
from runners.job_source import RunnerCard
from tests.attack.growth import seconds
from tests.signed import put

CARD = {"name": "w", "target": "cpu", "queues": ["spool.cpu"]}
RESULT = {"job_id": "evaluation-1", "status": "correct"}
SPEC = {
    "job_id": "evaluation-1", "target": "cpu",
    "problem": {"name": "p", "format": "native", "entry": "problem.toml", "files": {}},
    "candidate": {"language": "cpp", "text": "void f() {}"},
}  # fmt: skip
NESTED = "[" * 950 + "]" * 950
# What no message of ours holds, as JSON text of a value.
POISON = {
    "an integer of 4,000 digits": "1" + "0" * 4000,
    "an integer of 5,000 digits": "1" + "0" * 5000,
    "an integer of 65 bits": str(1 << 64),
    "a float out of range": "1e999",
    "no number": "NaN",
    "lists 950 deep": NESTED,
    "lists 90 deep": "[" * 90 + "]" * 90,
    "objects 200 deep": '{"a": ' * 200 + "1" + "}" * 200,
}


def poisoned(message: Mapping[str, object], field: str, value: str) -> bytes:
    return json.dumps({**message, field: "@"}).replace('"@"', value).encode()


@pytest.mark.parametrize("value", POISON.values(), ids=POISON)
@pytest.mark.parametrize(
    ("kind", "message", "field"),
    [(JobResult, RESULT, "profile"), (JobSpec, SPEC, "best_us"), (RunnerCard, CARD, "facts")],
    ids=["result", "job", "card"],
)
def test_poison_is_a_wire_error_wherever_it_stands(
    kind: type, message: dict[str, object], field: str, value: str
) -> None:
    for place in (value, f'{{"deep": {value}}}'):
        with pytest.raises(wire.WireError):
            wire.loads(kind, poisoned(message, field, place))


@pytest.mark.parametrize("value", [POISON["an integer of 4,000 digits"], POISON["lists 950 deep"]])
def test_control_python_reads_poison_and_fails_on_it_later(value: str) -> None:
    plain = json.loads(value)
    if isinstance(plain, list):
        # From 3.12 on Python takes one frame a level instead of two, and 950 levels fit within its limit.
        for _ in range(sys.getrecursionlimit()):
            plain = [plain]
    with pytest.raises((OverflowError, RecursionError)):
        float(plain) if isinstance(plain, int) else wire.to_plain(plain)


def test_lone_surrogates_and_nul_are_replaced_on_the_way_in_and_out() -> None:
    read = wire.loads(JobResult, poisoned(RESULT, "reasons", '["a\\ud800b", "\\u0000"]'))
    assert [reason.replace("\ufffd", "") for reason in read.reasons] == ["ab", ""]
    with pytest.raises(UnicodeEncodeError):
        "\ud800".encode()
    sent = wire.dumps(JobResult("1", Status.CRASHED, reasons=["\udfff"], profile={"\ud800": "\x00"}))
    assert wire.loads(JobResult, sent.encode()).reasons[0].strip("\ufffd") == ""


def test_infinite_figures_do_not_keep_a_result_from_being_sent() -> None:
    sent = wire.dumps(JobResult("1", Status.CORRECT, profile={"us": float("inf")}))
    assert wire.loads(JobResult, sent).profile == {"us": None}


def _as_folder(path: Path) -> None:
    path.mkdir()
    (path / "in").mkdir()


def _as_link(path: Path) -> None:
    path.symlink_to("/etc/passwd")


def _as_fifo(path: Path) -> None:
    os.mkfifo(path)


def _as_garbage(path: Path) -> None:
    path.write_bytes(b"\xff\xfe{")


def _as_nested(path: Path) -> None:
    put(Spool(path.parents[1]), path.parent.name, path.name, poisoned(RESULT, "profile", NESTED))


KINDS = [_as_folder, _as_link, _as_fifo, _as_garbage, _as_nested]


@pytest.mark.parametrize("make", KINDS)
def test_poisoned_result_is_put_aside_and_those_behind_it_are_delivered(
    make: Callable[[Path], None], tmp_path: Path
) -> None:
    spool = Spool(tmp_path / "spool")
    spool.deliver(Slip(2, 1), JobResult("evaluation-2", Status.CORRECT))
    make(spool.root / "results" / "1.1.json")
    # A folder where the refused file should go must not stop the exchange either.
    (spool.root / "refused" / "1.1.json" / "in").mkdir(parents=True)
    assert [slip.job_id for slip, _ in spool.results()] == [2]
    assert [slip.job_id for slip, _ in spool.results()] == [2]


@pytest.mark.parametrize("make", KINDS)
def test_poisoned_job_is_put_aside_and_those_behind_it_are_worked(
    make: Callable[[Path], None], tmp_path: Path
) -> None:
    spool = Spool(tmp_path / "spool")
    bundle = ProblemBundle("p", "native", "problem.toml", {})
    spool.offer(Slip(2, 1), JobSpec("evaluation-2", bundle, "cpu", Source(Language.CPP, "")))
    make(spool.root / "jobs" / "1.1.json")
    taken = spool.take()
    assert taken is not None and taken[0].job_id == 2


@pytest.mark.parametrize("value", POISON.values(), ids=POISON)
def test_poisoned_card_is_skipped_and_the_others_are_read(value: str, tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    put(spool, "runners", "a.json", poisoned(CARD, "facts", f'{{"job": {value}}}'))
    spool.introduce(RunnerCard("z", "cpu", ("spool.cpu",)))
    found: list[str] = []
    assert seconds(lambda _: found.extend(card.name for card, _ in spool.cards()), "") < 1.0
    assert found == ["z"]
