"""The diff page and what is said on it, through the addresses a browser uses."""

from __future__ import annotations

import html
import re

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from optimizer.models import Comment, Kernel, Review, Run, RunState, TeamRole, Thread, User
from optimizer.text.markdown import suggested_lines
from tests.factories import BASE, make_kernel, make_run, make_user
from tests.optimizer.clients import flowing, signed_in

pytestmark = pytest.mark.django_db


@pytest.fixture
def run() -> Run:
    return make_run()


@pytest.fixture
def reviewer(run: Run) -> User:
    return make_user(run.team, TeamRole.REVIEWER, "rosa")


@pytest.fixture
def pair(run: Run) -> tuple[Kernel, Kernel]:
    old = make_kernel(run, BASE)
    return old, make_kernel(run, BASE.replace("float line_50 = 50.0f;", "float line_50 = 51.0f;"), old)


def page(user: User, kernel: Kernel, query: str = "") -> str:
    answer = signed_in(user).get(reverse("diff_page", args=[kernel.run_id, kernel.number]) + query)
    assert answer.status_code == 200
    return str(answer.content.decode())


def say(user: User, kernel: Kernel, body: str = "Why 51?", **fields: object) -> Thread:
    data = {"kernel": kernel.number, "side": "new", "first": 50, "last": 50, "body": body, "now": "1"} | fields
    answer = signed_in(user).post(reverse("thread_new", args=[kernel.run_id]), data)
    assert answer.status_code == 302, answer.content.decode()[-3000:]
    return Thread.objects.latest("pk")


def test_the_page_shows_the_change_token_by_token_and_folds_the_rest(
    reviewer: User, pair: tuple[Kernel, Kernel]
) -> None:
    text = page(reviewer, pair[1])
    assert "<mark>" in text and "51.0f" in text.replace("<mark>", "").replace("</mark>", "")
    assert "44 unchanged lines" in text and 'id="n50"' in text and 'id="n20"' not in text


@pytest.mark.parametrize("view", ["split", "unified"])
def test_folded_lines_open_with_a_plain_link(reviewer: User, pair: tuple[Kernel, Kernel], view: str) -> None:
    text = page(reviewer, pair[1], f"?view={view}&open=0-44")
    assert 'id="n1"' in text and 'id="n44"' in text and 'id="n90"' not in text


def test_a_fragment_holds_the_opened_rows_and_what_stays_folded(
    reviewer: User, pair: tuple[Kernel, Kernel]
) -> None:
    address = reverse("diff_rows", args=[pair[1].run_id, pair[1].number]) + "?gap=0-44&show=24-44"
    rows = signed_in(reviewer).get(address).content.decode()
    assert "24 unchanged lines" in rows and 'id="n25"' in rows and 'id="n24"' not in rows and "<html" not in rows


def test_to_the_function_opens_from_where_the_function_begins(run: Run, reviewer: User) -> None:
    body = "\n".join(f"  x += {n};" for n in range(60))
    source = f"int a;\nint b;\nint c;\n\nfloat kernel_body(float x) {{\n{body}\n  return x;\n}}\n"
    old = make_kernel(run, source)
    new = make_kernel(run, source.replace("x += 50;", "x += 51;"), old)
    text = page(reviewer, new)
    link = text.split(">to the function<")[0].rsplit('href="', 1)[1].split('"')[0].replace("&amp;", "&")
    opened = signed_in(reviewer).get(link.partition("#")[0]).content.decode()
    assert 'id="n5"' in opened and 'id="n30"' in opened and 'id="n4"' not in opened


def test_white_space_alone_is_no_change_when_it_is_ignored(run: Run, reviewer: User) -> None:
    old = make_kernel(run, "if (x) {\n  y = 1;\n}\n")
    new = make_kernel(run, "if (x) {\n\ty  =  1;\n}\n", old)
    assert 'class="line ins"' in page(reviewer, new)
    assert 'class="line ins"' not in page(reviewer, new, "?space=ignore")


def test_a_moved_block_is_marked_and_leads_to_its_other_place(run: Run, reviewer: User) -> None:
    block = [f"float sum_of_rows_{n} = 0.0f;" for n in range(5)]
    others = [f"other_statement({n});" for n in range(30)]
    old = make_kernel(run, "\n".join([*block, *others]))
    text = page(reviewer, make_kernel(run, "\n".join([*others, *block]), old))
    assert "moved to line 31" in text and "moved from line 1" in text and 'href="#n31"' in text


def test_presets_and_kernels_of_other_runs_can_be_compared_with(run: Run, reviewer: User) -> None:
    old = make_kernel(run, BASE)
    new = make_kernel(run, BASE, old)
    elsewhere = make_kernel(make_run(run.team), BASE + "int more;\n")
    text = page(reviewer, new, f"?against={elsewhere.run_id}.{elsewhere.number}")
    assert "int" in text and f"against run {elsewhere.run_id}" in flowing(text)
    assert 'aria-current="true">Nothing' in page(reviewer, new, "?against=none")


@pytest.mark.parametrize("query", ["?against=999999.0", "?against=nonsense", "?text=nonsense"])
def test_what_is_not_there_is_not_found(reviewer: User, pair: tuple[Kernel, Kernel], query: str) -> None:
    address = reverse("diff_page", args=[pair[1].run_id, pair[1].number])
    assert signed_in(reviewer).get(address + query).status_code == 404


@pytest.mark.parametrize(
    "query", ["?open=99999999-1,x,5-4&line=n0", "?view=<script>&space=x&open=0-9999999", "?line=n99999"]
)
def test_nonsense_in_the_address_is_left_out(reviewer: User, pair: tuple[Kernel, Kernel], query: str) -> None:
    assert "<script>&" not in page(reviewer, pair[1], query)


def test_an_outsider_finds_neither_the_diff_nor_a_foreign_kernel_to_compare_with(
    reviewer: User, pair: tuple[Kernel, Kernel]
) -> None:
    foreign = make_kernel(make_run(), BASE)
    assert signed_in(make_user()).get(reverse("diff_page", args=[pair[1].run_id, 1])).status_code == 404
    address = reverse("diff_page", args=[pair[1].run_id, 1]) + f"?against={foreign.run_id}.{foreign.number}"
    assert signed_in(reviewer).get(address).status_code == 404


def test_hostile_source_is_text_and_what_hides_in_it_is_named(run: Run, reviewer: User) -> None:
    old = make_kernel(run, "int a;\n")
    hostile = "int a;\n// </td><script>alert(1)</script>\nint \u202ed;\nint c\u043eunt;\n"
    text = page(reviewer, make_kernel(run, hostile, old))
    assert "<script>alert" not in text and "RIGHT-TO-LEFT OVERRIDE" in text and "\u202e" not in text
    assert "mixes Latin with Cyrillic letters" in text


def test_line_ends_that_differ_are_said_and_not_shown_on_every_line(run: Run, reviewer: User) -> None:
    old = make_kernel(run, "int a;\nint b;\n")
    text = page(reviewer, make_kernel(run, "int a;\r\nint b;", old))
    assert "has no line end after its last line" in text
    assert page(reviewer, make_kernel(run, "int a;\r\nint b;\r\n", old)).count(">CR<") == 0


def test_a_draft_is_seen_by_its_author_alone_until_it_is_published(
    run: Run, reviewer: User, pair: tuple[Kernel, Kernel]
) -> None:
    other = make_user(run.team, TeamRole.REVIEWER)
    thread = say(reviewer, pair[1], "Secret draft.", now="")
    permalink = reverse("thread_page", args=[run.pk, thread.pk])
    assert "Secret draft." in page(reviewer, pair[1]) and "Secret draft." not in page(other, pair[1])
    assert signed_in(other).get(permalink).status_code == 404
    assert "Secret draft." not in signed_in(other).get(reverse("discussion", args=[run.pk])).content.decode()
    publish = reverse("review_publish", args=[run.pk]) + f"?kernel={pair[1].number}"
    signed_in(reviewer).post(publish, {"verdict": "request_changes", "summary": "Not yet."})
    text = page(other, pair[1])
    assert "Secret draft." in text and "rosa: request changes" in flowing(text)
    assert signed_in(other).get(permalink).status_code == 302


def test_an_open_thread_follows_its_line_into_the_third_generation_and_is_resolved_everywhere_at_once(
    run: Run, reviewer: User, pair: tuple[Kernel, Kernel]
) -> None:
    thread = say(reviewer, pair[1])
    shifted = "int first;\nint second;\n" + pair[1].source
    third = make_kernel(run, shifted, make_kernel(run, "int first;\n" + pair[1].source, pair[1]))
    text = page(reviewer, third)
    assert "Why 51?" in text and "the same lines" in text
    assert 'id="n52"' in text.split("Why 51?")[0].rsplit('<tr class="said', 1)[0][-4000:]
    signed_in(reviewer).post(reverse("thread_state", args=[run.pk, thread.pk]), {"state": "resolved"})
    assert "Why 51?" not in page(reviewer, third)
    assert "Resolved" in page(reviewer, pair[1])


def test_a_thread_whose_lines_are_gone_is_about_the_kernel_as_a_whole(
    run: Run, reviewer: User, pair: tuple[Kernel, Kernel]
) -> None:
    say(reviewer, pair[1])
    without = BASE.replace("float line_50 = 50.0f;\n", "")
    text = page(reviewer, make_kernel(run, without, pair[1]), "?against=none")
    assert "its lines are gone" in text and "Why 51?" in text and "float line_50" in text


@pytest.mark.parametrize("fields", [{"first": 101, "last": 101}, {"first": 0}, {"first": "x"}])
def test_a_line_that_does_not_exist_is_refused_and_the_words_are_kept(
    reviewer: User, pair: tuple[Kernel, Kernel], fields: dict[str, object]
) -> None:
    data = {"kernel": 1, "side": "new", "first": 5, "last": 5, "body": "Kept words.", "now": "1"} | fields
    answer = signed_in(reviewer).post(reverse("thread_new", args=[pair[1].run_id]), data)
    assert answer.status_code == 422 and "Kept words." in answer.content.decode()
    assert not Thread.objects.exists()


def test_a_comment_on_a_foreign_kernel_or_a_deleted_run_is_not_found(run: Run, reviewer: User) -> None:
    foreign = make_kernel(make_run(), BASE)
    client = signed_in(reviewer)
    for run_id, number in ((foreign.run_id, foreign.number), (run.pk, 99), (10**9, 0)):
        data = {"kernel": number, "body": "x", "now": "1"}
        assert client.post(reverse("thread_new", args=[run_id]), data).status_code == 404
    own = make_kernel(run, BASE)
    data = {
        "kernel": own.number,
        "old": f"{foreign.run_id}.{foreign.number}",
        "side": "old",
        "body": "x",
        "now": "1",
    }
    assert client.post(reverse("thread_new", args=[run.pk]), data).status_code == 404
    assert not Thread.objects.exists()


def test_a_megabyte_is_refused_in_words(reviewer: User, pair: tuple[Kernel, Kernel]) -> None:
    data = {"kernel": 1, "body": "x" * 1_000_000, "now": "1"}
    answer = signed_in(reviewer).post(reverse("thread_new", args=[pair[1].run_id]), data)
    assert answer.status_code == 422 and "20,000 characters at most" in answer.content.decode()


def test_scripts_and_html_in_a_comment_are_text(reviewer: User, pair: tuple[Kernel, Kernel]) -> None:
    say(reviewer, pair[1], "<script>alert(1)</script> [x](javascript:alert(1)) <img src=x onerror=alert(1)>")
    text = page(reviewer, pair[1])
    assert "<script>alert" not in text and 'href="javascript' not in text and "<img src=x" not in text


def test_viewers_read_and_do_not_write(run: Run, reviewer: User, pair: tuple[Kernel, Kernel]) -> None:
    thread = say(reviewer, pair[1])
    viewer = make_user(run.team, TeamRole.VIEWER)
    assert "Why 51?" in page(viewer, pair[1]) and "Save draft" not in page(viewer, pair[1])
    client = signed_in(viewer)
    for name in ("thread_reply", "thread_state"):
        address = reverse(name, args=[run.pk, thread.pk])
        assert client.post(address, {"body": "x", "state": "resolved"}).status_code == 404
    for name in ("thread_new", "review_publish"):
        assert client.post(reverse(name, args=[run.pk]), {"body": "x", "verdict": "approve"}).status_code == 404
    assert client.get(reverse("suggest", args=[run.pk, 1])).status_code == 404


def test_somebody_elses_comment_cannot_be_edited_or_deleted(
    run: Run, reviewer: User, pair: tuple[Kernel, Kernel]
) -> None:
    comment = say(reviewer, pair[1]).comments.get()
    other = signed_in(make_user(run.team, TeamRole.OWNER))
    for name in ("comment_edit", "comment_delete"):
        assert other.post(reverse(name, args=[run.pk, comment.pk]), {"body": "mine now"}).status_code == 404
    assert Comment.objects.get().body == "Why 51?"


def test_after_an_edit_the_page_shows_what_was_said_before_and_that_an_approval_came_between(
    run: Run, reviewer: User, pair: tuple[Kernel, Kernel]
) -> None:
    comment = say(reviewer, pair[1], "First words.").comments.get()
    approver = make_user(run.team, TeamRole.REVIEWER, "noor")
    publish = reverse("review_publish", args=[run.pk]) + f"?kernel={pair[1].number}"
    signed_in(approver).post(publish, {"verdict": "approve"})
    signed_in(reviewer).post(reverse("comment_edit", args=[run.pk, comment.pk]), {"body": "Other words."})
    text = page(approver, pair[1])
    assert "Other words." in text and "First words." in text and "after the approval by noor" in flowing(text)


def test_an_open_redirect_is_not_followed(reviewer: User, pair: tuple[Kernel, Kernel]) -> None:
    data = {"kernel": 1, "body": "x", "now": "1", "here": "https://elsewhere.example/"}
    answer = signed_in(reviewer).post(reverse("thread_new", args=[pair[1].run_id]), data)
    assert answer["Location"].startswith("/runs/")


def test_the_number_of_threads_does_not_change_the_number_of_queries(
    reviewer: User, pair: tuple[Kernel, Kernel]
) -> None:
    client, address = signed_in(reviewer), reverse("diff_page", args=[pair[1].run_id, 1])
    counts = []
    for rounds in (1, 6):
        for line in range(rounds):
            say(reviewer, pair[1], f"On {line}", first=line + 10, last=line + 10)
        with CaptureQueriesContext(connection) as seen:
            client.get(address)
        counts.append(len(seen))
    assert counts[1] <= counts[0]


def test_a_verdict_needs_a_kernel_and_nothing_needs_no_publishing(run: Run, reviewer: User) -> None:
    client = signed_in(reviewer)
    address = reverse("review_publish", args=[run.pk])
    assert client.post(address, {"verdict": "approve"}).status_code == 422
    assert client.post(address, {"verdict": "comment"}).status_code == 422
    assert not Review.objects.published().exists()


def test_guidance_in_an_ended_run_is_refused_with_its_words_kept(
    reviewer: User, pair: tuple[Kernel, Kernel]
) -> None:
    Run.objects.filter(pk=pair[1].run_id).update(state=RunState.FINISHED)
    data = {"kernel": 1, "body": "Use wider blocks.", "guidance": "run", "now": "1"}
    answer = signed_in(reviewer).post(reverse("thread_new", args=[pair[1].run_id]), data)
    assert answer.status_code == 422 and "has ended" in answer.content.decode()
    assert not Comment.objects.exists()


# publishing what one sees


def draft(user: User, kernel: Kernel, body: str, **fields: object) -> Comment:
    """Store a draft on line 50, written as the page sends it."""
    return say(user, kernel, body, now="", **fields).comments.get()


def publish(user: User, kernel: Kernel, words: str) -> None:
    """Publish as a browser does: to the address of the form on the kernel's page whose button says `words`."""
    text = page(user, kernel)
    assert words in text
    found = re.search(rf'action="({re.escape(reverse("review_publish", args=[kernel.run_id]))}[^"]*)"', text)
    assert found is not None
    answer = signed_in(user).post(html.unescape(found[1]), {"verdict": "comment"})
    assert answer.status_code == 302, answer.content.decode()[-3000:]


def test_drafts_on_either_side_are_published_where_they_are_seen(
    reviewer: User, pair: tuple[Kernel, Kernel]
) -> None:
    old, new = pair
    was, now = draft(reviewer, new, "Was."), draft(reviewer, old, "On its own page.")
    said_old = draft(reviewer, new, "Old side.", old=f"{old.run_id}.{old.number}", side="old")
    publish(reviewer, new, "Submit review (3)")
    for comment in (was, now, said_old):
        comment.refresh_from_db()
        assert not comment.is_draft
    assert Review.objects.get().kernel == new, "one review, and no empty draft left behind"


def test_a_draft_on_the_old_side_of_another_run_is_published_there_along_with_the_rest(
    run: Run, reviewer: User, pair: tuple[Kernel, Kernel]
) -> None:
    other = make_kernel(make_run(run.team), BASE)
    beside = f"?against={other.run_id}.{other.number}"
    comment = draft(reviewer, pair[1], "There.", old=f"{other.run_id}.{other.number}", side="old")
    assert "Submit review (1)" in page(reviewer, pair[1], beside)
    address = reverse("review_publish", args=[run.pk])
    query = f"?kernel={pair[1].number}&old={other.run_id}.{other.number}"
    assert signed_in(reviewer).post(address + query, {"verdict": "comment"}).status_code == 302
    review = Review.objects.get()
    assert (review.run, review.kernel, review.comments.get()) == (other.run, other, comment)
    assert other.run.events.latest("seq").type == "review.published"


def test_a_draft_reply_in_a_carried_thread_is_published_where_it_was_written(
    run: Run, reviewer: User, pair: tuple[Kernel, Kernel]
) -> None:
    thread = say(reviewer, pair[1])
    third = make_kernel(run, "int first;\n" + pair[1].source, pair[1])
    signed_in(reviewer).post(reverse("thread_reply", args=[run.pk, thread.pk]), {"body": "Still?"})
    publish(reviewer, third, "Submit review (1)")
    assert "draft, visible only to you" not in page(reviewer, third)


def test_the_drafts_of_others_stay_theirs(run: Run, reviewer: User, pair: tuple[Kernel, Kernel]) -> None:
    other = make_user(run.team, TeamRole.REVIEWER, "grace")
    theirs = draft(other, pair[1], "Not yet.")
    draft(reviewer, pair[1], "Now.")
    publish(reviewer, pair[1], "Submit review (1)")
    theirs.refresh_from_db()
    assert theirs.is_draft


# suggestions within comments


def test_a_suggestion_in_a_comment_becomes_a_kernel_with_these_lines_alone_changed(
    reviewer: User, pair: tuple[Kernel, Kernel]
) -> None:
    kernel = pair[1]
    body = "Fewer lines.\n```suggestion\nfloat both;\n```\nThanks."
    thread = say(reviewer, kernel, body, first=50, last=51)
    measure = reverse("comment_measure", args=[kernel.run_id, thread.comments.get().pk])
    assert measure in page(reviewer, kernel)
    answer = signed_in(reviewer).post(measure)
    edit = kernel.run.kernels.get(author=reviewer)
    assert answer["Location"] == reverse("kernel_page", args=[kernel.run_id, edit.number])
    lines = kernel.source.split("\n")
    assert edit.source.split("\n") == [*lines[:49], "float both;", *lines[51:]]
    assert edit.hypothesis is not None and edit.hypothesis.description == "Fewer lines."


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        ("So:\r\n````suggestion \r\na\r\n```\r\n````\r\n", ["a", "```"]),
        ("```suggestion\n```", []),
        ("```suggestion\n\n```", [""]),
        ("```suggestion\na", None),
        ("```suggestion\na\n````suggestion\nb\n````", None),
        ("```suggestions\na\n```", None),
    ],
)
def test_a_suggestion_is_the_first_block_of_that_label(body: str, lines: list[str] | None) -> None:
    assert suggested_lines(body) == lines


def test_a_comment_without_a_suggestion_offers_and_makes_none(reviewer: User, pair: tuple[Kernel, Kernel]) -> None:
    kernel = pair[1]
    comment = say(reviewer, kernel, "```cpp\nnot a suggestion;\n```").comments.get()
    measure = reverse("comment_measure", args=[kernel.run_id, comment.pk])
    assert measure not in page(reviewer, kernel)
    signed_in(reviewer).post(measure)
    assert not kernel.run.kernels.filter(author=reviewer).exists()
    viewer = make_user(kernel.run.team, TeamRole.VIEWER)
    assert signed_in(viewer).post(measure).status_code == 404
