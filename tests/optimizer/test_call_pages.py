"""Every call of a run can be read, also one that brought no kernel."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client

from optimizer.models import CallState, Hypothesis, LlmCall, Run, TeamRole
from tests.factories import make_run, make_team, make_user
from tests.optimizer.clients import flowing

pytestmark = pytest.mark.django_db
SCRIPT = "<script>alert(1)</script>"


def make_call(run: Run, key: str = "r1.design", **changes: Any) -> LlmCall:
    fields: dict[str, Any] = {
        "role": "designer",
        "provider": "vllm",
        "model": "big",
        "prompt_version": "designer@0123456789ab",
        "messages": [{"role": "system", "content": "You design."}, {"role": "user", "content": f"Base {SCRIPT}"}],
        "state": CallState.ANSWERED,
        "answer_text": f"Ten avenues {SCRIPT}\x1b[31m\u202e",
        "answer": {"avenues": []},
        "prompt_tokens": 1200,
        "answer_tokens": 345,
        "cost_usd": Decimal("0.0123"),
        "transport": {"duration_s": 7.5, "first_token_s": 0.4, "finish": "stop"},
        "context_report": {
            "budget_tokens": 12000,
            "taken": [{"ref": "finding-1", "scope": "target", "title": "CDNA 3", "tokens": 400}],
            "left_out": [{"ref": "finding-2", "scope": "run", "title": "Old notes", "tokens": 20000}],
        },
    }
    return LlmCall.objects.create(run=run, key=key, **(fields | changes))


def page(client: Client, call: LlmCall) -> str:
    answer = client.get(f"/runs/{call.run_id}/calls/{call.pk}/")
    assert answer.status_code == 200
    return answer.content.decode()


def test_a_designers_call_is_shown_whole_with_what_its_budget_let_in(pages: Client, run: Run) -> None:
    said = page(pages, make_call(run))
    for words in ("You design.", "Ten avenues", "designer@0123456789ab", "1200", "345", "$0.0123", "7.50 s"):
        assert words in said
    assert "1 taken, 1 left out by the budget of 12000 tokens" in flowing(said) and "Old notes" in said


def test_hostile_prompts_and_answers_stay_text(pages: Client, run: Run) -> None:
    said = page(pages, make_call(run, error=SCRIPT, transport={"tries": [{"error": SCRIPT, "waited_s": 1.0}]}))
    assert SCRIPT not in said and "&lt;script&gt;" in said
    assert "\x1b" not in said and "\u202e" not in said


def test_a_call_leads_to_what_came_of_it(pages: Client, run: Run) -> None:
    call = make_call(run)
    Hypothesis.objects.create(run=run, key="r1.e1", kind="experiment", title="Wider tiles", chosen=True, call=call)
    assert "Wider tiles" in page(pages, call)
    assert "No kernel, hypothesis or finding came from this call." in page(pages, make_call(run, "r1.select"))


def test_a_call_lost_in_the_middle_says_that_its_cost_is_uncertain(pages: Client, run: Run) -> None:
    lost = make_call(run, state=CallState.UNCERTAIN, answer=None, answer_text="", cost_usd=None, prompt_tokens=None)
    again = make_call(run, attempt=2)
    said = page(pages, lost)
    assert "Tokens may have been charged" in said and f"/calls/{again.pk}/" in said


def test_an_unknown_price_is_shown_as_unknown_and_a_recorded_answer_as_free(pages: Client, run: Run) -> None:
    assert "unknown" in page(pages, make_call(run, cost_usd=None))
    assert "recorded" in page(pages, make_call(run, "r2", cost_usd=0, transport={"recorded": True}))


def test_totals_of_recorded_answers_say_so_instead_of_a_price_of_zero(pages: Client, run: Run) -> None:
    make_call(run, cost_usd=0, transport={"recorded": True})
    make_call(run, "r2.design")
    said = flowing(pages.get(f"/runs/{run.pk}/calls/").content.decode())
    second, first = re.findall(r'<tr class="group">(.*?)</tr>', said)
    assert " recorded </td>" in first and "$" not in first and "$0.0123" in second
    assert "1 recorded answer, free" in said


def test_the_list_holds_every_call_and_adds_them_up(pages: Client, run: Run) -> None:
    make_call(run)
    make_call(run, "r1.select", role="selector", cost_usd=None)
    everything = pages.get(f"/runs/{run.pk}/calls/").content.decode()
    assert "r1.design" in everything and "r1.select" in everything and "3,090" in everything
    assert "without 1 call of unknown price" in everything
    narrowed = pages.get(f"/runs/{run.pk}/calls/?role=selector").content.decode()
    assert "r1.select" in narrowed and "r1.design</a>" not in narrowed


def test_rounds_fold_with_their_totals_and_the_latest_is_open(pages: Client, run: Run) -> None:
    make_call(run)
    make_call(run, "r2.design", state=CallState.FAILED, cost_usd=None)
    make_call(run, "r2.design", attempt=2, state=CallState.FAILED, cost_usd=None)
    said = flowing(pages.get(f"/runs/{run.pk}/calls/").content.decode())
    folds = re.findall(r'data-fold="\d+/(Round \d)" (checked)?', said)
    assert folds == [("Round 2", "checked"), ("Round 1", "")]
    heads = re.findall(r'<tr class="group">(.*?)</tr>', said)
    assert "1 retry" in heads[0] and "1 failed" in heads[0] and ">2,400<" in heads[0]
    assert "retry" not in heads[1] and "$0.0123" in heads[1]


def test_an_open_list_of_calls_is_loaded_again_and_that_of_an_ended_run_is_not(pages: Client, run: Run) -> None:
    make_call(run)
    assert 'hx-select="#call-list"' in pages.get(f"/runs/{run.pk}/calls/").content.decode()
    Run.objects.filter(pk=run.pk).update(state="finished")
    assert 'hx-select="#call-list"' not in pages.get(f"/runs/{run.pk}/calls/").content.decode()


def test_a_thousand_calls_cost_no_more_queries_than_one(
    pages: Client, run: Run, django_assert_max_num_queries: Any
) -> None:
    LlmCall.objects.bulk_create(
        LlmCall(run=run, key=f"c{n}", role="writer", provider="p", messages=[{"content": "x" * 1000}])
        for n in range(1000)
    )
    with django_assert_max_num_queries(15):
        said = pages.get(f"/runs/{run.pk}/calls/").content.decode()
    assert "1–100 of 1000 calls" in flowing(said)


def test_prompt_and_answer_can_be_taken_away_uncut(pages: Client, run: Run) -> None:
    call = make_call(run, answer_text="x" * 1_000_000)
    answer = pages.get(f"/runs/{run.pk}/calls/{call.pk}/text/")
    assert answer["Content-Disposition"].startswith("attachment") and b"x" * 1_000_000 in answer.content
    assert len(page(pages, call)) < 500_000


def test_an_outsider_and_another_runs_number_find_no_call(client: Client, pages: Client, run: Run) -> None:
    call, other = make_call(run), make_run(run.team)
    assert pages.get(f"/runs/{other.pk}/calls/{call.pk}/").status_code == 404
    client.force_login(make_user(make_team(), TeamRole.OWNER))
    for path in ("", f"{call.pk}/", f"{call.pk}/text/"):
        assert client.get(f"/runs/{run.pk}/calls/{path}").status_code == 404


def test_the_run_page_leads_there(pages: Client, run: Run) -> None:
    Run.objects.filter(pk=run.pk).update(strategy="scientist")
    assert f'href="/runs/{run.pk}/calls/"' in pages.get(f"/runs/{run.pk}/").content.decode()


def test_a_prompt_shows_what_changed_since_the_previous_one_of_the_role_and_folds_the_rest(
    pages: Client, run: Run
) -> None:
    def asked(population: str) -> list[dict[str, str]]:
        return [
            {"role": "system", "content": "You design."},
            {"role": "user", "content": f"## Task\n\nSoftmax.\n\n{population}"},
        ]

    first = make_call(run, messages=asked("## Population\n\n| #0 |\n| #1 |\n"))
    assert "compared with the previous prompt" not in page(pages, first)
    second = make_call(run, "r2.design", messages=asked(f"## Population\n\n| #1 |\n| #2 {SCRIPT} |\n"))
    said = flowing(page(pages, second))
    assert said.count('<details class="prompt-section" open>') == 1
    assert "− | #0 |</del>" in said and ">+ | #2 &lt;script&gt;" in said and "+1 −1 lines" in said
    assert said.count("unchanged</span>") == 2
