"""Test that the pages of a run and of a kernel bear what models, compilers and people may send."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from optimizer.actions.guidance import do_give_guidance
from optimizer.loop import advance
from optimizer.models import (
    Evaluation,
    EvaluationState,
    EvaluationStatus,
    Job,
    JobLog,
    JobState,
    Kernel,
    Run,
    RunState,
    Team,
    TeamRole,
    User,
)
from runners.job import BuildReport, JobResult, JobSpec, Status
from tests.driven_runs import make_finished_run
from tests.factories import drive, failed_result, make_run, make_user

pytestmark = pytest.mark.django_db
SCRIPT = "<script>alert(1)</script>"
RTL = "\u202e"


def page_of(client: Client, run: Run, name: str = "run_page", *more: Any) -> str:
    answer = client.get(reverse(name, args=[run.pk, *more]))
    assert answer.status_code == 200
    return answer.content.decode()


def at_work(run: Run, log: str) -> Job:
    """Return the run's first job in the hands of a worker that has said `log`."""
    advance(run.pk)
    job = Job.objects.filter(evaluation__kernel__run=run).order_by("pk")[0]
    Job.objects.filter(pk=job.pk).update(state=JobState.RUNNING, worker=SCRIPT, fence=1, started_at=timezone.now())
    Evaluation.objects.filter(job=job).update(state=EvaluationState.RUNNING, stage="timing")
    JobLog.objects.create(job=job, fence=1, seq=1, text=log)
    JobLog.objects.create(job=job, fence=0, seq=9, text="an earlier attempt")
    return job


def test_a_worker_shows_the_end_of_its_log_and_nothing_of_an_earlier_attempt(pages: Client, team: Team) -> None:
    run = make_run(team)
    at_work(run, f"first\n\x1b[31m{SCRIPT}\x1b[0m\nlast")
    said = page_of(pages, run, "run_workers")
    assert "last" in said and "&lt;script&gt;" in said
    assert SCRIPT not in said and "\x1b" not in said and "an earlier attempt" not in said


def test_of_a_log_of_fifty_thousand_lines_only_the_end_is_sent(pages: Client, team: Team) -> None:
    run = make_run(team)
    at_work(run, "\n".join(f"line {n}" for n in range(50_000)))
    said = page_of(pages, run, "run_workers")
    assert "line 49999" in said and "line 49000" not in said
    assert len(said) < 10_000


def test_a_build_log_of_fifty_thousand_lines_is_cut_in_the_middle(pages: Client, team: Team) -> None:
    def noisy(spec: JobSpec, **_more: Any) -> JobResult:
        log = "\n".join(f"warning {n} {SCRIPT}" for n in range(50_000))
        report = BuildReport(ok=False, seconds=1.0, cached=False, log=log)
        return JobResult(job_id=spec.job_id, status=Status.BUILD_FAILED, build=report, reasons=[SCRIPT])

    run = drive(make_run(team), noisy)
    said = page_of(pages, run, "kernel_page", 1)
    assert "characters left out" in said
    assert len(said) < 1_500_000
    assert SCRIPT not in said


def test_a_run_with_only_failures_has_every_page(pages: Client, team: Team) -> None:
    run = drive(make_run(team), lambda spec, **_: failed_result(spec, Status.CRASHED))
    for name in ("run_page", "hypotheses", "run_curve", "run_live", "run_workers"):
        page_of(pages, run, name)
    assert "No correct kernel yet." in page_of(pages, run)
    compared = pages.get(reverse("compare"), {"run": [run.pk, make_run(team).pk]})
    assert [one.geomean for one in compared.context["outcomes"]] == [None, None]


def test_a_run_of_five_thousand_kernels_is_shown_a_page_at_a_time(
    pages: Client, team: Team, django_assert_max_num_queries: Any
) -> None:
    run = make_run(team)
    with connection.cursor() as cursor:
        # PostgreSQL's plans for checking foreign keys date from tables of a few rows: each check reads a whole table.
        cursor.execute("DISCARD PLANS")
    kernels = Kernel.objects.bulk_create(
        Kernel(run=run, number=n, key=f"k{n}", author_kind="tuner", language="cpp", source="x", content_hash=str(n))
        for n in range(5_000)
    )
    Evaluation.objects.bulk_create(
        Evaluation(kernel=kernel, first_of=kernel, target=run.target, effort="full", state=EvaluationState.DONE,
                   status=EvaluationStatus.CORRECT, speedup=1 + kernel.number / 1e4, time_us=9.0,
                   finished_at=timezone.now())
        for kernel in kernels
    )  # fmt: skip
    with django_assert_max_num_queries(30):
        said = page_of(pages, run)
    assert said.count(f'href="{reverse("kernel_page", args=[run.pk, 4_999])}"') >= 1
    assert reverse("kernel_page", args=[run.pk, 2_500]) not in said
    with django_assert_max_num_queries(30):
        said = page_of(pages, run, "run_kernels")
    assert "1–50 of 5000 kernels" in " ".join(said.split())
    assert "The first 500 of 5000" in page_of(pages, run, "run_curve_table")


def test_reordering_characters_in_a_source_are_warned_of(pages: Client, team: Team) -> None:
    run = make_finished_run(team)
    Kernel.objects.filter(run=run, number=1).update(source=f"int x; // {RTL} }} ;{SCRIPT}")
    said = page_of(pages, run, "kernel_page", 1)
    assert "U+202E RIGHT-TO-LEFT OVERRIDE" in said and RTL not in said and SCRIPT not in said


def test_guidance_is_text_and_reaches_the_page_with_its_author(pages: Client, member: User, team: Team) -> None:
    run = make_run(team, strategy="scientist", providers={"default": {"provider": "inbox"}})
    said = pages.post(
        reverse("run_instruct", args=[run.pk]), {"text": f"Use {SCRIPT}"}, headers={"HX-Request": "true"}
    ).content.decode()
    assert "&lt;script&gt;" in said and SCRIPT not in said and member.get_username() in said
    note = run.guidance_notes.get()
    pages.post(reverse("run_withdraw", args=[run.pk, note.pk]))
    note.refresh_from_db()
    assert note.withdrawn_by == member
    assert "withdrawn by" in page_of(pages, run)


def test_a_viewers_crafted_post_instructs_nobody(client: Client, member: User, team: Team) -> None:
    run = make_run(team)
    note = do_give_guidance(member, run, "Use LDS.")
    client.force_login(make_user(team, TeamRole.VIEWER))
    assert client.post(reverse("run_instruct", args=[run.pk]), {"text": "mine"}).status_code == 404
    assert client.post(reverse("run_withdraw", args=[run.pk, note.pk])).status_code == 404
    assert [row.text for row in run.guidance_notes.standing()] == ["Use LDS."]


def test_guidance_of_one_run_is_not_withdrawn_through_another(pages: Client, member: User, team: Team) -> None:
    note = do_give_guidance(member, make_run(team), "Use LDS.")
    assert pages.post(reverse("run_withdraw", args=[make_run(team).pk, note.pk])).status_code == 404


def test_an_empty_or_endless_instruction_is_refused_in_words(pages: Client, team: Team) -> None:
    run = make_run(team, strategy="scientist", providers={"default": {"provider": "inbox"}})
    for text, why in (("  ", "Enter guidance"), ("x" * 8001, "at most")):
        assert (
            why in pages.post(reverse("run_instruct", args=[run.pk]), {"text": text}, follow=True).content.decode()
        )
    assert not run.guidance_notes.exists()


def test_two_tabs_that_stop_the_same_run_stop_it_once(pages: Client, team: Team) -> None:
    run = make_run(team)
    first, second = (pages.post(reverse("run_stop", args=[run.pk]), follow=True) for _ in range(2))
    assert first.status_code == second.status_code == 200
    assert "This run is already stopping." in second.content.decode()
    run.refresh_from_db()
    assert run.state == RunState.STOPPING
    assert run.events.filter(type="run.state", payload__state="stopping").count() == 1
