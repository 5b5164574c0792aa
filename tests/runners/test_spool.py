"""Test the spool directory: no job lost, none done by two, nothing read or written through what others laid there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from runners import wire
from runners.dispatch.spool import ABANDONED_AFTER_S, MOST_LOST, Slip, Spool, SpoolError, Turn
from runners.dispatch.spool_source import SpoolSource
from runners.job import (
    PROTOCOL_VERSION,
    READABLE_VERSIONS,
    Effort,
    JobResult,
    JobSpec,
    Language,
    ProblemBundle,
    Source,
    Status,
)
from runners.job_source import Beat, RunnerCard
from runners.problems import load
from runners.worker import work_once
from tests.signed import put

ROOT = Path(__file__).parents[2]
SLIP = Slip(7, 2)


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path / "spool")


def spec(number: int = 7, target: str = "cpu") -> JobSpec:
    bundle = ProblemBundle("p", "native", "problem.toml", {})
    return JobSpec(f"evaluation-{number}", bundle, target, Source(Language.CPP, "void f() {}"))


def result(number: int = 7) -> JobResult:
    return JobResult(f"evaluation-{number}", Status.CORRECT)


def files(spool: Spool) -> list[str]:
    """Return everything there, as folder/name."""
    return sorted(str(path.relative_to(spool.root)) for path in spool.root.rglob("*") if not path.is_dir())


def age(spool: Spool, folder: str, slip: Slip = SLIP, seconds: float = 2 * ABANDONED_AFTER_S) -> None:
    then = time.time() - seconds
    os.utime(spool.root / folder / slip.name, (then, then))


def evaluate(spec: JobSpec, **_more: Any) -> JobResult:
    return JobResult(spec.job_id, Status.CORRECT)


def test_a_job_goes_out_is_worked_and_comes_back(spool: Spool) -> None:
    spool.offer(SLIP, spec())
    assert work_once(SpoolSource(spool), "spool.cpu", "w", evaluate)
    assert list(spool.results()) == [(SLIP, result())]
    spool.acknowledge(SLIP)
    assert files(spool) == ["done/7.2.json"]
    assert not work_once(SpoolSource(spool), "spool.cpu", "w", evaluate)


@pytest.mark.parametrize("folder", ["jobs", "claimed", "results", "done"])
def test_a_job_that_is_there_already_is_not_offered_again(spool: Spool, folder: str) -> None:
    (spool.root / folder / SLIP.name).write_text("earlier")
    spool.offer(SLIP, spec())
    assert files(spool) == [f"{folder}/7.2.json"]
    assert (spool.root / folder / SLIP.name).read_text() == "earlier"


def test_many_workers_share_the_jobs_and_no_job_is_done_twice(spool: Spool) -> None:
    for number in range(60):
        spool.offer(Slip(number, 1), spec(number))
    done: list[str] = []

    def noted(spec: JobSpec, **_more: Any) -> JobResult:
        done.append(spec.job_id)
        return evaluate(spec)

    def work() -> None:
        source = SpoolSource(Spool(spool.root), "cpu")
        while work_once(source, "spool.cpu", "w", noted):
            pass

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == sorted(f"evaluation-{number}" for number in range(60))
    assert len(list(spool.results())) == 60


def test_jobs_are_taken_in_turn_and_those_of_no_readable_turn_by_their_number(spool: Spool) -> None:
    for number, turn in ((1, Turn(0, 4)), (2, None), (3, None), (5, Turn(-10, 9)), (6, Turn(0, 1))):
        spool.offer(Slip(number, 1), spec(number), turn)
    (spool.root / "jobs" / "3.1.turn").write_text("0 0")  # nobody has signed it
    put(spool, "jobs", "2.1.turn", "soon please")
    taken = []
    while found := spool.take():
        taken.append(found[0].job_id)
    assert taken == [5, 6, 2, 3, 1]


def test_a_job_that_is_given_back_keeps_its_turn(spool: Spool) -> None:
    spool.offer(Slip(1, 1), spec(1), Turn(0, 8))
    spool.offer(Slip(2, 1), spec(2), Turn(0, 7))
    for _ in range(2):
        taken = spool.take()
        assert taken is not None and taken[0] == Slip(2, 1)
        spool.give_back(taken[0])


def test_a_claim_of_an_old_job_is_young_from_its_first_moment(spool: Spool) -> None:
    spool.offer(SLIP, spec())
    age(spool, "jobs")
    assert spool.take() is not None
    assert spool.put_back_abandoned() == 0


def test_half_a_file_is_never_taken_for_a_job(spool: Spool) -> None:
    (spool.root / "jobs" / ".7.2.json.0badc0de").write_text(wire.dumps(spec())[:40])
    (spool.root / "jobs" / "7.2.json.part").write_text("{")
    assert spool.take() is None
    assert list(spool.refused()) == []


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"job_id": "x"}', "\x00" * 100, '{"a":' * 5000])
def test_what_is_no_job_is_put_aside_with_the_reason_and_the_queue_goes_on(spool: Spool, text: str) -> None:
    put(spool, "jobs", "1.1.json", text)
    spool.offer(SLIP, spec())
    taken = spool.take()
    assert taken is not None and taken[0] == SLIP
    ((slip, reason),) = spool.refused()
    assert slip == Slip(1, 1) and reason


def test_a_job_of_another_version_of_the_protocol_is_put_aside(spool: Spool) -> None:
    plain = wire.dumps(spec()).replace(f'"protocol_version": {PROTOCOL_VERSION}', '"protocol_version": 99')
    put(spool, "jobs", SLIP.name, plain)
    assert spool.take() is None
    assert "99" in next(spool.refused())[1]


def test_a_job_of_the_version_before_is_read(spool: Spool) -> None:
    plain = json.loads(wire.dumps(spec())) | {"protocol_version": READABLE_VERSIONS[0]}
    plain.pop("for_target")
    put(spool, "jobs", SLIP.name, json.dumps(plain))
    taken = spool.take()
    assert taken is not None and taken[1].for_target == ""


def test_a_worker_leaves_the_jobs_of_other_targets_to_others(spool: Spool) -> None:
    spool.offer(Slip(1, 1), spec(1, "gfx942"))
    spool.offer(Slip(2, 1), spec(2, "sm_90"))
    taken = spool.take("sm_90")
    assert taken is not None and taken[0] == Slip(2, 1)
    assert files(spool) == ["claimed/2.1.json", "jobs/1.1.json"]


def test_a_result_that_is_a_link_is_refused_and_what_it_points_to_stays_secret(
    spool: Spool, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text(wire.dumps(result()))
    (spool.root / "results" / SLIP.name).symlink_to(secret)
    assert list(spool.results()) == []
    assert list(spool.refused()) == [(SLIP, next(spool.refused())[1])]
    assert secret.read_text() == wire.dumps(result())


def test_a_second_name_of_a_file_a_fifo_and_a_huge_file_are_refused(spool: Spool, tmp_path: Path) -> None:
    (tmp_path / "other").write_text(wire.dumps(result()))
    os.link(tmp_path / "other", spool.root / "results" / "1.1.json")
    os.mkfifo(spool.root / "results" / "2.1.json")
    with (spool.root / "results" / "3.1.json").open("wb") as file:
        file.truncate(1 << 30)
    assert list(spool.results()) == []
    assert [slip.job_id for slip, _ in spool.refused()] == [1, 2, 3]


def test_a_reason_that_is_a_link_is_not_followed(spool: Spool) -> None:
    (spool.root / "refused" / SLIP.name).write_text("x")
    (spool.root / "refused" / "7.2.reason").symlink_to("/etc/passwd")
    assert list(spool.refused()) == [(SLIP, "unreadable")]


def test_nothing_is_written_through_a_link(spool: Spool, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    for folder in ("jobs", "results", "cancel", "lost"):
        (spool.root / folder / SLIP.name).symlink_to(victim)
    spool.deliver(SLIP, result())
    spool.cancel(SLIP)
    assert victim.read_text() == "mine"


def test_a_folder_that_is_a_link_makes_no_spool(spool: Spool, tmp_path: Path) -> None:
    (spool.root / "results").rmdir()
    (spool.root / "results").symlink_to(tmp_path)
    with pytest.raises(SpoolError, match="link"):
        Spool(spool.root)


def test_a_claim_whose_worker_is_silent_is_put_back_and_done_by_another(spool: Spool) -> None:
    spool.offer(SLIP, spec())
    spool.take()
    age(spool, "claimed")
    assert work_once(SpoolSource(spool), "spool.cpu", "w", evaluate)
    assert [slip for slip, _ in spool.results()] == [SLIP]


def test_a_claim_that_beats_is_left_to_its_worker(spool: Spool) -> None:
    spool.offer(SLIP, spec())
    spool.take()
    age(spool, "claimed")
    assert spool.beat(SLIP) == Beat.GO_ON
    assert spool.put_back_abandoned() == 0


def test_a_clock_that_is_wrong_on_this_machine_returns_no_claim(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool.offer(SLIP, spec())
    spool.take()
    wrong = time.time() + 86_400
    monkeypatch.setattr(time, "time", lambda: wrong)
    assert spool.put_back_abandoned() == 0


def test_a_job_that_kills_its_workers_ends_with_a_result_that_says_so(spool: Spool) -> None:
    spool.offer(SLIP, spec())
    for _ in range(MOST_LOST):
        assert spool.take() is not None
        age(spool, "claimed")
        spool.put_back_abandoned()
    assert spool.take() is None
    ((slip, said),) = spool.results()
    assert (slip, said.status) == (SLIP, Status.INFRA_ERROR)
    assert str(MOST_LOST) in said.reasons[0]


def test_a_late_worker_whose_job_was_given_away_hears_that_it_is_lost(spool: Spool) -> None:
    spool.offer(SLIP, spec())
    spool.take()
    spool.deliver(SLIP, result())
    assert spool.beat(SLIP) == Beat.LOST


def test_delivering_twice_leaves_one_result(spool: Spool) -> None:
    spool.deliver(SLIP, result())
    spool.deliver(SLIP, result())
    assert files(spool) == ["results/7.2.json"]


def test_cancelling_withdraws_a_waiting_job_and_stops_a_running_one(spool: Spool) -> None:
    spool.offer(SLIP, spec())
    spool.cancel(SLIP)
    assert not spool.holds(SLIP) and files(spool) == ["done/7.2.json"]

    running = Slip(8, 1)
    spool.offer(running, spec(8))
    spool.take()
    spool.cancel(running)
    assert spool.beat(running) == Beat.CANCEL
    spool.let_go(running)
    assert not spool.holds(running)


def test_two_who_take_a_result_in_at_once_refuse_nothing(spool: Spool) -> None:
    spool.deliver(SLIP, result())
    first = spool.results()
    next(first)
    spool.acknowledge(SLIP)
    spool.refuse(SLIP, "results", "gone")
    spool.acknowledge(SLIP)
    assert files(spool) == ["done/7.2.json"]


def test_cards_come_back_and_unreadable_ones_are_passed_over(spool: Spool) -> None:
    card = RunnerCard("spool@host-1", "sm_90", ("spool.sm_90",), "H100", "bubblewrap", {"driver": "nvidia 580"})
    spool.introduce(card)
    (spool.root / "runners" / "bad.json").write_text("{")
    (spool.root / "runners" / "link.json").symlink_to("/etc/hostname")
    ((found, seen),) = spool.cards()
    assert found == card and abs(seen - time.time()) < 60


def test_a_worker_that_is_to_drain_hears_it_and_leaves_the_jobs(spool: Spool, tmp_path: Path) -> None:
    card = RunnerCard("spool@host-1", "cpu", ("spool.cpu",))
    assert not SpoolSource(spool).check_in(card)
    spool.drain(card.name, True)
    assert SpoolSource(spool).check_in(card)
    spool.drain(card.name, False)
    assert not SpoolSource(spool).check_in(card)


def test_a_card_names_the_job_in_hand_and_stays_fresh_during_it(spool: Spool) -> None:
    source = SpoolSource(spool)
    source.check_in(RunnerCard("w", "cpu", ("spool.cpu",)))
    spool.offer(SLIP, spec())
    claim = source.claim("spool.cpu", "w")
    assert claim is not None
    then = time.time() - 3600
    os.utime(spool.root / "runners" / "w.json", (then, then))
    source.beat(claim)
    ((card, seen),) = spool.cards()
    assert card.facts["job"] == 7 and time.time() - seen < 60


def test_an_unusable_directory_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SpoolError, match="file"):
        Spool(tmp_path / "file" / "spool")


FULL_DISK = """
import os, sys
from pathlib import Path
sys.path.insert(0, {root!r})
from runners.dispatch.spool import Slip, Spool, SpoolError
from tests.runners.test_spool import SLIP, files, result, spec
spool = Spool(Path(sys.argv[1]) / "spool")
spool.offer(SLIP, spec())
spool.take()
filler = Path(sys.argv[1]) / "filler"
with filler.open("wb", buffering=0) as file:
    try:
        while file.write(b"x" * 4096):
            pass
    except OSError:
        pass
for attempt in (lambda: spool.deliver(SLIP, result()), lambda: spool.offer(Slip(9, 1), spec(9))):
    try:
        attempt()
        print("no error")
    except SpoolError as error:
        print(error)
print(files(spool))
filler.unlink()
spool.deliver(SLIP, result())
print(files(spool))
"""


def test_a_full_disk_is_a_clear_error_and_nothing_is_lost(tmp_path: Path) -> None:
    script = FULL_DISK.format(root=str(ROOT))
    mounted = f'mount -t tmpfs -o size=64k none {tmp_path} && exec "$0" -c "$1" {tmp_path}'
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mounted, sys.executable, script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if "unshare" in done.stderr or "mount" in done.stderr:
        pytest.skip(f"no small disk can be mounted here: {done.stderr.strip()}")
    said = done.stdout.splitlines()
    assert len(said) == 4, done.stderr
    assert all("No space left on device" in line for line in said[:2])
    assert said[2] == "['claimed/7.2.json']"
    assert said[3] == "['results/7.2.json']"


BARE = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        ours = "cryptography django celery pydantic channels redis psycopg openai httpx2".split()
        if name.partition(".")[0] in ours:
            raise ImportError(f"{{name}} is not on a spool machine")
sys.meta_path.insert(0, Blocked())
sys.path.insert(0, {root!r})
from runners.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


def bare(*arguments: str) -> list[str]:
    """Return a command line of `python -m runners` on a machine without our web half's packages."""
    return [sys.executable, "-c", BARE.format(root=str(ROOT)), *arguments]


def test_a_machine_without_django_and_the_rest_works_a_spool(spool: Spool, tmp_path: Path) -> None:
    source = (ROOT / "runners/problems/shipped/softmax_rows/seeds/naive.cpp").read_text()
    job = JobSpec("evaluation-1", load("softmax_rows"), "cpu", Source(Language.CPP, source), effort=Effort.BUILD)
    spool.offer(Slip(1, 1), job)
    done = subprocess.run(
        bare("work-spool", str(spool.root), "--target", "cpu", "--once"),
        capture_output=True, text=True, timeout=300, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    ((_, said),) = spool.results()
    assert said.status == Status.CORRECT, said.reasons
    assert said.build is not None and said.build.ok
    ((card, _),) = spool.cards()
    assert card.target == "cpu" and card.sandbox


def test_a_worker_of_an_unknown_target_says_which_there_are(spool: Spool) -> None:
    done = subprocess.run(
        bare("work-spool", str(spool.root), "--target", "nvidia", "--once"),
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 1 and "sm_90" in done.stderr


def test_a_worker_that_is_told_to_end_gives_its_job_back(spool: Spool, tmp_path: Path) -> None:
    source = "// @tune X 1 2\n" + (ROOT / "runners/problems/shipped/softmax_rows/seeds/naive.cpp").read_text()
    spool.offer(SLIP, JobSpec("evaluation-7", load("softmax_rows"), "cpu", Source(Language.CPP, source)))
    worker = subprocess.Popen(bare("work-spool", str(spool.root)), stdout=subprocess.PIPE, cwd=tmp_path)
    deadline = time.monotonic() + 120
    while not (spool.root / "claimed" / SLIP.name).exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    worker.send_signal(signal.SIGTERM)
    worker.communicate(timeout=60)
    assert worker.returncode == 0
    assert [name for name in files(spool) if SLIP.name in name] == ["jobs/7.2.json"]
