"""Test the API of single kernels: people's own, what changed, what to hand in; and the talk with models and agents."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from optimizer.actions.guidance import do_give_guidance
from optimizer.actions.review import Place, Words, do_begin_thread, do_say
from optimizer.models import (
    AuthorKind,
    CallState,
    Comment,
    EvaluationStatus,
    Kernel,
    LlmCall,
    Run,
    RunState,
    TeamRole,
    TokenScope,
    User,
)
from runners.job import JobResult, JobSpec
from tests.factories import BASE, correct_result, drive, make_kernel, make_run, make_team, make_user
from tests.optimizer.clients import Call, caller_of

pytestmark = pytest.mark.django_db
EDITED = BASE.replace("line_50 = 50.0f", "line_50 = 51.0f")


@pytest.fixture
def pair(run: Run) -> tuple[Kernel, Kernel]:
    """Return a kernel and its child, which differ in line 50."""
    old = make_kernel(run, BASE)
    return old, make_kernel(run, EDITED, old)


def suggestion(base: Kernel, **changes: object) -> dict[str, object]:
    return {
        "base": base.number,
        "source": base.source.replace("line_7 = 7", "line_7 = 8"),
        "note": "Why not?",
    } | changes


# a person's kernel


def test_a_persons_kernel_is_queued_with_its_base_its_author_and_its_reason(
    api: Call, run: Run, member: User
) -> None:
    base = drive(run, rounds=2).kernels.get(key="seed.vectorised")
    told = api("POST", f"/runs/{run.pk}/kernels", suggestion(base, source=base.source + "// mine\n", title="Mine"))
    assert told.status_code == 201, told.content
    made = run.kernels.get(number=told.json()["number"])
    assert (made.author_kind, made.author, made.report) == (AuthorKind.PERSON, member, "Why not?")
    assert (told.json()["title"], told.json()["parents"]) == ("Mine", [base.number])
    assert made.evaluation.verdict == told.json()["evaluation"]["verdict"] == ""


def test_an_edit_that_changes_nothing_is_refused_in_words(api: Call, pair: tuple[Kernel, Kernel]) -> None:
    answer = api("POST", f"/runs/{pair[0].run_id}/kernels", suggestion(pair[0], source=BASE))
    assert (answer.status_code, answer.json()["detail"]) == (422, "Nothing changed.")


def test_a_run_that_is_being_stopped_takes_no_kernel(api: Call, pair: tuple[Kernel, Kernel]) -> None:
    Run.objects.filter(pk=pair[0].run_id).update(state=RunState.STOPPING)
    answer = api("POST", f"/runs/{pair[0].run_id}/kernels", suggestion(pair[0]))
    assert answer.status_code == 422 and "is stopping" in answer.json()["detail"]


def test_an_edit_whose_base_moved_on_is_answered_with_the_merge_and_taken_when_sent_again(
    api: Call, pair: tuple[Kernel, Kernel]
) -> None:
    old, new = pair
    new.evaluations.create(
        target=new.run.target, first_of=new, effort="full", state="done", status=EvaluationStatus.CORRECT
    )
    address = f"/runs/{old.run_id}/kernels"
    answer = api("POST", address, suggestion(old, seen=old.number))
    assert answer.status_code == 409 and answer.json()["latest"] == new.number
    merged = answer.json()["merged"]
    assert "line_7 = 8" in merged and "line_50 = 51" in merged
    assert old.run.kernels.filter(author_kind=AuthorKind.PERSON).count() == 0
    assert api("POST", address, suggestion(old, seen=new.number)).status_code == 201


def test_a_token_that_may_only_read_adds_no_kernel(member: User, pair: tuple[Kernel, Kernel]) -> None:
    read = caller_of(member, TokenScope.READ)
    assert read("POST", f"/runs/{pair[0].run_id}/kernels", suggestion(pair[0])).status_code == 403


def test_a_viewer_and_a_foreigner_find_no_run_to_add_a_kernel_to(run: Run, pair: tuple[Kernel, Kernel]) -> None:
    for user in (make_user(run.team, TeamRole.VIEWER), make_user(make_team(), TeamRole.OWNER)):
        assert caller_of(user)("POST", f"/runs/{run.pk}/kernels", suggestion(pair[0])).status_code == 404


# what changed


def test_a_diff_tells_the_changed_row_with_its_surroundings(api: Call, pair: tuple[Kernel, Kernel]) -> None:
    old, new = pair
    told = api("GET", f"/runs/{new.run_id}/kernels/{new.number}/diff?context=1").json()
    assert (told["old"]["number"], told["new"]["number"], told["added"], told["removed"]) == (
        old.number,
        new.number,
        1,
        1,
    )
    ((before, changed, after),) = told["hunks"]
    assert (before["kind"], before["old"], after["new"]) == ("equal", 49, 51)
    assert (changed["kind"], changed["old"], changed["new"]) == ("changed", 50, 50)
    assert changed["old_text"] == "float line_50 = 50.0f;" and changed["new_text"] == "float line_50 = 51.0f;"


def test_a_diff_names_the_other_kernel_by_number_or_run_and_number(api: Call, pair: tuple[Kernel, Kernel]) -> None:
    old, new = pair
    elsewhere = make_kernel(make_run(old.run.team), BASE.replace("line_1 ", "other "))
    for against in (str(new.number), f"{new.run_id}.{new.number}"):
        told = api("GET", f"/runs/{old.run_id}/kernels/{old.number}/diff?against={against}").json()
        assert told["old"] == {"run": new.run_id, "number": new.number}
    told = api("GET", f"/runs/{old.run_id}/kernels/{old.number}/diff?against={elsewhere.run_id}.{elsewhere.number}")
    assert told.json()["old"]["run"] == elsewhere.run_id


def test_another_teams_kernel_is_nothing_to_compare_with(api: Call, pair: tuple[Kernel, Kernel]) -> None:
    foreign = make_kernel(make_run(make_team()), BASE)
    address = f"/runs/{pair[1].run_id}/kernels/{pair[1].number}/diff"
    for query in (f"?against={foreign.run_id}.{foreign.number}", "?against=nonsense", "?text=no-such-listing"):
        assert api("GET", address + query).status_code == 404, query


def test_a_kernel_beside_nothing_is_told_whole(api: Call, pair: tuple[Kernel, Kernel]) -> None:
    told = api("GET", f"/runs/{pair[0].run_id}/kernels/{pair[0].number}/diff?against=none").json()
    assert told["old"] is None and told["change"] is None
    assert [len(hunk) for hunk in told["hunks"]] == [100]


def twice_as_fast(spec: JobSpec, **_more: object) -> JobResult:
    """Return times at which every shape of every kernel is twice as fast as its baseline, by five per cent either
    way."""
    result = correct_result(spec, 100.0)
    cases = [replace(case, speedup=2.0, speedup_low=1.9, speedup_high=2.1) for case in result.cases]
    return replace(result, cases=cases)


def test_a_diff_tells_each_shapes_change_with_its_interval_and_verdict(api: Call, run: Run) -> None:
    first, second = drive(run, twice_as_fast).kernels.filter(author_kind=AuthorKind.TUNER).order_by("number")[:2]
    second.parent_links.all().delete()
    told = api("GET", f"/runs/{run.pk}/kernels/{second.number}/diff?against={first.number}").json()["change"]
    assert told["shapes"] and told["overall"] and (told["paired"], told["why_not"]) == (False, "")
    for shape in told["shapes"]:
        assert (shape["old_us"], shape["new_us"], shape["ratio"], shape["verdict"]) == (100.0, 100.0, 1.0, "same")
        assert 0.9 < shape["low"] < 1.0 < shape["high"] < 1.1


# what to hand in


def test_the_submission_and_the_patch_are_the_pages_files(api: Call, finished: Run) -> None:
    run, best = finished, finished.best_kernel
    assert best is not None
    made = api("GET", f"/runs/{run.pk}/kernels/{best.number}/submission/native")
    assert made.status_code == 200 and "attachment" in made["Content-Disposition"] and made.content
    patch = api("GET", f"/runs/{run.pk}/kernels/{best.number}/patch")
    assert patch.status_code == 200 and patch["Content-Type"].startswith("text/x-diff")


def test_a_kernel_that_cannot_be_handed_in_like_that_is_refused_with_the_reason(api: Call, finished: Run) -> None:
    run, best = finished, finished.best_kernel
    assert best is not None
    answer = api("GET", f"/runs/{run.pk}/kernels/{best.number}/submission/nonsense")
    assert (answer.status_code, answer.json()["detail"]) == (422, "There is no format 'nonsense'.")


# calls


def make_call(run: Run, key: str, **changes: object) -> LlmCall:
    fields = {
        "role": "coder", "provider": "vllm", "model": "big", "prompt_version": "coder@01", "prompt_tokens": 12,
        "answer_tokens": 3, "cost_usd": Decimal("0.0123"), "answer_text": "Done.", "state": CallState.ANSWERED,
        "messages": [{"role": "user", "content": "Write."}],
        "transport": {"duration_s": 7.5, "finish": "stop", "claimed_by": "somebody"},
    }  # fmt: skip
    return LlmCall.objects.create(run=run, key=key, **(fields | changes))


def test_calls_are_listed_newest_first_in_pages_and_by_role(api: Call, run: Run) -> None:
    first, second, third = (
        make_call(run, f"c{n}", role=role) for n, role in enumerate(["coder", "coder", "judge"])
    )
    page = api("GET", f"/runs/{run.pk}/calls?limit=2").json()
    assert [row["id"] for row in page["items"]] == [third.pk, second.pk] and "messages" not in page["items"][0]
    assert [row["id"] for row in api("GET", f"/runs/{run.pk}/calls?cursor={page['next']}").json()["items"]] == [
        first.pk
    ]
    assert [row["id"] for row in api("GET", f"/runs/{run.pk}/calls?role=judge").json()["items"]] == [third.pk]


def test_a_call_is_told_whole_and_the_queues_bookkeeping_is_not(api: Call, run: Run) -> None:
    told = api("GET", f"/runs/{run.pk}/calls/{make_call(run, 'c').pk}").json()
    assert told["messages"] == [{"role": "user", "content": "Write."}] and told["answer_text"] == "Done."
    assert (told["prompt_tokens"], told["answer_tokens"], told["cost_usd"], told["seconds"]) == (12, 3, 0.0123, 7.5)
    assert told["prompt_version"] == "coder@01" and told["transport"] == {"finish": "stop"}


def test_a_call_of_another_run_is_not_found(api: Call, run: Run) -> None:
    foreign = make_call(make_run(make_team()), "c")
    assert api("GET", f"/runs/{run.pk}/calls/{foreign.pk}").status_code == 404
    assert api("GET", f"/runs/{foreign.run_id}/calls").status_code == 404


# guidance


def test_guidance_is_listed_and_withdrawn_once(api: Call, run: Run, member: User) -> None:
    said = do_give_guidance(member, run, "Use tiles.")
    (row,) = api("GET", f"/runs/{run.pk}/guidance").json()["items"]
    assert (row["text"], row["author"], row["withdrawn_at"]) == ("Use tiles.", member.username, None)
    assert api("DELETE", f"/runs/{run.pk}/guidance/{said.pk}").status_code == 204
    (row,) = api("GET", f"/runs/{run.pk}/guidance").json()["items"]
    assert row["withdrawn_by"] == member.username
    again = api("DELETE", f"/runs/{run.pk}/guidance/{said.pk}")
    assert again.status_code == 422 and "Already withdrawn" in again.json()["detail"]


def test_another_runs_guidance_is_not_withdrawn(api: Call, run: Run, member: User) -> None:
    other = do_give_guidance(member, make_run(run.team, member), "Use tiles.")
    assert api("DELETE", f"/runs/{run.pk}/guidance/{other.pk}").status_code == 404
    other.refresh_from_db()
    assert other.withdrawn_at is None


# comments


def test_a_comment_of_ones_own_gets_other_words(api: Call, run: Run, member: User) -> None:
    comment = do_say(member, Place(run), Words("Why?"))
    told = api("PUT", f"/runs/{run.pk}/comments/{comment.pk}", {"body": "Why not?"}).json()
    assert told["body"] == "Why not?" and told["edited_at"] is not None
    assert api("PUT", f"/runs/{run.pk}/comments/{comment.pk}", {"body": " "}).status_code == 422


def test_a_draft_is_taken_back_and_a_published_comment_is_not(api: Call, run: Run, member: User) -> None:
    draft = do_begin_thread(member, Place(run), Words("Why?"))
    assert api("DELETE", f"/runs/{run.pk}/comments/{draft.pk}").status_code == 204
    assert not Comment.objects.filter(pk=draft.pk).exists()
    said = do_say(member, Place(run), Words("Why?"))
    answer = api("DELETE", f"/runs/{run.pk}/comments/{said.pk}")
    assert answer.status_code == 422 and "Published" in answer.json()["detail"]


def test_a_colleagues_comment_is_nobody_elses_to_change(api: Call, run: Run, owner: User) -> None:
    said = do_say(owner, Place(run), Words("Mine."))
    assert api("PUT", f"/runs/{run.pk}/comments/{said.pk}", {"body": "Theirs."}).status_code == 404
    assert api("DELETE", f"/runs/{run.pk}/comments/{said.pk}").status_code == 404
    said.refresh_from_db()
    assert said.body == "Mine."
