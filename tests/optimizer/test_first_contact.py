"""Test the first page, the pages of kernels and runners, and the dialogs that confirm deletions."""

from __future__ import annotations

from django.test import Client
from django.urls import reverse
from django.utils import timezone

from optimizer.actions.audit import log_action
from optimizer.models import (
    AuditAction,
    Evaluation,
    EvaluationState,
    Job,
    Kernel,
    Problem,
    Provider,
    Review,
    Run,
    Runner,
    Target,
    Team,
    User,
)
from optimizer.queue import add_log
from optimizer.templatetags.kernelsci import as_rows, first_clause
from tests.factories import make_run, make_team, make_user
from tests.optimizer.clients import flowing, signed_in


def page_of(pages: Client, name: str, *arguments: object) -> str:
    return flowing(pages.get(reverse(name, args=arguments)).content.decode())


# the first page


def test_the_first_page_has_one_sentence_three_doors_and_a_checklist_that_disappears(
    pages: Client, member: User, team: Team
) -> None:
    page = page_of(pages, "home")
    assert page.count('class="card door"') == 3 and "0 of 4 done" in page
    Run.objects.filter(pk=make_run(team, member).pk).update(is_demo=True)
    assert "0 of 4 done" in page_of(pages, "home")  # the demo is no run of one's own
    Provider.objects.create(team=team, name="vllm", base_url="https://192.0.2.1/v1")
    run = make_run(team, member)
    Problem.objects.create(slug="mine", title="Mine", origin=f"uploaded by {member.username}")
    page = page_of(pages, "home")
    assert "3 of 4 done" in page
    Review.objects.create(run=run, author=member, published_at=timezone.now())
    assert pages.get("/")["Location"] == reverse("runs")
    assert "4 of 4 done" in pages.get("/?show=1").content.decode()


def test_the_first_page_can_be_hidden_and_leads_to_the_demo_that_one_may_see(pages: Client, team: Team) -> None:
    run = make_run(team, is_demo=True)
    make_run(make_team(), is_demo=True)
    assert f'href="{reverse("run_page", args=[run.pk])}"' in page_of(pages, "home")
    pages.post(reverse("home_dismiss"))
    assert pages.get("/").status_code == 302


# kernels


def test_cases_stand_before_the_source_and_both_verdicts_side_by_side(pages: Client, finished: Run) -> None:
    kernel = finished.kernels.exclude(child_links=None).first()
    assert kernel is not None
    page = page_of(pages, "kernel_page", finished.pk, kernel.number)
    assert page.index('id="cases-title"') < page.index('id="source-title"')
    tiles = page[page.index('<dl class="tiles">') :].split("<dt>")
    assert tiles[1].startswith("Against torch eager") and tiles[2].startswith("Against its parent")


def test_a_kernel_leads_to_its_neighbours_and_the_last_has_no_next(pages: Client, finished: Run) -> None:
    last = finished.kernels.order_by("-number")[0].number
    before = page_of(pages, "kernel_page", finished.pk, last - 1)
    assert f'rel="next" href="{reverse("kernel_page", args=[finished.pk, last])}"' in before
    assert 'rel="next"' not in page_of(pages, "kernel_page", finished.pk, last)


def test_an_open_evaluation_is_followed_and_the_page_loads_again_at_its_end(pages: Client, finished: Run) -> None:
    kernel = finished.kernels.get(number=1)
    state = reverse("kernel_state", args=[finished.pk, 1])
    assert state not in page_of(pages, "kernel_page", finished.pk, 1)
    Evaluation.objects.filter(kernel=kernel).update(state=EvaluationState.RUNNING, stage="build")
    assert state in page_of(pages, "kernel_page", finished.pk, 1)
    answer = pages.get(state)
    assert "Build" in answer.content.decode() and "HX-Refresh" not in answer
    Evaluation.objects.filter(kernel=kernel).update(state=EvaluationState.DONE)
    assert pages.get(state)["HX-Refresh"] == "true"


def test_the_heading_has_the_first_clause_of_an_idea_and_the_rest_stands_below(
    pages: Client, finished: Run
) -> None:
    idea = "Fuse the two passes into one; keep the running maximum in registers, and spill nothing."
    Kernel.objects.filter(run=finished, number=1).update(title=idea)
    page = page_of(pages, "kernel_page", finished.pk, 1)
    assert ": Fuse the two passes into one</h1>" in page and idea in page
    assert first_clause("v1.5 of a title") == "v1.5 of a title" and len(first_clause("word " * 40)) <= 80


def test_what_a_compiler_said_keeps_its_lines_and_the_environment_is_no_json(pages: Client, finished: Run) -> None:
    evaluation = finished.kernels.get(number=1).evaluation
    result = evaluation.result | {"reasons": ["a.cpp:1: error\n    ^~~"], "environment": {"cpu": {"cores": 2}}}
    Evaluation.objects.filter(pk=evaluation.pk).update(result=result)
    page = pages.get(reverse("kernel_page", args=[finished.pk, 1])).content.decode()
    assert '<p class="preserved">a.cpp:1: error\n    ^~~</p>' in page
    assert "<dt>cpu.cores</dt><dd>2</dd>" in page
    assert as_rows({"a": [1, 2], "b": [{"c": None}], "d": True}) == [("a", "1, 2"), ("b.1.c", "–"), ("d", "yes")]


# runners


def make_runner(name: str = "epyc-0") -> Runner:
    target = Target.objects.get(key="cpu")
    return Runner.objects.create(name=name, target=target, heartbeat_at=timezone.now(), queues=["bench.cpu"])


def test_a_runners_page_has_its_history_and_log_and_names_nothing_of_others(
    pages: Client, finished: Run, member: User
) -> None:
    runner = make_runner()
    job = Job.objects.filter(evaluation__kernel__run=finished).order_by("-pk")[0]
    Job.objects.filter(pk=job.pk).update(worker=runner.name, state="running", fence=5)
    add_log(job.pk, 5, 1, "compiling <b>now</b>\n")
    add_log(job.pk, 5, 2, "513x17")
    add_log(job.pk, 5, 3, "31x2049")
    answer = pages.get(reverse("runner_page", args=[runner.pk])).content.decode()
    assert str(finished) in answer and "compiling &lt;b&gt;now&lt;/b&gt;\n513x17\n31x2049" in answer
    page = page_of(signed_in(make_user(make_team())), "runner_page", runner.pk)
    assert str(finished) not in page and "compiling" not in page and "private" in page


def test_a_runners_page_names_its_machine_in_words_and_what_a_probe_found_there(
    pages: Client, finished: Run
) -> None:
    runner = make_runner()
    page = page_of(pages, "runner_page", runner.pk)
    assert "Not measured." in page
    Runner.objects.filter(pk=runner.pk).update(facts={"visible_devices": "", "software": {"torch": "2.13"}})
    job = Job.objects.filter(evaluation__kernel__run=finished).order_by("pk")[0]
    Job.objects.filter(pk=job.pk).update(worker=runner.name)
    levels = [{"name": "L1", "bytes": 49152, "bandwidth": 7e11}, {"name": "DRAM", "bytes": None, "bandwidth": 2e10}]
    assert job.evaluation is not None
    job.evaluation.result["environment"] = {"ceilings": {"measured_at": "2026-11-23", "levels": levels}}
    job.evaluation.save()
    page = page_of(pages, "runner_page", runner.pk)
    assert "L1 read bandwidth" in page and "700 GB/s" in page and "DRAM read bandwidth" in page
    assert "<dt>Torch</dt><dd>2.13</dd>" in page and "visible_devices" not in page and "Visible" not in page


def test_adding_a_runner_shows_the_command_of_the_chosen_target(pages: Client, run: Run) -> None:
    assert "--queue bench.cpu --token-file token" in page_of(pages, "runner_add")
    page = flowing(pages.get(reverse("runner_add"), {"target": "gfx942"}).content.decode())
    assert "HIP_VISIBLE_DEVICES=0 python -m runners work-site http://testserver --queue bench.gfx942" in page


# before something is gone, and what was done


def test_deleting_a_server_and_its_key_is_asked_about_first(client: Client, owner: User, team: Team) -> None:
    client.force_login(owner)
    row = Provider.objects.create(team=team, name="vllm", base_url="https://192.0.2.1/v1")
    page = page_of(client, "provider_edit", row.pk)
    asked = page[page.index('<details class="menu confirm">') :]
    assert "Delete this server and its key?" in asked
    assert asked.index("This cannot be undone.") < asked.index('class="button danger"')


def test_the_audit_log_shows_details_as_words(client: Client, owner: User, team: Team) -> None:
    log_action(AuditAction.TEAM_CHANGED, owner, team, team.name, approvals_needed=2, by=["ada", "grace"])
    client.force_login(owner)
    page = page_of(client, "audit_log", team.slug)
    assert "ada, grace" in page and "{&quot;" not in page and "{'" not in page
