"""Test the regression watch: a re-run before the alarm, one notification, exit codes."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command
from django.utils import timezone

from optimizer.actions.retiming import do_start_retiming
from optimizer.campaigns.retiming import advance_retiming
from optimizer.campaigns.watching import start_due_rounds
from optimizer.job_source import DatabaseJobSource
from optimizer.models import (
    Evaluation,
    EvaluationPurpose,
    Notification,
    Release,
    RetimeRound,
    RetimeVerdict,
    Retiming,
    Run,
    Runner,
    Target,
    Team,
    TeamRole,
    User,
)
from runners.job import JobResult, JobSpec, NoiseFloor, Status
from runners.job_source import RunnerCard
from runners.worker import work_once
from tests.factories import QUEUE, correct_result, failed_result, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def released(finished: Run, member: User) -> Release:
    """Return a released kernel that was twice as fast as the baseline."""
    kernel = finished.best_kernel
    assert kernel is not None
    Evaluation.objects.filter(pk=kernel.evaluation.pk).update(speedup=2.0, speedup_low=1.96, speedup_high=2.04)
    return Release.objects.create(kernel=kernel, asked_by=member, state="released", released_at=timezone.now())


def play(
    team: Team, times_us: Iterator[float] | list[float], statuses: Iterable[Status] = repeat(Status.CORRECT)
) -> Retiming:
    """Run a round in which the kernel takes these times, one after the other, beside a baseline of 200 µs.

    It takes a time only where its status, one after the other too, is that of a correct kernel.
    """
    made = do_start_retiming(None, team, Target.objects.get(key="cpu"))
    times, ends = iter(times_us), iter(statuses)

    def evaluate(spec: JobSpec, **_: Any) -> JobResult:
        status = next(ends)
        return correct_result(spec, next(times)) if status == Status.CORRECT else failed_result(spec, status)

    for _ in range(10):
        advance_retiming(made.pk)
        while work_once(DatabaseJobSource(), QUEUE, "test-runner", evaluate):
            pass
        made.refresh_from_db()
        if made.finished_at:
            break
    return made.retimings.get()


def test_an_unchanged_kernel_is_measured_once_and_raises_no_alarm(team: Team, released: Release) -> None:
    row = play(team, [101.0])
    assert (row.verdict, row.second) == (RetimeVerdict.SAME, None)
    assert not Notification.objects.filter(kind="watch").exists()


def test_a_slower_kernel_is_measured_again_before_people_are_told(team: Team, released: Release) -> None:
    row = play(team, [150.0, 151.0])
    assert row.verdict == RetimeVerdict.SLOWER
    assert row.second is not None
    assert row.ratio == pytest.approx(200 / 151 / 2)
    assert Notification.objects.filter(kind="watch").count() == team.members.count()


def test_one_bad_moment_of_the_machine_is_no_alarm(team: Team, released: Release) -> None:
    row = play(team, [150.0, 100.0])
    assert row.verdict == RetimeVerdict.SAME
    assert "not confirmed" in row.text
    assert not Notification.objects.filter(kind="watch").exists()


def test_two_alarms_of_different_kinds_are_the_graver_one(team: Team, released: Release) -> None:
    for statuses in ([Status.CORRECT, Status.INCORRECT], [Status.INCORRECT, Status.CORRECT]):
        row = play(team, [150.0], statuses)
        assert row.verdict == RetimeVerdict.BROKEN and row.second is not None
        assert "incorrect" in row.text
    assert Notification.objects.filter(kind="watch").count() == team.members.count()


def test_faster_and_then_slower_is_no_confirmed_change(team: Team, released: Release) -> None:
    row = play(team, [50.0, 150.0])
    assert row.verdict == RetimeVerdict.SAME
    assert not Notification.objects.filter(kind="watch").exists()


def test_people_are_told_again_of_a_regression_that_was_mended_and_comes_back(
    team: Team, released: Release
) -> None:
    for time_us in (150.0, 150.0, 100.0, 150.0, 150.0):
        play(team, repeat(time_us))
    assert Notification.objects.filter(kind="watch").count() == 2 * team.members.count()


def test_people_are_told_once_however_often_it_is_seen(team: Team, released: Release) -> None:
    for _ in range(3):
        assert play(team, repeat(150.0)).verdict == RetimeVerdict.SLOWER
    assert Notification.objects.filter(kind="watch").count() == team.members.count()


def test_a_change_within_the_noise_floor_is_none(team: Team, released: Release) -> None:
    evaluation = released.kernel.evaluation
    evaluation.result["noise_floor"] = dataclasses.asdict(NoiseFloor(1.6))
    evaluation.save(update_fields=["result"])
    assert play(team, [150.0]).verdict == RetimeVerdict.SAME


@pytest.mark.parametrize(
    ("status", "verdict"),
    [(Status.INCORRECT, RetimeVerdict.BROKEN), (Status.TOO_LARGE, RetimeVerdict.UNKNOWN)],
)
def test_a_wrong_kernel_is_an_alarm_and_a_small_machine_is_none(
    team: Team, released: Release, status: Status, verdict: RetimeVerdict
) -> None:
    row = play(team, [], repeat(status))
    assert row.verdict == verdict
    assert (row.second is not None) == verdict.is_alarm


def test_the_watch_changes_nothing_in_the_run(team: Team, released: Release) -> None:
    before = Run.objects.values("best_kernel", "best_speedup", "spent_device_s").get(pk=released.kernel.run_id)
    play(team, repeat(400.0))
    assert (
        Run.objects.values("best_kernel", "best_speedup", "spent_device_s").get(pk=released.kernel.run_id) == before
    )
    assert Evaluation.objects.filter(purpose=EvaluationPurpose.RETIMING).count() == 2


def test_two_rounds_on_a_target_do_not_disturb_each_other(team: Team, released: Release) -> None:
    target = Target.objects.get(key="cpu")
    do_start_retiming(None, team, target)
    with pytest.raises(ValidationError):
        do_start_retiming(None, team, target)
    with pytest.raises(ValidationError):
        do_start_retiming(make_user(team, TeamRole.VIEWER), team, target)
    assert RetimeRound.objects.count() == 1


def test_a_team_without_releases_has_nothing_to_watch(team: Team, finished: Run) -> None:
    with pytest.raises(ValidationError, match="no released kernels"):
        do_start_retiming(None, team, Target.objects.get(key="cpu"))


@pytest.fixture
def worked(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Let the pauses of the command work its jobs; the list holds the time of the kernel in µs."""
    time_us = [100.0]

    def work(_: float) -> None:
        answer: Callable[..., JobResult] = lambda spec, **_: correct_result(spec, time_us[0])  # noqa: E731
        while work_once(DatabaseJobSource(), QUEUE, "test-runner", answer):
            pass

    monkeypatch.setattr("optimizer.management.commands.campaign.time.sleep", work)
    return time_us


def exit_code(*options: str) -> int | None:
    """Return the code with which the command ends, as a shell sees it; None for its ordinary end."""
    try:
        call_command("campaign", "retime", *options)
    except SystemExit as ended:
        return int(str(ended.code))
    except CommandError as refusal:
        return refusal.returncode
    return None


@pytest.mark.parametrize(("time_us", "code"), [(100.0, None), (150.0, 1), (50.0, None)])
def test_the_command_fails_on_a_regression_alone(
    team: Team, released: Release, worked: list[float], capsys: pytest.CaptureFixture[str],
    time_us: float, code: int | None,
) -> None:  # fmt: skip
    worked[0] = time_us
    assert exit_code("--team", team.slug, "--json") == code
    (row,) = json.loads(capsys.readouterr().out)
    assert row["kernel"] == released.kernel.number


def test_a_refusal_has_not_the_exit_code_of_a_regression(team: Team, released: Release) -> None:
    assert exit_code("--team", "nobody") == 2
    assert exit_code("--team", team.slug, "--target", "gfx0") == 2


def test_nothing_released_has_an_exit_code_of_its_own(team: Team, finished: Run) -> None:
    assert exit_code("--team", team.slug) == 3
    assert not RetimeRound.objects.exists()


def test_the_command_follows_a_round_that_is_under_way(
    team: Team, released: Release, worked: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    made = do_start_retiming(None, team, Target.objects.get(key="cpu"))
    assert exit_code("--team", team.slug, "--no-wait") is None
    assert f"Round {made.pk} is under way already: 1 kernels." in capsys.readouterr().out
    worked[0] = 150.0
    assert exit_code("--team", team.slug) == 1
    made.refresh_from_db()
    assert made.finished_at is not None and RetimeRound.objects.count() == 1


def test_a_round_that_starts_at_the_same_moment_is_followed(
    team: Team, released: Release, worked: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    def beaten(*_: Any) -> RetimeRound:
        do_start_retiming(None, team, Target.objects.get(key="cpu"))
        return do_start_retiming(None, team, Target.objects.get(key="cpu"))

    monkeypatch.setattr("optimizer.management.commands.campaign.do_start_retiming", beaten)
    assert exit_code("--team", team.slug) is None
    assert RetimeRound.objects.filter(finished_at__isnull=False).count() == 1


DRIVER_1 = {"driver": "nvidia 580.65", "compiler": "nvcc 12.9"}
DRIVER_2 = {"driver": "nvidia 590.10", "compiler": "nvcc 12.9"}


def check_in(software: Any = None, name: str = "box") -> None:
    """Let a live runner of the target report its software."""
    facts = {} if software is None else {"software": software}
    DatabaseJobSource().check_in(RunnerCard(name, "cpu", (QUEUE,), facts=facts))


@pytest.fixture
def recorded(released: Release) -> Release:
    """Return a release whose measurement says on which software it was made."""
    evaluation = released.kernel.evaluation
    evaluation.result["environment"] = {**evaluation.result.get("environment", {}), "software": DRIVER_1}
    evaluation.save(update_fields=["result"])
    return released


def test_a_new_driver_starts_one_round_that_names_it(team: Team, recorded: Release) -> None:
    check_in(DRIVER_1)
    assert start_due_rounds() == []
    check_in(DRIVER_2)
    (started,) = start_due_rounds()
    made = RetimeRound.objects.get(pk=started)
    assert made.reason == "New driver nvidia 590.10 (was nvidia 580.65)"
    assert made.retimings.get().kernel == recorded.kernel
    # Neither while it is open nor after it, however many runners have it.
    assert start_due_rounds() == []
    RetimeRound.objects.update(finished_at=timezone.now())
    check_in(DRIVER_2, "another")
    assert start_due_rounds() == []


def test_the_watch_reads_no_result_as_a_whole(recorded: Release, django_assert_max_num_queries: Any) -> None:
    check_in(DRIVER_1)
    with django_assert_max_num_queries(20) as seen:
        assert start_due_rounds() == []
    asked = [query["sql"] for query in seen.captured_queries]
    assert not [sql for sql in asked if re.search(r'"result"(?! #>)', sql.partition(" FROM ")[0])]


def test_a_round_that_somebody_started_by_hand_covers_the_new_driver(team: Team, recorded: Release) -> None:
    check_in(DRIVER_2)
    do_start_retiming(None, team, Target.objects.get(key="cpu"))
    RetimeRound.objects.update(finished_at=timezone.now())
    assert start_due_rounds() == []


def test_nothing_starts_by_itself_without_a_live_runner_or_where_it_is_switched_off(
    recorded: Release, settings: Any
) -> None:
    check_in(DRIVER_2)
    Runner.objects.update(heartbeat_at=timezone.now() - dt.timedelta(hours=1))
    assert start_due_rounds() == []
    check_in(DRIVER_2)
    settings.RETIME_ON_CHANGE = False
    assert start_due_rounds() == []
    settings.RETIME_ON_CHANGE = True
    assert len(start_due_rounds()) == 1


def test_an_old_release_is_watched_from_the_first_round_that_recorded_its_software(
    team: Team, released: Release
) -> None:
    check_in(DRIVER_1)
    assert start_due_rounds() == []
    do_start_retiming(None, team, Target.objects.get(key="cpu"))
    RetimeRound.objects.update(finished_at=timezone.now())
    check_in(DRIVER_2)
    assert len(start_due_rounds()) == 1


@pytest.mark.parametrize(
    "reported", ["x", 3, [], {}, {"driver": {"a": 1}}, {"colour": "red"}, {"driver": "y" * 999}]
)
def test_whatever_a_runner_reports_raises_nothing(reported: Any, recorded: Release) -> None:
    check_in(reported)
    started = start_due_rounds()
    assert bool(started) == (isinstance(reported, dict) and "driver" in reported)


def test_the_schedule_starts_a_round_when_the_last_one_is_old_enough(
    team: Team, released: Release, settings: Any
) -> None:
    settings.RETIME_DAYS = 7.0
    check_in()
    assert start_due_rounds() == []
    Release.objects.update(released_at=timezone.now() - dt.timedelta(days=8))
    (started,) = start_due_rounds()
    assert RetimeRound.objects.get(pk=started).reason == "Scheduled, every 7 days"
    RetimeRound.objects.update(finished_at=timezone.now())
    assert start_due_rounds() == []
    RetimeRound.objects.update(created_at=timezone.now() - dt.timedelta(days=8))
    assert len(start_due_rounds()) == 1


def test_a_slow_down_under_a_new_driver_is_measured_again_and_told_once(team: Team, recorded: Release) -> None:
    check_in(DRIVER_2)
    (started,) = start_due_rounds()
    made = RetimeRound.objects.get(pk=started)
    slow: Callable[..., JobResult] = lambda spec, **_: correct_result(spec, 150.0)  # noqa: E731
    while made.finished_at is None:
        advance_retiming(made.pk)
        while work_once(DatabaseJobSource(), QUEUE, "test-runner", slow):
            pass
        made.refresh_from_db()
    row = made.retimings.get()
    assert (row.verdict, row.second is not None) == (RetimeVerdict.SLOWER, True)
    assert Notification.objects.filter(kind="watch").count() == team.members.count()
    assert start_due_rounds() == []
