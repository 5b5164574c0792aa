"""Test runs of the strategy `external`: what they take from outside, what they refuse, and how they end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.utils import timezone

from optimizer.actions.submission import Submission, do_finish_run, do_measure, do_submit
from optimizer.loop import advance
from optimizer.models import (
    AuditEntry,
    EvaluationState,
    EvaluationStatus,
    Job,
    Kernel,
    Run,
    Runner,
    RunState,
    Team,
    TeamRole,
    TokenScope,
    User,
)
from optimizer.models.run import RunTransitionError
from optimizer.queries.budgets import Budget
from optimizer.queries.run_status import status_of
from runners.job import Baseline, JobResult, JobSpec, Language, Source
from runners.receipts import receipt
from runners.verbs.workbook import Expected, Reported
from tests.driven_runs import make_driven_run
from tests.factories import correct_result, drive, fake_evaluate, make_run, make_user
from tests.optimizer.clients import Call, caller_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def run(team: Team, member: User) -> Run:
    """Return a run of the strategy `external` whose seeds are measured."""
    return make_driven_run(2, team, member, strategy="external", budget=Budget(evaluations=6))


def kernel(number: int = 1, **changes: Any) -> Submission:
    return replace(Submission(Source(Language.CPP, f"// kernel {number}\n"), title=f"Kernel {number}"), **changes)


def submit(user: User, run: Run, wanted: Submission) -> Kernel:
    return do_submit(user, run, wanted)[0]


def claim(time_us: float, number: int = 1) -> Submission:
    return kernel(number, reported=Reported(time_us, device="my desk"), measure=False)


def refused(user: User, run: Run, wanted: Submission) -> str:
    with pytest.raises(ValidationError) as error:
        do_submit(user, run, wanted)
    return "; ".join(error.value.messages)


def test_run_waits_for_kernels_instead_of_being_stuck(run: Run) -> None:
    advance(run.pk)
    run.refresh_from_db()
    assert run.state == RunState.RUNNING


def test_run_says_that_it_waits_for_a_submission_unless_one_is_being_measured(run: Run, member: User) -> None:
    Runner.objects.create(name="here", target=run.target, heartbeat_at=timezone.now(), queues=["bench.cpu"])
    assert status_of(run).text == "Waiting for the next submission."
    submit(member, run, kernel())
    assert status_of(run).text != "Waiting for the next submission."
    drive(run, rounds=1)
    assert status_of(run).text == "Waiting for the next submission."


def test_submitted_kernel_is_measured_with_parent_and_hypothesis(run: Run, member: User) -> None:
    base = submit(member, run, kernel(1))
    drive(run, rounds=1)
    expected = Expected("Vectors help.", "", 5.0, 20.0)
    child = submit(member, run, kernel(2, parents=(base.number,), hypothesis=expected))
    drive(run, rounds=1)
    child.refresh_from_db()
    assert child.evaluation.status == EvaluationStatus.CORRECT
    assert child.evaluation.opponent == base
    assert child.hypothesis is not None and child.hypothesis.measured_gain == pytest.approx(10.0)
    assert child.author == member
    run.refresh_from_db()
    assert run.spent_evaluations == 2


def test_same_key_with_the_same_source_is_the_same_kernel(run: Run, member: User) -> None:
    first, was_new = do_submit(member, run, kernel(1, key="attempt-1"))
    again, is_new = do_submit(member, run, kernel(1, key="attempt-1"))
    assert (first.pk, was_new, is_new) == (again.pk, True, False)
    assert "a different source" in refused(member, run, kernel(2, key="attempt-1"))


def test_flood_is_refused_until_verdicts_are_there(run: Run, member: User) -> None:
    Run.objects.filter(pk=run.pk).update(settings={"open_kernels": 2})
    submit(member, run, kernel(1))
    submit(member, run, kernel(2))
    assert "2 kernels of this run wait" in refused(member, run, kernel(3))
    drive(run, rounds=1)
    assert submit(member, run, kernel(3)).number


def test_budget_is_never_exceeded_and_ends_the_run(run: Run, member: User) -> None:
    for number in range(6):
        submit(member, run, kernel(number))
    assert "budget of 6 evaluations is used up" in refused(member, run, kernel(7))
    drive(run, rounds=10)
    assert (run.state, run.spent_evaluations) == (RunState.FINISHED, 6)
    assert "takes no kernels" in refused(member, run, kernel(8))


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (kernel(source=Source(Language.CPP, "  ")), "Enter the source"),
        (kernel(source=Source(Language.CUDA, "x")), "takes kernels in"),
        (kernel(source=Source(Language.CPP, "x" * ((1 << 20) + 1))), "KiB at most"),
        (kernel(parents=(99,)), "no kernel #99"),
        (kernel(key="a\nb"), "printable"),
        (kernel(measure=False), "needs the time"),
        (claim(float("nan")), "above zero"),
        (claim(-1.0), "above zero"),
        (claim(float("inf")), "above zero"),
        (claim(1e-9), "is impossible: this hardware needs"),
        (kernel(hypothesis=Expected("x", "", float("nan"))), "in percent"),
        (kernel(hypothesis=Expected("  ")), "has a title"),
    ],
)
def test_what_cannot_be_a_kernel_or_a_time_is_refused_in_words(
    run: Run, member: User, wanted: Submission, words: str
) -> None:
    assert words in refused(member, run, wanted)
    assert not run.kernels.filter(author_kind="agent").exists()


def test_run_that_searches_by_itself_takes_no_submissions(team: Team, member: User) -> None:
    assert "writes its own kernels" in refused(member, make_run(team, member), kernel())


def test_run_that_is_paused_or_has_not_begun_takes_none(team: Team, member: User) -> None:
    made = make_run(team, member, strategy="external")
    assert "has not started yet" in refused(member, made, kernel())
    Run.objects.filter(pk=made.pk).update(state=RunState.PAUSED)
    assert "paused" in refused(member, made, kernel())


def test_reviewer_may_not_submit(run: Run, team: Team) -> None:
    assert "Only operators submit" in refused(make_user(team, TeamRole.REVIEWER), run, kernel())


# reported, not measured


def test_reported_kernel_is_shown_as_such_and_never_leads(run: Run, member: User) -> None:
    best_before = run.best_kernel_id
    row = submit(member, run, claim(20.0))
    drive(run, rounds=2)
    assert row.evaluation.state == EvaluationState.REPORTED
    assert not Job.objects.filter(evaluation__kernel=row).exists()
    run.refresh_from_db()
    assert (run.best_kernel_id, run.spent_evaluations) == (best_before, 0)


def test_reported_kernel_is_measured_when_somebody_asks(run: Run, member: User) -> None:
    row = submit(member, run, claim(20.0))
    do_measure(member, row)
    drive(run, rounds=1)
    row.evaluation.refresh_from_db()
    assert row.evaluation.status == EvaluationStatus.CORRECT
    with pytest.raises(ValidationError, match="measured already"):
        do_measure(member, row)


def test_kernel_like_a_reported_one_is_measured_itself(run: Run, member: User) -> None:
    submit(member, run, claim(20.0, 1))
    measured = submit(member, run, kernel(1))
    drive(run, rounds=1)
    measured.evaluation.refresh_from_db()
    assert measured.evaluation.status == EvaluationStatus.CORRECT


def test_claims_that_would_lead_are_measured_before_the_run_ends(run: Run, member: User) -> None:
    rows = [submit(member, run, claim(10.0 + number, number)) for number in range(5)]
    slow = submit(member, run, claim(5000.0, 9))
    do_finish_run(member, run)
    drive(run, rounds=20)
    states = [Kernel.objects.get(pk=row.pk).evaluation.state for row in rows]
    # The setting `settle` is three: the fastest three claims are measured, no more.
    assert states == ["done"] * 3 + ["reported"] * 2
    assert Kernel.objects.get(pk=slow.pk).evaluation.state == EvaluationState.REPORTED
    assert run.state == RunState.FINISHED


def test_false_claim_does_not_lead_after_it_was_measured(run: Run, member: User) -> None:
    honest = submit(member, run, kernel(1))
    drive(run, rounds=1)
    liar = submit(member, run, claim(15.0, 2))
    do_finish_run(member, run)

    def slow_if_claimed(spec: JobSpec, **told: Any) -> JobResult:
        return correct_result(spec, 400.0) if "kernel 2" in spec.candidate.text else fake_evaluate(spec, **told)

    drive(run, slow_if_claimed, rounds=20)
    assert run.state == RunState.FINISHED
    assert run.best_kernel_id not in (None, liar.pk)
    assert Kernel.objects.get(pk=honest.pk).evaluation.status == EvaluationStatus.CORRECT


def test_too_many_reported_kernels_are_refused(run: Run, member: User) -> None:
    Run.objects.filter(pk=run.pk).update(settings={"reported_kernels": 1})
    submit(member, run, claim(20.0, 1))
    assert "takes no more" in refused(member, run, claim(20.0, 2))


# finishing


def test_finished_run_settles_its_leader_and_says_who_finished_it(run: Run, member: User) -> None:
    submit(member, run, kernel(1))
    drive(run, rounds=1)
    do_finish_run(member, run, "nothing left to try")
    assert "being finished" in refused(member, run, kernel(2))
    drive(run, rounds=20)
    assert run.state == RunState.FINISHED
    assert run.stop_reason == f"Finished by {member.get_username()}: nothing left to try"
    assert run.kernels.filter(evaluations__effort="confirm").exists()
    assert AuditEntry.objects.filter(action="run.finished").exists()


def test_run_is_finished_once(run: Run, member: User) -> None:
    do_finish_run(member, run)
    with pytest.raises(RunTransitionError, match="already"):
        do_finish_run(member, run)
    drive(run, rounds=20)
    with pytest.raises(RunTransitionError):
        do_finish_run(member, run)


def test_button_of_the_run_page_finishes_the_run(run: Run, pages: Any) -> None:
    assert f"/runs/{run.pk}/finish/" in pages.get(f"/runs/{run.pk}/").content.decode()
    assert pages.post(f"/runs/{run.pk}/finish/").status_code == 302
    run.refresh_from_db()
    assert run.finish_reason.startswith("Finished by ")
    assert f"/runs/{run.pk}/finish/" not in pages.get(f"/runs/{run.pk}/").content.decode()


# the API


def test_api_takes_a_kernel_and_tells_its_verdict(run: Run, api: Call) -> None:
    body = {"source": "// a\n", "language": "cpp", "key": "a", "title": "A", "hypothesis": {"title": "It helps."}}
    made = api("POST", f"/runs/{run.pk}/submissions", body)
    assert (made.status_code, made.json()["state"]) == (201, "queued")
    assert api("POST", f"/runs/{run.pk}/submissions", body).status_code == 200
    drive(run, rounds=1)
    found = api("GET", f"/runs/{run.pk}/kernels/{made.json()['kernel']}/verdict").json()
    assert (found["state"], found["verdict"]["status"]) == ("done", "correct")
    best = api("GET", f"/runs/{run.pk}/best").json()
    assert best["source"]
    assert api("POST", f"/runs/{run.pk}/finish", {"reason": "done"}).status_code == 200


def test_api_tells_reported_from_measured(run: Run, api: Call) -> None:
    body = {
        "source": "// a\n",
        "language": "cpp",
        "measure": False,
        "reported": {"time_us": 30.0, "device": "desk"},
    }
    made = api("POST", f"/runs/{run.pk}/submissions", body).json()
    assert (made["state"], made["verdict"], made["reported"]["time_us"]) == ("reported", {}, 30.0)
    measured = api("POST", f"/runs/{run.pk}/kernels/{made['kernel']}/measure")
    assert measured.json()["state"] == "queued"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"source": "x", "language": "cobol"},
        {"source": "x", "language": "cpp", "unknown": 1},
        {"source": "x", "language": "cpp", "reported": {"time_us": 0}},
        {"source": "x", "language": "cpp", "parents": [-1]},
        {"source": "x", "language": "cpp", "parents": list(range(50))},
        {"source": " \n", "language": "cpp"},
    ],
)
def test_api_refuses_malformed_submissions(run: Run, api: Call, body: dict[str, Any]) -> None:
    assert api("POST", f"/runs/{run.pk}/submissions", body).status_code == 422


def test_token_without_the_scope_may_not_submit(run: Run, member: User) -> None:
    reader = caller_of(member, TokenScope.READ)
    assert reader("POST", f"/runs/{run.pk}/submissions", {"source": "x", "language": "cpp"}).status_code == 403


def test_receipt_of_a_kernel_is_signed_by_the_installation(run: Run, member: User, api: Call) -> None:
    row = submit(member, run, kernel(1))
    assert api("GET", f"/runs/{run.pk}/kernels/{row.number}/receipt").status_code == 422
    drive(run, rounds=1)
    signed = receipt.loads(api("GET", f"/runs/{run.pk}/kernels/{row.number}/receipt").content)
    assert signed.public_key == api("GET", "/receipt-key").json()["public_key"]
    assert signed.source == row.as_source()
    assert signed.statement.baseline is Baseline.EAGER
    bare = receipt.loads(api("GET", f"/runs/{run.pk}/kernels/{row.number}/receipt?files=false").content)
    assert bare.source is None


def test_reported_kernel_has_no_receipt(run: Run, member: User, api: Call) -> None:
    row = submit(member, run, claim(20.0))
    answer = api("GET", f"/runs/{run.pk}/kernels/{row.number}/receipt")
    assert (answer.status_code, "no verdict" in answer.json()["detail"]) == (422, True)


def test_kernel_page_says_that_a_time_is_only_reported(run: Run, member: User, pages: Any) -> None:
    row = submit(member, run, claim(20.0))
    text = " ".join(pages.get(f"/runs/{run.pk}/kernels/{row.number}/").content.decode().split())
    assert "Reported, not measured" in text
    assert "20.00 µs" in text
    assert "my desk" in text
