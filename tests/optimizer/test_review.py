"""Test reviews below the pages: who may say what, what two people do at once, and where threads stand in other
kernels."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import pytest
from django.core.exceptions import ValidationError
from django.db import connection
from hypothesis import given
from hypothesis import strategies as st

from optimizer.actions.review import Place, Words, do_begin_thread, do_publish_review, do_reply, do_say
from optimizer.actions.suggestion import Suggestion, base_moved, do_suggest
from optimizer.actions.thread import do_change_thread, do_delete_draft, do_edit_comment
from optimizer.diffs.folding import gaps, visible_rows
from optimizer.diffs.merge import merge
from optimizer.diffs.porting import Fit, Position
from optimizer.diffs.positions import path_between, position_in
from optimizer.diffs.rows import RowKind, compare
from optimizer.models import (
    AuthorKind,
    Comment,
    EvaluationStatus,
    Guidance,
    Kernel,
    Review,
    ReviewVerdict,
    Run,
    RunState,
    TeamRole,
    Thread,
    ThreadState,
    User,
)
from optimizer.queries.diff_change import change_between
from runners.job import JobResult, JobSpec
from tests.factories import (
    BASE,
    correct_result,
    drive,
    fake_evaluate,
    make_kernel,
    make_question,
    make_run,
    make_user,
)

texts = st.lists(st.sampled_from(["a", "b", "", "}", "\tx\r", "🙂", "\u202egnp", "x = 1;"]), max_size=20).map(
    "\n".join
)


@pytest.fixture
def run(db: None) -> Run:
    return make_run()


@pytest.fixture
def kernel(run: Run) -> Kernel:
    return make_kernel(run, BASE)


@pytest.fixture
def rosa(run: Run) -> User:
    return make_user(run.team, TeamRole.REVIEWER, "rosa")


def said(user: User, kernel: Kernel, first: int = 50, last: int = 50) -> Thread:
    return do_say(user, Place(kernel.run, kernel, None, first, last, "new"), Words("Why?")).thread


def events(run: Run) -> list[str]:
    return list(run.events.order_by("seq").values_list("type", flat=True))


def test_nothing_is_announced_before_a_review_is_published(run: Run, kernel: Kernel, rosa: User) -> None:
    comment = do_begin_thread(rosa, Place(run, kernel, None, 3, 4), Words("Draft."))
    assert not [kind for kind in events(run) if kind.startswith("review")] and comment.is_draft
    do_reply(rosa, comment.thread, Words("More."))
    review = do_publish_review(rosa, run, kernel, ReviewVerdict.APPROVE)
    assert review.comments.count() == 2 and events(run)[-1] == "review.published"
    assert run.events.last().payload["comments"] == 2  # type: ignore[union-attr]


def test_the_anchor_keeps_lines_text_and_hash(run: Run, kernel: Kernel, rosa: User) -> None:
    thread = do_say(rosa, Place(run, kernel, None, 4, 3, "new"), Words("Both.")).thread
    assert (thread.first_line, thread.line_count, thread.last_line) == (3, 2, 4)
    assert thread.text == "float line_3 = 3.0f;\nfloat line_4 = 4.0f;" and len(thread.text_hash) == 64


def test_a_deleted_draft_takes_its_empty_thread_and_review_along(run: Run, kernel: Kernel, rosa: User) -> None:
    do_delete_draft(rosa, do_begin_thread(rosa, Place(run, kernel), Words("Never mind.")))
    assert not Thread.objects.exists() and not Review.objects.exists()


def test_a_published_comment_is_not_deleted(kernel: Kernel, rosa: User) -> None:
    with pytest.raises(ValidationError, match="Edit it"):
        do_delete_draft(rosa, said(rosa, kernel).comments.get())


def test_an_edit_keeps_what_was_said_and_a_draft_leaves_no_trace(kernel: Kernel, rosa: User) -> None:
    comment = said(rosa, kernel).comments.get()
    do_edit_comment(rosa, comment, "What for?")
    assert [edit.body for edit in comment.edits.all()] == ["Why?"]
    draft = do_begin_thread(rosa, Place(kernel.run, kernel), Words("a"))
    assert do_edit_comment(rosa, draft, "b").edits.count() == 0


def test_a_draft_thread_cannot_be_resolved(run: Run, kernel: Kernel, rosa: User) -> None:
    thread = do_begin_thread(rosa, Place(run, kernel), Words("x")).thread
    with pytest.raises(ValidationError, match="draft"):
        do_change_thread(rosa, thread, ThreadState.RESOLVED)


@pytest.mark.parametrize("state", [ThreadState.RESOLVED, ThreadState.DROPPED])
def test_an_ended_thread_can_be_opened_again(kernel: Kernel, rosa: User, state: ThreadState) -> None:
    thread = do_change_thread(rosa, said(rosa, kernel), state)
    assert do_change_thread(rosa, thread, ThreadState.OPEN).state == ThreadState.OPEN


@pytest.mark.django_db(transaction=True)
def test_of_two_who_resolve_at_once_one_is_told_and_a_reply_meanwhile_is_kept(run: Run, kernel: Kernel) -> None:
    first, second, third = (make_user(run.team, TeamRole.REVIEWER) for _ in range(3))
    thread = said(first, kernel)
    outcomes = at_once(
        lambda: do_change_thread(first, thread, ThreadState.RESOLVED),
        lambda: do_change_thread(second, thread, ThreadState.RESOLVED),
        lambda: do_say(third, thread, Words("But wait.")),
    )
    refused = [outcome for outcome in outcomes if isinstance(outcome, ValidationError)]
    assert len(refused) == 1 and "resolved already, by" in refused[0].messages[0]
    thread.refresh_from_db()
    assert thread.state == ThreadState.RESOLVED and thread.comments.count() == 2
    assert events(run).count("review.thread") == 1


def at_once(*acts: Callable[[], object]) -> list[object]:
    """Return what each of several acts did or raised, begun together in threads of their own."""
    barrier = threading.Barrier(len(acts))
    outcomes: list[object] = []

    def go(act: Callable[[], object]) -> None:
        barrier.wait()
        try:
            outcomes.append(act())
        except Exception as error:
            outcomes.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=go, args=[act]) for act in acts]
    for one in threads:
        one.start()
    for one in threads:
        one.join(20)
    return outcomes


def test_a_comment_as_guidance_enters_the_next_stored_prompt_with_the_lines_it_is_about(rosa: User) -> None:
    run = drive(make_run(), rounds=2)
    seed = run.kernels.get(key="seed.vectorised")
    words = Words("Keep the row in registers.", is_guidance=True, for_lineage=True)
    do_begin_thread(make_user(run.team), Place(run, seed, None, 7, 8), words)
    draft = Comment.objects.latest("pk")
    assert draft.author is not None and not Guidance.objects.exists()
    do_publish_review(draft.author, run, seed, ReviewVerdict.COMMENT)
    guidance = Guidance.objects.get()
    assert guidance.kernel == seed and guidance.comment == draft
    call = make_question(seed)
    prompt = call.messages[1]["content"]
    assert "> Keep the row in registers." in prompt and f"About kernel #{seed.number}, lines 7–8:" in prompt
    assert seed.source.split("\n")[6].strip() in prompt.partition("About kernel")[2]


def test_porting_goes_through_the_generations_between_and_back(run: Run, kernel: Kernel, rosa: User) -> None:
    child = make_kernel(run, "int one;\n" + BASE, kernel)
    grandchild = make_kernel(run, "int two;\nint one;\n" + BASE, child)
    thread = said(rosa, kernel)
    assert position_in(thread, grandchild) == Position(52, 1)
    assert position_in(said(rosa, grandchild, 52, 52), kernel) == Position(50, 1)


def test_porting_to_a_kernel_that_is_no_relative_is_one_direct_diff(run: Run, kernel: Kernel, rosa: User) -> None:
    cousin = make_kernel(run, "int other;\n" + BASE)
    assert position_in(said(rosa, kernel), cousin) == Position(51, 1)
    stranger = make_kernel(run, "")
    assert position_in(said(rosa, kernel), stranger) in (
        Position(0, 0, Fit.WHOLE_FILE),
        Position(1, 1, Fit.CHANGED),
    )


def test_the_first_parents_path_is_taken_in_either_direction() -> None:
    bases = {4: 3, 3: 2, 2: 1, 9: 2}
    assert path_between(1, 4, bases) == [1, 2, 3, 4]
    assert path_between(4, 2, bases) == [4, 3, 2]
    assert path_between(4, 9, bases) == [4, 9]


def suggestion(base: Kernel, old: str = "line_7 = 7.0f", new: str = "line_7 = 8.0f") -> Suggestion:
    return Suggestion(base, base.source.replace(old, new), "Eight", "Because.")


def test_a_suggested_edit_is_measured_like_any_other_and_costs_no_search_budget(rosa: User) -> None:
    run = drive(make_run(), rounds=2)
    author = make_user(run.team, TeamRole.REVIEWER)
    base = run.kernels.get(key="seed.vectorised")
    edit = do_suggest(author, Suggestion(base, base.source + "// one line more\n", why="To see."))
    assert (edit.author_kind, edit.author, edit.parents.get()) == (AuthorKind.PERSON, author, base)
    assert edit.hypothesis is not None and edit.hypothesis.kind == "suggestion"
    run = drive(run)
    edit.refresh_from_db()
    assert edit.evaluation.status == EvaluationStatus.CORRECT and edit.evaluation.time_us
    assert run.state == RunState.FINISHED and run.spent_evaluations == run.budget_evaluations
    assert run.kernels.filter(author_kind=AuthorKind.TUNER).count() == run.budget_evaluations


def test_a_suggestion_in_an_ended_run_is_measured_and_the_run_stays_ended(rosa: User) -> None:
    run = drive(make_run())
    base = run.kernels.get(key="seed.vectorised")
    edit = do_suggest(make_user(run.team), Suggestion(base, base.source + "// later\n"))
    run = drive(run, fake_evaluate)
    drive_queue_once()
    edit.refresh_from_db()
    assert edit.evaluation.status == EvaluationStatus.CORRECT and run.state == RunState.FINISHED


def drive_queue_once() -> None:
    from optimizer.job_source import DatabaseJobSource
    from runners.worker import work_once
    from tests.factories import QUEUE

    while work_once(DatabaseJobSource(), QUEUE, "test-runner", fake_evaluate):
        pass


@pytest.mark.parametrize(
    ("text", "words"),
    [(BASE, "Nothing changed"), (" \n", "Enter the source"), ("x" * ((1 << 20) + 1), "KiB at most")],
)
def test_an_edit_that_cannot_be_a_kernel_is_refused(kernel: Kernel, rosa: User, text: str, words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        do_suggest(rosa, Suggestion(kernel, text))


def test_a_browsers_line_ends_are_no_change(kernel: Kernel, rosa: User) -> None:
    with pytest.raises(ValidationError, match="Nothing changed"):
        do_suggest(rosa, Suggestion(kernel, BASE.replace("\n", "\r\n")))


def test_a_run_that_is_being_stopped_takes_no_edit(kernel: Kernel, rosa: User) -> None:
    Run.objects.filter(pk=kernel.run_id).update(state=RunState.STOPPING)
    with pytest.raises(ValidationError, match="is stopping"):
        do_suggest(rosa, suggestion(kernel))


def test_an_edit_whose_base_moved_on_is_brought_along_or_said_to_conflict(kernel: Kernel) -> None:
    assert base_moved(kernel, kernel.source, kernel.number) is None
    latest = make_kernel(kernel.run, BASE.replace("line_90 = 90.0f", "line_90 = 9.0f"), kernel)
    measured(latest)
    moved = base_moved(kernel, suggestion(kernel).text, kernel.number)
    assert moved is not None and moved.latest == latest and moved.merged is not None
    assert "line_7 = 8.0f" in moved.merged and "line_90 = 9.0f" in moved.merged
    clash = base_moved(kernel, suggestion(kernel, "line_90 = 90.0f", "line_90 = 1.0f").text, kernel.number)
    assert clash is not None and clash.merged is None
    assert base_moved(kernel, suggestion(kernel).text, latest.number) is None


def measured(kernel: Kernel) -> None:
    kernel.evaluations.create(
        target=kernel.run.target, first_of=kernel, effort="full", state="done", status=EvaluationStatus.CORRECT
    )


@given(texts, texts)
def test_merging_with_an_unchanged_side_gives_the_other(base: str, text: str) -> None:
    assert merge(base, text, base) == text
    assert merge(base, base, text) == text
    assert merge(base, text, text) == text


@given(texts, texts, texts)
def test_merging_is_symmetric_or_a_conflict_either_way(base: str, mine: str, theirs: str) -> None:
    assert merge(base, mine, theirs) == merge(base, theirs, mine)


@given(texts, texts, st.booleans())
def test_rows_show_every_line_of_both_sides_once_and_in_order(old: str, new: str, ignore: bool) -> None:
    diff = compare(old, new, ignore)
    assert [row.old for row in diff.rows if row.old is not None] == list(range(len(diff.old.lines)))
    assert [row.new for row in diff.rows if row.new is not None] == list(range(len(diff.new.lines)))
    equal = [row for row in diff.rows if row.kind is RowKind.EQUAL]
    if not ignore:
        assert all(diff.old.lines[row.old or 0] == diff.new.lines[row.new or 0] for row in equal)


@given(
    st.integers(0, 60), st.lists(st.integers(0, 60), max_size=5), st.tuples(st.integers(0, 60), st.integers(0, 60))
)
def test_what_is_shown_and_what_is_folded_are_together_everything(
    count: int, centres: list[int], opened: tuple[int, int]
) -> None:
    shown = visible_rows(count, centres, [opened])
    hidden = [n for gap in gaps(0, count, shown) for n in range(gap.start, gap.end)]
    assert sorted([*hidden, *(n for n in shown if n < count)]) == list(range(count))


def test_a_change_that_was_timed_in_turn_is_told_from_that_evaluation_alone(run: Run) -> None:
    run = drive(run, rounds=2)
    old = run.kernels.get(key="seed.vectorised")
    edit = do_suggest(make_user(run.team), Suggestion(old, old.source + "// in turn\n"))
    drive(run, timed_in_turn)
    change = change_between(old, Kernel.objects.select_related("evaluation").get(pk=edit.pk))
    assert change.paired and change.overall is not None and change.overall.ratio == 1.1
    (shape,) = change.shapes
    assert (shape.old_us, shape.new_us, shape.verdict) == (120.0, 100.0, "faster")
    assert shape.low is not None and shape.high is not None and shape.low <= 1.2 <= shape.high


def timed_in_turn(spec: JobSpec, **_more: object) -> JobResult:
    """Return times by which every kernel takes 100 µs, its parent 120."""
    result = correct_result(spec, 100.0)
    samples = {"candidate": [100.0, 101, 99, 100, 100], "parent": [120.0, 119, 121, 120, 120]}
    cases = [replace(case, parent_us=120.0, samples=samples) for case in result.cases]
    return replace(result, cases=cases)


def test_two_kernels_that_were_never_timed_together_are_compared_through_their_baselines(run: Run) -> None:
    run = drive(run)
    first, second = run.kernels.filter(author_kind=AuthorKind.TUNER).select_related("evaluation")[:2]
    second.parent_links.all().delete()
    change = change_between(first, second)
    assert not change.paired and change.overall is not None
    assert first.evaluation.speedup is not None and second.evaluation.speedup is not None
    assert change.overall.ratio == pytest.approx(second.evaluation.speedup / first.evaluation.speedup)
    assert change.overall.low < change.overall.ratio < change.overall.high  # type: ignore[operator]
