"""Take more of a site than one person may, at once and from several runs, and guess invitations in parallel."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from django.core.cache import cache
from django.core.exceptions import ValidationError
from django.db import connection, transaction
from django.test import Client, RequestFactory

from optimizer.actions import quota
from optimizer.actions.run import as_new_run, do_clone_run, do_start_run
from optimizer.actions.suggestion import Suggestion, do_suggest
from optimizer.loop import advance
from optimizer.models import AuthorKind, IdempotencyKey, Invitation, Kernel, Run, TeamRole, User
from optimizer.views import join
from optimizer.views.attempts import caller_of, give_back, take_attempt
from tests.factories import make_run, make_team, make_user


def edited(run: Run, number: int) -> Suggestion:
    base = run.kernels.order_by("number")[0]
    return Suggestion(base, f"{base.source}\n// edit {number}\n", f"Edit {number}")


def at_once(work: Callable[[int], object], times: int) -> list[str]:
    """Do the work in as many threads, and return the reasons of the refusals."""
    refused: list[str] = []
    start = threading.Barrier(times)

    def one(number: int) -> None:
        start.wait()
        try:
            work(number)
        except ValidationError as refusal:
            refused.append(str(refusal))
        finally:
            connection.close()

    threads = [threading.Thread(target=one, args=(number,)) for number in range(times)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return refused


@pytest.fixture
def runs(transactional_db: None) -> list[Run]:
    team = make_team()
    made = [make_run(team) for _ in range(3)]
    for run in made:
        advance(run.pk)
    return made


@pytest.fixture
def person(runs: list[Run]) -> User:
    return make_user(runs[0].team, TeamRole.OPERATOR)


def suggested(person: User) -> int:
    return Kernel.objects.filter(author=person, author_kind=AuthorKind.PERSON).count()


def test_suggestions_to_several_runs_at_once_stay_within_one_persons_quota(
    runs: list[Run], person: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quota, "MOST_WAITING_KERNELS", 4)
    refused = at_once(lambda number: do_suggest(person, edited(runs[number % 3], number)), 9)
    assert suggested(person) == 4 and len(refused) == 5
    assert all("wait for their evaluation" in reason for reason in refused)


def test_kernels_and_bytes_of_a_day_are_limited(
    runs: list[Run], person: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quota, "MOST_BYTES_A_DAY", 10)
    with pytest.raises(ValidationError, match="of one day"):
        do_suggest(person, edited(runs[0], 1))
    monkeypatch.setattr(quota, "MOST_BYTES_A_DAY", 1 << 20)
    do_suggest(person, edited(runs[0], 1))
    monkeypatch.setattr(quota, "MOST_KERNELS_A_DAY", 1)
    with pytest.raises(ValidationError, match="within a day"):
        do_suggest(person, edited(runs[0], 2))
    other = make_user(runs[0].team, TeamRole.OPERATOR)
    do_suggest(other, edited(runs[0], 2))  # control: everybody has a quota of their own


def test_runs_at_once_stay_within_one_persons_quota(
    runs: list[Run], person: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quota, "MOST_LIVE_RUNS", 2)
    refused = at_once(lambda _: do_clone_run(person, runs[0]), 6)
    assert Run.objects.filter(created_by=person).count() == 2 and len(refused) == 4
    # Campaigns and the system itself have limits of their own.
    do_start_run(person, as_new_run(runs[0]), by_hand=False)
    do_start_run(None, as_new_run(runs[0]))


def test_a_quota_that_is_being_checked_holds_up_no_other_work_of_the_person(person: User) -> None:
    def work(number: int) -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET LOCAL lock_timeout = '2s'")
            IdempotencyKey.objects.create(user=person, key="any", request_hash="")

    with transaction.atomic():
        quota.lock_person(person)
        at_once(work, 1)
        assert IdempotencyKey.objects.filter(user=person).exists()


@pytest.mark.django_db(transaction=True)
def test_24_guesses_of_an_invitation_at_once_look_up_five() -> None:
    cache.clear()
    looked_up: list[str] = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Invitation, "find", looked_up.append)
        at_once(lambda number: Client().get(f"/join/guess-{number}/"), 24)
    assert len(looked_up) == join.MOST_ATTEMPTS


def test_an_attempt_that_is_given_back_does_not_count(rf: RequestFactory) -> None:
    cache.clear()
    for _ in range(20):
        assert take_attempt("try", "::1", 2, 60)
        give_back("try", "::1")
    assert [take_attempt("try", "::1", 2, 60) for _ in range(3)] == [True, True, False]
    near, far = (caller_of(rf.get("/", REMOTE_ADDR=f"2001:db8:0:{net}::{host}")) for net, host in ((1, 5), (2, 5)))
    assert near != far and near == caller_of(rf.get("/", REMOTE_ADDR="2001:db8:0:1::99"))
