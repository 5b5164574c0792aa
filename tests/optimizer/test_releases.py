"""Test the way from a fast kernel to a released one: two people, a second measurement, and nothing stale."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import transaction
from django.test import Client
from django.urls import reverse

from optimizer.actions.notification import do_choose
from optimizer.actions.release import approvals_of, conditions_of, do_ask_release, do_release, do_withdraw_release
from optimizer.actions.review import do_publish_review
from optimizer.models import (
    AuditAction,
    AuditEntry,
    AuthorKind,
    Evaluation,
    Job,
    Kernel,
    Membership,
    Notification,
    NotificationKind,
    Release,
    ReleaseState,
    ReviewVerdict,
    Run,
    Team,
    TeamRole,
    User,
    VerdictChoice,
)
from optimizer.queries.notifications import Wanted
from optimizer.runs.best import update_best
from optimizer.runs.evidence import Evidence, Standing
from optimizer.runs.locking import lock_run
from runners.job import Effort, JobSpec, Verdict
from tests.driven_runs import make_finished_run
from tests.factories import correct_result, drive, fake_evaluate, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def starter(member: User) -> User:
    """Return who started the run, and so is not alone in judging it."""
    return member


@pytest.fixture
def run(finished: Run) -> Run:
    """Return a run that has gone to its end, as every run here has."""
    return finished


@pytest.fixture
def reviewers(team: Team) -> list[User]:
    return [make_user(team, TeamRole.REVIEWER) for _ in range(2)]


def approve(kernel: Kernel, *people: User, verdict: ReviewVerdict = ReviewVerdict.APPROVE) -> None:
    for person in people:
        do_publish_review(person, kernel.run, kernel, verdict)


def test_two_people_and_a_second_measurement_release_a_kernel(
    best: Kernel, run: Run, starter: User, reviewers: list[User]
) -> None:
    release = do_ask_release(starter, best, "ready")
    assert release.rerun is not None
    assert release.rerun.effort == Effort.CONFIRM.value
    with pytest.raises(ValidationError, match="0 of 2 approvals"):
        do_release(starter, release)
    approve(best, *reviewers)
    with pytest.raises(ValidationError, match="not finished"):
        do_release(starter, release)
    drive(run)
    released = do_release(starter, release)
    assert released.state == ReleaseState.RELEASED
    assert {review.author for review in released.approvals.all()} == set(reviewers)
    entry = AuditEntry.objects.get(action=AuditAction.RELEASE_MADE)
    assert entry.details["approved_by"] == [str(person) for person in reviewers]


def test_one_person_who_approves_twice_is_one_person(best: Kernel, reviewers: list[User]) -> None:
    approve(best, reviewers[0])
    approve(best, reviewers[0])
    assert len(approvals_of(best)) == 1


def test_who_wrote_a_kernel_does_not_approve_it(best: Kernel, starter: User, reviewers: list[User]) -> None:
    Kernel.objects.filter(pk=best.pk).update(author_kind=AuthorKind.PERSON, author=reviewers[0])
    best.refresh_from_db()
    approve(best, *reviewers)
    assert [review.author for review in approvals_of(best)] == [reviewers[1]]
    release = do_ask_release(starter, best)
    assert not conditions_of(release)[0].is_met


def test_who_started_the_run_counts_like_everybody(best: Kernel, starter: User, reviewers: list[User]) -> None:
    approve(best, starter, reviewers[0])
    assert len(approvals_of(best)) == 2


def test_a_standing_request_for_changes_holds_a_release_back(
    best: Kernel, run: Run, starter: User, reviewers: list[User], team: Team
) -> None:
    third = make_user(team, TeamRole.REVIEWER)
    release = do_ask_release(starter, best)
    drive(run)
    approve(best, *reviewers)
    approve(best, third, verdict=ReviewVerdict.REQUEST_CHANGES)
    with pytest.raises(ValidationError, match="requested changes"):
        do_release(starter, release)
    approve(best, third)
    assert do_release(starter, release).state == ReleaseState.RELEASED


def test_who_has_left_the_team_no_longer_counts(best: Kernel, team: Team, reviewers: list[User]) -> None:
    approve(best, *reviewers)
    Membership.objects.filter(team=team, user=reviewers[0]).delete()
    assert len(approvals_of(best)) == 1


def test_a_second_measurement_that_disagrees_releases_nothing(
    best: Kernel, run: Run, starter: User, reviewers: list[User]
) -> None:
    release = do_ask_release(starter, best)
    approve(best, *reviewers)

    def slower(spec: JobSpec, **more: Any) -> Any:
        return correct_result(spec, 200.0) if spec.effort == Effort.CONFIRM else fake_evaluate(spec, **more)

    drive(run, slower)
    release.refresh_from_db()
    assert release.rerun is not None
    assert release.rerun.verdict == Verdict.SAME
    with pytest.raises(ValidationError, match=r"stale|does not confirm"):
        do_release(starter, release)


def test_what_was_asked_for_is_stale_when_another_kernel_leads(
    best: Kernel, run: Run, starter: User, reviewers: list[User]
) -> None:
    release = do_ask_release(starter, best)
    approve(best, *reviewers)
    newer = run.kernels.exclude(pk=best.pk).latest("number")
    assert Release.objects.supersede(newer.run_id, newer.pk) == 1
    release.refresh_from_db()
    assert (release.state, release.superseded_by) == (ReleaseState.STALE, newer)
    with pytest.raises(ValidationError, match="stale"):
        do_release(starter, release)
    assert approvals_of(best) == []  # they compared it with what led then


def test_a_new_leader_makes_the_release_of_the_old_one_stale_and_is_told(
    best: Kernel, run: Run, starter: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = do_ask_release(starter, best)
    do_choose(starter, {NotificationKind.BEST: Wanted(in_app=True, by_mail=False)})
    newer = run.kernels.exclude(pk=best.pk).latest("number")
    rival = Standing(
        newer.pk, newer.number, newer.evaluation.pk, settled=True, speedup=2.0, low=1.9, high=2.1, time_us=1.0,
        verdict=VerdictChoice.FASTER,
    )  # fmt: skip
    monkeypatch.setattr(Evidence, "leader", lambda self, settled: rival)
    with transaction.atomic():
        update_best(lock_run(run.pk))
    release.refresh_from_db()
    assert (release.state, release.superseded_by) == (ReleaseState.STALE, newer)
    assert Notification.objects.filter(user=starter, kind="best", text__contains=f"#{newer.number} leads").exists()


def test_only_what_is_correct_and_faster_is_proposed(run: Run, starter: User) -> None:
    reference = run.kernels.get(number=0)
    with pytest.raises(ValidationError, match="faster"):
        do_ask_release(starter, reference)


def test_a_kernel_is_asked_for_once(best: Kernel, starter: User) -> None:
    do_ask_release(starter, best)
    with pytest.raises(ValidationError, match="already"):
        do_ask_release(starter, best)


def test_a_release_replaces_the_earlier_one_of_problem_and_target(
    best: Kernel, run: Run, team: Team, starter: User, reviewers: list[User]
) -> None:
    def release_best(of: Run) -> Release:
        kernel = of.best_kernel
        assert kernel is not None
        asked = do_ask_release(starter, kernel)
        drive(of)
        approve(kernel, *reviewers)
        return do_release(starter, asked)

    first = release_best(run)
    second = release_best(make_finished_run(team, starter))
    first.refresh_from_db()
    assert (first.state, second.state) == (ReleaseState.REPLACED, ReleaseState.RELEASED)


def test_a_reviewer_asks_and_only_an_operator_releases(
    client: Client, best: Kernel, run: Run, reviewers: list[User]
) -> None:
    client.force_login(reviewers[0])
    client.post(reverse("release_page", args=[run.pk, best.number]), {"note": "look"})
    release = Release.objects.get()
    drive(run)
    approve(best, *reviewers)
    assert client.post(reverse("release_make", args=[release.pk])).status_code == 404
    assert client.post(reverse("release_withdraw", args=[release.pk])).status_code == 302
    release.refresh_from_db()
    assert release.state == ReleaseState.WITHDRAWN


def test_the_page_says_what_is_missing_and_the_list_who_approved(
    client: Client, best: Kernel, run: Run, starter: User, reviewers: list[User]
) -> None:
    client.force_login(starter)
    release = do_ask_release(starter, best)
    page = client.get(reverse("release_page", args=[run.pk, best.number])).content.decode()
    assert "0 of 2 approvals." in page and "Awaiting approval" in page
    # the button is there once it can work, and the badge then says so
    assert reverse("release_make", args=[release.pk]) not in page
    approve(best, *reviewers)
    page = client.get(reverse("release_page", args=[run.pk, best.number])).content.decode()
    assert "Awaiting measurement" in page and "Awaiting approval" not in page
    drive(run)
    page = client.get(reverse("release_page", args=[run.pk, best.number])).content.decode()
    assert "Ready to release" in page and reverse("release_make", args=[release.pk]) in page
    client.post(reverse("release_make", args=[release.pk]))
    listed = client.get(reverse("releases")).content.decode()
    assert all(person.username in listed for person in reviewers)


def test_the_page_and_the_list_say_on_which_runner_and_day_it_was_measured_again(
    client: Client, best: Kernel, run: Run, starter: User, reviewers: list[User]
) -> None:
    client.force_login(starter)
    release = do_ask_release(starter, best)
    drive(run)
    approve(best, *reviewers)
    client.post(reverse("release_make", args=[release.pk]))
    first, again = Evaluation.objects.get(first_of=best), Evaluation.objects.get(release=release)
    assert again.finished_at is not None
    # The run is a copy of one that was driven earlier in this process, which may have been before midnight.
    first.finished_at = again.finished_at
    first.save()
    today = f"{again.finished_at:%d %b %Y}"
    for page in (reverse("release_page", args=[run.pk, best.number]), reverse("releases")):
        words = f"another process, the same runner (test-runner), the same day ({today})"
        assert words in client.get(page).content.decode()
    Evaluation.objects.filter(pk=first.pk).update(finished_at=first.finished_at - dt.timedelta(days=2))
    Job.objects.filter(evaluation=first).update(worker="elsewhere")
    words = f"another process, another runner (test-runner), another day ({today})"
    assert words in client.get(reverse("releases")).content.decode()


def test_a_team_of_one_may_lower_what_it_takes(best: Kernel, run: Run, team: Team, starter: User) -> None:
    Team.objects.filter(pk=team.pk).update(approvals_needed=1, rerun_needed=False)
    run.refresh_from_db()
    release = do_ask_release(starter, best)
    approve(best, starter)
    assert do_release(starter, release).state == ReleaseState.RELEASED


def test_withdrawing_is_for_who_asked_and_for_operators(best: Kernel, reviewers: list[User]) -> None:
    release = do_ask_release(reviewers[0], best)
    with pytest.raises(ValidationError, match="Only operators"):
        do_withdraw_release(reviewers[1], release)
    assert do_withdraw_release(reviewers[0], release).state == ReleaseState.WITHDRAWN
