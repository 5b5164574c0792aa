"""Test who hears of what, who does not, and what reaches an open page."""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import Any

import pytest
from allauth.usersessions.models import UserSession
from asgiref.sync import sync_to_async
from channels.routing import URLRouter
from channels.testing import WebsocketCommunicator
from django.core import mail
from django.db import transaction
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from optimizer.actions.account import do_end_session
from optimizer.actions.notification import do_choose, do_follow, do_read
from optimizer.actions.review import Place, Words, do_begin_thread, do_publish_review, do_say
from optimizer.actions.suggestion import Suggestion, do_suggest
from optimizer.actions.team import do_remove_member, do_set_privacy
from optimizer.events.payloads import BudgetWarned, KernelAdded, RunNoted
from optimizer.events.record import record
from optimizer.live.routing import websocket_urlpatterns
from optimizer.models import Notification, NotificationKind, ReviewVerdict, Run, TeamRole, User
from optimizer.queries.notifications import Wanted
from optimizer.runs.locking import lock_run
from optimizer.text.mentions import mentioned_names
from optimizer.upkeep.digest import mail_digests
from tests.factories import drive, make_kernel, make_run, make_team, make_user


def happen(run: Run, payload: Any) -> None:
    with transaction.atomic():
        record(lock_run(run.pk), payload)


def heard(user: User) -> list[str]:
    return list(Notification.objects.filter(user=user).order_by("pk").values_list("kind", flat=True))


# who hears of what


@pytest.mark.django_db
def test_followers_hear_how_a_run_goes_and_others_do_not() -> None:
    team = make_team()
    starter, follower, other = make_user(team), make_user(team), make_user(team)
    run = make_run(team, starter)
    do_follow(follower, run)
    happen(run, BudgetWarned(kind="usd", percent=50, spent=1, limit=2))
    happen(run, BudgetWarned(kind="usd", percent=80, spent=1.6, limit=2))
    happen(run, RunNoted(text="No runner is there.", tone="warn"))
    happen(run, RunNoted(text="A word.", tone="muted"))
    for person in (starter, follower):
        assert heard(person) == ["budget", "stuck"]
    assert heard(other) == []


@pytest.mark.django_db
def test_the_end_of_a_run_is_told_and_its_leaders_to_those_who_asked() -> None:
    starter, asked = make_user(make_team()), make_user(make_team())
    do_choose(asked, {NotificationKind.BEST: Wanted(in_app=True, by_mail=False)})
    drive(make_run(starter.teams.get(), starter))
    drive(make_run(asked.teams.get(), asked))
    assert "best" not in heard(starter) and heard(starter)[-1] == "ended"
    assert "best" in heard(asked) and heard(asked)[-1] == "ended"


@pytest.mark.django_db
def test_a_mention_leads_to_the_very_comment(client: Client) -> None:
    team = make_team()
    author, named = make_user(team), make_user(team, name="grace")
    run = drive(make_run(team, author))
    comment = do_say(author, Place(run, run.best_kernel, None, 2, 2), Words("@grace why this line?"))
    told = Notification.objects.get(user=named)
    client.force_login(named)
    answer = client.post(reverse("notification_open", args=[told.pk]), follow=True)
    address = answer.redirect_chain[-1][0]
    kernel = comment.thread.kernel
    assert kernel is not None
    assert address.endswith(f"#comment-{comment.pk}") and f"/kernels/{kernel.number}/diff/" in address
    assert f'id="comment-{comment.pk}"' in answer.content.decode()
    page = client.get(reverse("kernel_page", args=[run.pk, kernel.number])).content.decode()
    assert f'id="comment-{comment.pk}"' in page and "Threads <small>1</small>" in page


@pytest.mark.django_db
def test_who_suggested_an_edit_hears_what_came_of_it() -> None:
    starter = make_user(make_team())
    run = make_run(starter.teams.get(), starter)
    drive(run)
    base = run.kernels.get(number=0)
    edited = do_suggest(starter, Suggestion(base, base.source + "\n// edited\n"))
    drive(run)
    told = Notification.objects.get(user=starter, kind="suggestion")
    result = f"correct, {edited.evaluations.get().verdict}"
    assert told.text == f"Your edit #{edited.number} in {run}: {result}"
    assert told.link == reverse("kernel_page", args=[run.pk, edited.number])


@pytest.mark.django_db
def test_notifications_are_grouped_by_run(client: Client) -> None:
    starter = make_user(make_team())
    first, second = (make_run(starter.teams.get(), starter, title=title) for title in ("First run", "Second run"))
    for run in (first, second, first):
        happen(run, RunNoted(text="No runner is there.", tone="warn"))
    grace = make_user(first.team, name="grace")
    do_say(grace, Place(first), Words(f"@{starter.username}, look."))
    kernel = make_kernel(first, "int a;")
    do_say(grace, Place(first, kernel), Words(f"@{starter.username}, and here."))
    client.force_login(starter)
    page = client.get(reverse("notifications")).content.decode()
    headings = [part.split("</a>")[0].split(">")[-1] for part in page.split('<h2 id="group-')[1:]]
    assert headings == ["First run", "Second run"]
    texts = [part.split("</button>")[0].split(">", 1)[1].strip() for part in page.split('unread-line"')[1:]]
    assert texts[:3] == [f"grace mentioned you on #{kernel.number}", "grace mentioned you", "No runner is there."]


@pytest.mark.django_db
def test_a_mention_reaches_members_and_nobody_else() -> None:
    team = make_team()
    author, named, stranger = make_user(team), make_user(team, name="Grace.H"), make_user(name="mallory")
    run = make_run(team, author)
    do_say(author, Place(run), Words("@grace.h, look. And @mallory! me@example.org"))
    assert heard(named) == ["mention"]
    assert heard(stranger) == []
    assert "mention" not in heard(author)


def test_names_end_where_sentences_do() -> None:
    assert mentioned_names("Ask @ada. Or @Bob-2, not x@y.z; @@nobody, /@path, `-@flag`") == {"ada", "bob-2"}


@pytest.mark.django_db
def test_a_draft_is_told_to_nobody_until_it_is_published() -> None:
    team = make_team()
    author, named = make_user(team), make_user(team, name="grace")
    run = drive(make_run(team, author))
    kernel = run.best_kernel
    assert kernel is not None
    do_begin_thread(author, Place(run, kernel), Words("@grace why?"))
    assert heard(named) == []
    do_publish_review(author, run, kernel, ReviewVerdict.COMMENT)
    assert heard(named) == ["mention"]


@pytest.mark.django_db
def test_a_reply_reaches_those_in_the_thread_once() -> None:
    team = make_team()
    first, second = make_user(team), make_user(team)
    run = make_run(team)
    comment = do_say(first, Place(run), Words("Why?"))
    do_say(second, comment.thread, Words(f"Because, @{first.username}."))
    assert heard(first) == ["mention"]  # not told twice
    do_say(second, comment.thread, Words("And more."))
    assert heard(first) == ["mention", "reply"]


@pytest.mark.django_db
def test_what_a_person_does_not_want_is_not_told() -> None:
    starter = make_user(make_team())
    run = make_run(starter.teams.get(), starter)
    do_choose(starter, {NotificationKind.STUCK: Wanted(in_app=False, by_mail=False)})
    happen(run, RunNoted(text="No runner is there.", tone="warn"))
    assert heard(starter) == []


@pytest.mark.django_db
def test_a_run_that_one_may_not_see_is_not_heard_of(client: Client) -> None:
    team = make_team()
    starter, follower = make_user(team), make_user(team)
    run = make_run(team, starter)
    do_follow(follower, run)
    happen(run, RunNoted(text="Early.", tone="warn"))
    do_set_privacy(starter, run, True)
    run.refresh_from_db()
    happen(run, RunNoted(text="Secret.", tone="warn"))
    assert len(heard(follower)) == 1
    client.force_login(follower)
    assert "Early" not in client.get(reverse("notifications")).content.decode()


@pytest.mark.django_db
def test_opening_one_marks_it_as_read_and_leads_there(client: Client) -> None:
    starter = make_user(make_team())
    run = make_run(starter.teams.get(), starter)
    happen(run, RunNoted(text="No runner is there.", tone="warn"))
    client.force_login(starter)
    assert 'aria-label="Notifications, 1 unread"' in client.get(reverse("runs")).content.decode()
    answer = client.post(reverse("notification_open", args=[Notification.objects.get(user=starter).pk]))
    assert answer.headers["Location"] == reverse("run_page", args=[run.pk])
    assert not Notification.objects.filter(user=starter).unread().exists()


@pytest.mark.django_db
def test_trouble_with_telling_is_not_the_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    from optimizer.events import notices

    run = make_run()
    monkeypatch.setitem(notices._ACTS, "run.note", lambda event: 1 / 0)
    happen(run, RunNoted(text="x", tone="warn"))
    assert run.events.filter(type="run.note").count() == 1


# mail


@pytest.mark.django_db
def test_a_digest_holds_what_was_not_read_and_is_sent_once(settings: Any) -> None:
    settings.EMAIL_HOST = "smtp.example.org"
    team = make_team()
    author, named = make_user(team), make_user(team, name="grace")
    User.objects.filter(pk=named.pk).update(email="grace@example.org")
    run = make_run(team, author, title="Softmax\r\nBcc: all@example.org")
    for text in ("@grace first", "@grace second", "@grace third"):
        do_say(author, Place(run), Words(text))
    do_read(named, [Notification.objects.filter(user=named).earliest("pk").pk])
    assert mail_digests() == 0  # they may still read it here
    Notification.objects.update(created_at=timezone.now() - dt.timedelta(hours=1))
    assert mail_digests() == 1
    [message] = mail.outbox
    assert message.to == ["grace@example.org"]
    assert message.bcc == []
    assert message.body.count("mentioned you") == 2
    assert mail_digests() == 0


@pytest.mark.django_db
def test_without_a_server_nothing_is_mailed() -> None:
    assert mail_digests() == 0


# open pages


def page_of(user: User, query: str = "", session: Any = None) -> WebsocketCommunicator:
    socket = WebsocketCommunicator(URLRouter(websocket_urlpatterns), f"/ws/me/{query}")  # type: ignore[arg-type]
    socket.scope["user"] = user  # type: ignore[typeddict-unknown-key]
    if session is not None:
        socket.scope["session"] = session  # type: ignore[typeddict-unknown-key]
    return socket


async def message(socket: WebsocketCommunicator, kind: str) -> Any:
    """Return the next message of that kind."""
    for _ in range(10):
        found = await socket.receive_json_from(5)
        if found["kind"] == kind:
            return found
    raise AssertionError(f"no {kind}")


async def close_code(socket: WebsocketCommunicator) -> int:
    for _ in range(10):
        found = await socket.receive_output(5)
        if found["type"] == "websocket.close":
            return int(found["code"])
    raise AssertionError("it stays open")


def _started() -> tuple[Run, User, User]:
    team = make_team()
    owner, member = make_user(team, TeamRole.OWNER), make_user(team)
    return make_run(team, owner), owner, member


@pytest.mark.django_db(transaction=True)
async def test_the_unread_count_is_live() -> None:
    run, owner, _ = await sync_to_async(_started)()
    socket = page_of(owner)
    await socket.connect()
    assert (await message(socket, "unread"))["count"] == 0
    await sync_to_async(happen)(run, RunNoted(text="No runner is there.", tone="warn"))
    assert (await message(socket, "unread"))["count"] == 1
    await sync_to_async(do_read)(owner)
    assert (await message(socket, "unread"))["count"] == 0
    await socket.disconnect()


@pytest.mark.django_db(transaction=True)
async def test_two_people_on_one_kernel_see_each_other_come_and_go() -> None:
    run, owner, member = await sync_to_async(_started)()
    first, second = page_of(owner, f"?run={run.pk}&kernel=3"), page_of(member, f"?run={run.pk}&kernel=3")
    elsewhere = page_of(member, f"?run={run.pk}&kernel=4")
    await first.connect()
    assert (await message(first, "here"))["people"] == [owner.username]
    await elsewhere.connect()
    await second.connect()
    assert (await message(first, "here"))["people"] == sorted([owner.username, member.username])
    await second.disconnect()
    assert (await message(first, "here"))["people"] == [owner.username]
    await first.disconnect()
    await elsewhere.disconnect()


@pytest.mark.django_db(transaction=True)
async def test_a_new_kernel_is_announced_to_open_pages_of_its_run() -> None:
    run, owner, _ = await sync_to_async(_started)()
    socket = page_of(owner, f"?run={run.pk}&kernel=0")
    await socket.connect()
    await message(socket, "here")
    added = KernelAdded(
        kernel=1, number=12, key="k", title="Tiles", author_kind="agent", language="cpp", parents=[]
    )
    await sync_to_async(happen)(run, added)
    assert (await message(socket, "generation"))["number"] == 12
    await socket.disconnect()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("address", ["/ws/me/?run={run}", "/ws/runs/{run}/"])
async def test_a_removed_members_open_socket_closes_at_once(address: str) -> None:
    run, owner, member = await sync_to_async(_started)()
    socket = WebsocketCommunicator(URLRouter(websocket_urlpatterns), address.format(run=run.pk))  # type: ignore[arg-type]
    socket.scope["user"] = member  # type: ignore[typeddict-unknown-key]
    await socket.connect()
    await asyncio.sleep(0.1)
    await sync_to_async(do_remove_member)(owner, run.team, member)
    assert await close_code(socket) == 4404
    await socket.disconnect()


@pytest.mark.django_db(transaction=True)
async def test_the_sockets_of_an_ended_session_close() -> None:
    def sign_in() -> tuple[Run, User, Any]:
        run, owner, _ = _started()
        client = Client()
        client.force_login(owner)
        return run, owner, client.session

    run, owner, session = await sync_to_async(sign_in)()
    socket = page_of(owner, f"?run={run.pk}", session)
    await socket.connect()
    await message(socket, "here")
    await sync_to_async(lambda: do_end_session(owner, UserSession.objects.get(user=owner)))()
    assert await close_code(socket) == 4401
    await socket.disconnect()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("query", ["?run=x", "?run=1&kernel=-1", "?run=" + "9" * 30])
async def test_a_malformed_place_is_refused(query: str) -> None:
    user = await sync_to_async(make_user)()
    socket = page_of(user, query)
    await socket.connect()
    assert await close_code(socket) == 4400
    await socket.disconnect()
