"""Test the form that starts a run: a model for each role, what the run will take, links and templates."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django import forms
from django.test import Client
from django.test.html import parse_html
from django.urls import reverse

from optimizer.actions.problem import do_import_problem
from optimizer.actions.run_template import do_save_template
from optimizer.forms.plain_select import PlainSelect
from optimizer.models import Provider, Run, RunState, RunTemplate, Team, TeamRole, User
from optimizer.search import STRATEGIES
from runners.job import ProblemBundle
from tests.factories import make_kernel, make_provider, make_run, make_team, make_user
from tests.llm_server import LlmServer, Reply
from tests.optimizer.clients import flowing

pytestmark = pytest.mark.django_db
SCRIPT = "<script>alert(1)</script>"
MODULE = """import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)


def get_inputs():
    return [torch.randn(32, 64)]


def get_init_inputs():
    return []
"""


def filled(team: Team, **changes: Any) -> dict[str, Any]:
    """Return a form for the scientist, answered by the inbox."""
    return {
        "problem": "softmax_rows", "target": "cpu", "strategy": "scientist", "team": team.slug, "seed": 1,
        "baseline": "torch_eager", "budget_evaluations": 3, "dispatcher": "celery", "provider": "inbox",
        "settings.concurrency": 1,
    } | changes  # fmt: skip


def text_of(client: Client, address: str, **fields: Any) -> str:
    return client.get(address, fields).content.decode()


def test_roles_may_be_answered_by_different_models(pages: Client, run: Run, team: Team) -> None:
    Provider.objects.create(team=team, name="local", base_url="http://llm.example/v1", default_model="small")
    fields = filled(team) | {"role.writer.provider": "local", "role.writer.model": "big", "effort": "low"}
    pages.post(reverse("start_run"), fields)
    started = Run.objects.latest("pk")
    assert started.providers == {
        "default": {"provider": "inbox", "effort": "low"},
        "writer": {"provider": "local", "model": "big"},
    }
    form = pages.get(reverse("start_run"), {"clone": started.pk}).context["form"]
    assert form["role.writer.model"].value() == "big"
    assert form["effort"].value() == "low"


def test_a_role_with_another_model_and_no_server_of_its_own_is_answered_by_the_general_one(
    pages: Client, run: Run, team: Team
) -> None:
    Provider.objects.create(team=team, name="local", base_url="http://llm.example/v1", default_model="small")
    pages.post(reverse("start_run"), filled(team, provider="local", effort="low") | {"role.writer.model": "big"})
    assert Run.objects.latest("pk").providers["writer"] == {"provider": "local", "model": "big", "effort": "low"}


def test_a_complaint_about_a_role_stands_beside_its_field(pages: Client, run: Run, team: Team) -> None:
    Provider.objects.create(team=team, name="local", base_url="http://llm.example/v1")
    form = pages.post(reverse("start_run"), filled(team) | {"role.writer.provider": "local"}).context["form"]
    assert "default model" in form.errors["role.writer.provider"][0]


def test_a_dispatchers_settings_reach_the_run_and_another_ones_do_not(pages: Client, run: Run, team: Team) -> None:
    asked = {"dispatch.kernelbot.mode": "test"}
    pages.post(reverse("start_run"), filled(team, dispatcher="kernelbot", **asked))
    assert Run.objects.latest("pk").dispatch_settings == {"mode": "test"}
    pages.post(reverse("start_run"), filled(team, dispatcher="celery", **asked))
    assert Run.objects.latest("pk").dispatch_settings == {}
    refused = pages.post(
        reverse("start_run"), filled(team, dispatcher="kernelbot") | {"dispatch.kernelbot.mode": "x"}
    )
    assert refused.context["form"].errors["dispatcher"]


def test_the_estimate_says_that_no_such_run_is_known_and_that_nobody_measures(
    pages: Client, run: Run, team: Team
) -> None:
    said = text_of(pages, reverse("start_run_estimate"), **filled(team))
    assert "No estimate yet: no comparable runs." in said
    assert "The run ends after 3 evaluations" in flowing(said) and "whichever comes first" in said
    assert "Waiting for a runner for cpu." in said


def test_the_estimate_comes_from_runs_that_have_ended(pages: Client, run: Run, team: Team) -> None:
    ended = {"state": RunState.FINISHED, "spent_evaluations": 4, "active_s": 480.0}
    Run.objects.filter(pk=run.pk).update(**ended)
    said = text_of(pages, reverse("start_run_estimate"), **filled(team, strategy="tune", budget_evaluations=8))
    assert "about 16 minutes" in said
    assert "For 8 evaluations, from 1 earlier run" in flowing(said)


def test_the_form_says_where_tuning_would_measure_the_reference_only(pages: Client, run: Run, team: Team) -> None:
    only = "this strategy would only measure the reference"
    bundle = ProblemBundle("my_relu", "kernelbench", "my_relu.py", {"my_relu.py": MODULE})
    version, _ = do_import_problem(bundle, "test", ())
    assert only in flowing(text_of(pages, reverse("start_run"), problem="my_relu", target="cpu"))
    chosen = filled(team, problem="my_relu", strategy="tune")
    assert only in flowing(text_of(pages, reverse("start_run_estimate"), **chosen))
    assert only not in flowing(text_of(pages, reverse("start_run_estimate"), **chosen | {"strategy": "scientist"}))
    assert only not in flowing(text_of(pages, reverse("start_run_estimate"), **filled(team, strategy="tune")))
    earlier = make_run(team, problem_version=version)
    earlier.best_kernel = make_kernel(earlier, "// @tune BLOCK 16 32\nint main;")
    earlier.save(update_fields=["best_kernel"])
    assert only not in flowing(text_of(pages, reverse("start_run_estimate"), **chosen))


def test_a_long_list_of_options_reads_as_djangos_own() -> None:
    choices = [("a", "A & <b>"), ('"c"', "C")]
    attributes = {"id": "id_x", "required": True, "aria-invalid": "true", "data-no": False}
    for value in ("a", '"c"', None):
        plain, own = (
            parse_html(widget(choices=choices).render("x", value, attributes))
            for widget in (PlainSelect, forms.Select)
        )
        assert plain == own


def test_the_link_holds_every_field_and_fills_the_same_form(pages: Client, run: Run, team: Team) -> None:
    fields = filled(team, guidance="Use LDS & tiles.", budget_minutes="", title="é?") | {
        "role.writer.effort": "high"
    }
    address = pages.post(reverse("start_run_link"), fields)["Location"]
    assert "csrf" not in address
    assert parse_qs(urlsplit(address).query)["guidance"] == ["Use LDS & tiles."]
    form = pages.get(address).context["form"]
    assert {name: str(form[name].value()) for name in fields} == {
        name: str(value) for name, value in fields.items()
    }


def test_a_link_leaves_out_guidance_that_no_address_can_hold(pages: Client, run: Run, team: Team) -> None:
    address = pages.post(reverse("start_run_link"), filled(team, guidance="ü" * 8000))["Location"]
    assert "guidance" not in address and len(address) < 4000


def test_a_template_fills_the_form_for_the_whole_team(pages: Client, run: Run, team: Team, client: Client) -> None:
    address = pages.post(reverse("template_save"), filled(team, template_name="Nightly", seed=42))["Location"]
    assert pages.get(address).context["form"]["seed"].value() == "42"
    colleague = Client()
    colleague.force_login(make_user(team, TeamRole.OPERATOR))
    assert "Nightly" in text_of(colleague, reverse("start_run"))
    pages.post(reverse("template_save"), filled(team, template_name="Nightly", seed=43))
    assert RunTemplate.objects.get().values["seed"] == "43"


def test_a_template_without_a_name_is_refused_and_the_form_stays_filled(
    pages: Client, run: Run, team: Team
) -> None:
    answer = pages.post(reverse("template_save"), filled(team, seed=42))
    assert "1 to 80 characters" in answer.content.decode()
    assert answer.context["form"]["seed"].value() == "42"
    assert not RunTemplate.objects.exists()


def test_outsiders_and_viewers_neither_see_nor_delete_a_template(run: Run, team: Team, member: User) -> None:
    kept = do_save_template(member, team, "Nightly", {"seed": "1"})
    for person in (make_user(make_team(), TeamRole.OWNER), make_user(team, TeamRole.VIEWER)):
        stranger = Client()
        stranger.force_login(person)
        assert "Nightly" not in text_of(stranger, reverse("start_run"))
        assert stranger.get(reverse("start_run"), {"template": kept.pk}).status_code == 404
        assert stranger.post(reverse("template_delete", args=[kept.pk])).status_code == 404
        stranger.post(reverse("template_save"), filled(team, template_name="Mine"))
    assert [row.name for row in RunTemplate.objects.all()] == ["Nightly"]


def test_the_test_button_says_how_the_server_answered(
    pages: Client, run: Run, team: Team, server: LlmServer
) -> None:
    server.script(Reply(text='{"sum": 42}'))
    make_provider(server, team, name="local")
    fields = filled(team, provider="local")
    said = pages.post(reverse("start_run_check"), fields).content.decode()
    assert "Answers in" in said and "structured output works" in said
    asked_for_a_role = {"check_role": "writer", "role.writer.provider": "inbox"}
    assert "inbox" in pages.post(reverse("start_run_check"), fields | asked_for_a_role).content.decode()


def test_nobody_tests_another_teams_server(client: Client, run: Run, team: Team, server: LlmServer) -> None:
    Provider.objects.create(team=team, name="local", base_url=server.url, allow_private=True)
    client.force_login(make_user(make_team(), TeamRole.OWNER))
    said = client.post(reverse("start_run_check"), filled(team, provider="local")).content.decode()
    assert "no provider called local" in said
    assert server.asked == []


def test_script_in_any_field_stays_text(pages: Client, run: Run, team: Team) -> None:
    hostile = dict.fromkeys(("title", "guidance", "model", "provider", "template_name", "role.x.model"), SCRIPT)
    for address in ("start_run", "template_save", "start_run_check"):
        assert SCRIPT not in pages.post(reverse(address), filled(team) | hostile).content.decode()
    assert SCRIPT not in text_of(pages, reverse("start_run"), **hostile)


def test_a_preset_fills_the_form_and_keeps_what_was_chosen(pages: Client, run: Run, team: Team) -> None:
    chosen = filled(team, strategy="scientist", title="Mine", preset="try")
    answer = pages.post(reverse("start_run_link"), chosen)
    form = pages.get(answer.headers["Location"]).context["form"]
    assert (form.strategy_name, form["budget_evaluations"].value(), form["title"].value()) == ("tune", "9", "Mine")
    assert "preset" not in answer.headers["Location"]


def test_a_preset_sets_no_limit_in_dollars_where_no_price_is_known(pages: Client, run: Run, team: Team) -> None:
    answer = pages.post(reverse("start_run_link"), filled(team, preset="cheap"))
    assert "strategy=scientist" in answer.headers["Location"]
    assert "budget_usd=2" not in answer.headers["Location"]
    assert "No dollar limit was set" in text_of(pages, answer.headers["Location"])


def test_another_strategy_brings_its_own_limits_and_keeps_chosen_ones(
    pages: Client, run: Run, team: Team, server: LlmServer
) -> None:
    make_provider(server, team, name="paid", default_model="tiny", prices={"tiny": {"input": 1, "output": 2}})
    tuned = STRATEGIES["tune"].default_evaluations
    sent = filled(team, strategy="scientist") | {"budget_evaluations": str(tuned), "budget_usd": ""}
    part = flowing(text_of(pages, reverse("start_run_settings"), **sent))
    assert 'id="budget-fields" hx-swap-oob="true"' in part
    assert f'name="budget_evaluations" value="{STRATEGIES["scientist"].default_evaluations}"' in part
    assert 'name="budget_usd" value="5"' in part and "data-needs-model" in part
    part = flowing(text_of(pages, reverse("start_run_settings"), **sent | {"budget_evaluations": "7"}))
    assert 'name="budget_evaluations" value="7"' in part
    assert "data-needs-model" not in text_of(pages, reverse("start_run_settings"), **sent | {"strategy": "tune"})


def test_a_priced_server_comes_with_a_limit_in_dollars(
    pages: Client, run: Run, team: Team, server: LlmServer
) -> None:
    prices = {"tiny": {"input": 1, "output": 2}}
    make_provider(server, team, name="paid", default_model="tiny", prices=prices)
    form = pages.get(f"{reverse('start_run')}?strategy=scientist").context["form"]
    assert form["budget_usd"].value() == 5 and "tiny" in form.known_models()
    assert pages.get(f"{reverse('start_run')}?strategy=tune").context["form"]["budget_usd"].value() is None
