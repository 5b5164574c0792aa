"""Positive controls of the access matrix: what its world refuses to everybody succeeds where there is what it needs.

A row whose best answer is a refusal shows only who is refused. Here each of them is made possible, and the person of
least standing who may do it succeeds where the next lower one does not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from django.db.models import Model
from django.test import Client

from optimizer.actions import release as releases
from optimizer.actions.campaign import do_pause_campaign
from optimizer.actions.run import do_pause_run
from optimizer.actions.submission import Submission, do_submit
from optimizer.actions.team import do_invite
from optimizer.models import (
    ApiToken,
    Campaign,
    Finding,
    ProblemUpload,
    Provider,
    Release,
    ReleaseState,
    Run,
    RunTemplate,
    Suite,
    Team,
    TeamRole,
    TokenScope,
    User,
    Webhook,
)
from optimizer.queries.budgets import Budget
from runners.job import Language, Source
from runners.verbs.workbook import Reported
from tests.factories import drive, make_run
from tests.site.access_rows import (
    API,
    CAMPAIGN,
    HOOK,
    OF_ANOTHER_KERNEL,
    PAGES,
    RANKS,
    RUN,
    SERVER,
    SERVICE,
    TEAM,
    Row,
)
from tests.site.access_world import World
from tests.site.test_access_matrix import PEOPLE, address_of, ask, browsers

pytestmark = pytest.mark.django_db
Prepared = tuple[str, dict[str, Any]]


def of(world: World) -> Run:
    return Run.objects.get(pk=world.places["run_id"])


def starter(world: World) -> User:
    user = of(world).created_by
    assert user is not None
    return user


def resumed_run(world: World) -> Prepared:
    do_pause_run(None, Run.objects.get(pk=world.running.pk))
    return f"api/v1/runs/{world.running.pk}/resume", {}


def resumed_campaign(world: World) -> Prepared:
    campaign = Campaign.objects.get(pk=world.places["campaign_id"])
    do_pause_campaign(None, campaign)
    return f"api/v1/campaigns/{campaign.pk}/resume", {}


def asked_release(world: World) -> Prepared:
    Release.objects.all().delete()
    return "api/v1/releases", {"run": world.places["run_id"], "kernel": world.places["number"]}


def released(world: World) -> Prepared:
    return f"api/v1/releases/{world.places['release_id']}/release", {}


def answered(world: World) -> Prepared:
    return f"api/v1/inbox/{world.places['call_id']}/answer", {"text": "Use tiles."}


def external(world: World) -> Run:
    made = make_run(of(world).team, starter(world), strategy="external", budget=Budget(evaluations=6))
    return drive(made, rounds=2)


def submitted(world: World) -> Prepared:
    return f"api/v1/runs/{external(world).pk}/submissions", {"source": "// new\n", "language": "cpp"}


def measured(world: World) -> Prepared:
    run = external(world)
    claim = Submission(Source(Language.CPP, "// new\n"), reported=Reported(50.0, device="my desk"), measure=False)
    number = do_submit(None, run, claim)[0].number
    return f"api/v1/runs/{run.pk}/kernels/{number}/measure", {}


def finished(world: World) -> Prepared:
    return f"api/v1/runs/{world.running.pk}/finish", {"reason": "done"}


def reported_endtoend(world: World) -> Prepared:
    kernel = of(world).kernels.get(number=world.places["number"])
    report = OF_ANOTHER_KERNEL | {"kernels": {"a": kernel.as_source().content_hash}}
    return f"api/v1/runs/{kernel.run_id}/kernels/{kernel.number}/endtoend", report


def suggested(world: World) -> Prepared:
    run = of(world)
    text = run.kernels.get(number=world.places["number"]).source + "\n// faster\n"
    return f"runs/{run.pk}/kernels/{world.places['number']}/suggest/", {"text": text, "seen": 10_000}


def answered_on_the_page(world: World) -> Prepared:
    return f"inbox/{world.places['call_id']}/", {"answer": "Use tiles."}


CONTROLS: dict[str, tuple[str, Callable[[World], Prepared]]] = {
    "api/v1/runs/<int:run_id>/resume": ("operator", resumed_run),
    "api/v1/campaigns/<int:campaign_id>/resume": ("operator", resumed_campaign),
    "api/v1/releases": ("reviewer", asked_release),
    "api/v1/releases/<int:release_id>/release": ("operator", released),
    "api/v1/inbox/<int:call_id>/answer": ("operator", answered),
    "api/v1/runs/<int:run_id>/submissions": ("operator", submitted),
    "api/v1/runs/<int:run_id>/kernels/<int:number>/measure": ("operator", measured),
    "api/v1/runs/<int:run_id>/finish": ("operator", finished),
    "api/v1/runs/<int:run_id>/kernels/<int:number>/endtoend": ("reviewer", reported_endtoend),
    "runs/<int:run_id>/kernels/<int:number>/suggest/": ("reviewer", suggested),
    "inbox/<int:call_id>/": ("operator", answered_on_the_page),
}
OF_NO_TEAM = {"api/v1/problem-uploads"}  # below: whoever is signed in may
OF_WORKERS = {"work/<slug:verb>/"}  # test_worker_tokens.py
LINKS = {"join/<str:token>/", "welcome/<str:token>/"}  # below, and in test_welcome.py


def test_every_row_has_a_positive_control_in_the_matrix_or_here() -> None:
    refused = {row.route for row in [*PAGES, *API] if row.ok >= 400}
    assert refused == {*CONTROLS, *OF_NO_TEAM, *OF_WORKERS, *LINKS}


@pytest.mark.parametrize("route", CONTROLS)
def test_who_may_succeeds_and_who_may_not_does_not(
    route: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs, prepare = CONTROLS[route]
    # Reviews and second measurements are shown in tests/optimizer/test_releases.py.
    monkeypatch.setattr(releases, "conditions_of", lambda _: [])
    address, data = prepare(world)
    lower = RANKS[RANKS.index(needs) - 1]
    for person in ("anonymous", "outsider", lower):
        assert sent(world, address, data, person) not in range(200, 300), person
    assert sent(world, address, data, needs) in (200, 201, 204)


def sent(world: World, address: str, data: dict[str, Any], person: str) -> int:
    """Send it, and return the status; that of the page to which a form leads."""
    client, user = Client(raise_request_exception=False), world.people[person]
    if address.startswith("api/"):
        headers = {"Authorization": f"Bearer {world.tokens[person]}"} if user else {}
        return client.post(f"/{address}", data, content_type="application/json", headers=headers).status_code
    if user is None:
        return client.post(f"/{address}", data).status_code
    client.force_login(user)
    answer = client.post(f"/{address}", data)
    return client.get(answer.headers["Location"]).status_code if answer.status_code == 302 else answer.status_code


# What one person owns in the matrix's world, and what nobody there has, with the tests of who does.
SHOWN_ELSEWHERE = {
    **dict.fromkeys(
        ("profile/second-factor/off/", "profile/second-factor/codes/", "profile/second-factor/codes/file/"),
        "tests/optimizer/test_accounts.py",
    ),
    "runs/<int:run_id>/kernels/<int:number>/roofline/": "tests/optimizer/test_kernel_parts.py",
    "problems/new/<int:upload_id>/": "tests/optimizer/test_problem_uploads.py",
    "api/v1/problem-uploads/<int:upload_id>/add": "tests/optimizer/test_problem_uploads.py",
}
OWN = [row for row in [*PAGES, *API] if row.needs == "nobody" and row.route not in SHOWN_ELSEWHERE]


def test_what_one_person_owns_answers_to_that_person(world: World) -> None:
    owner = starter(world)
    token = ApiToken.make(owner, "mine", list(TokenScope))[1]
    own = replace(world, people=world.people | {"owner": owner}, tokens=world.tokens | {"owner": token})
    clients = browsers(own)
    for row in OWN:
        if row.route == "account/tokens/<int:token_id>/revoke/":
            assert ApiToken.objects.get(pk=world.places["token_id"]).user == owner
        # A comment that was published stays: its author is told so, where others find nothing.
        stays = row.method == "DELETE" and "comments" in row.route
        assert ask(own, row, "owner", clients) in ((422,) if stays else (200, 204, 302)), row
        assert ask(world, row, "superuser", browsers(world)) == 404, row


@dataclass(frozen=True)
class Form:
    """Hold a form as it is accepted: the least who may send it, what is sent, and what it changes.

    `changed` returns something that is different afterwards, and the same after a refusal.
    """

    person: str
    data: dict[str, Any]
    changed: Callable[[World], object]


def count_of(model: type[Model]) -> Callable[[World], object]:
    return lambda _: model.objects.count()  # type: ignore[attr-defined]


def name_of_provider(world: World) -> object:
    return Provider.objects.get(pk=world.places["provider_id"]).name


def evaluations_of_campaign(world: World) -> Any:
    campaign = Campaign.objects.get(pk=world.places["campaign_id"])
    return [one.budget["evaluations"] for one in campaign.configurations.all()]


def evaluations_of(world: World) -> object:
    return Run.objects.get(pk=world.running.pk).budget_evaluations


PROVIDER = {
    "name": "n", "base_url": SERVER, "team": "{slug}", "api": "chat", "key": "k", "concurrency": "2",
    "timeout_s": "60", "silence_s": "60", "prices-TOTAL_FORMS": "0", "prices-INITIAL_FORMS": "0", "is_enabled": "on",
}  # fmt: skip
RUN_FORM = {
    "problem": "softmax_rows", "target": "cpu", "strategy": "tune", "team": "{slug}", "seed": "0",
    "baseline": "torch_eager", "budget_evaluations": "3", "dispatcher": "celery", "settings.concurrency": "1",
    "settings.settle": "3", "settings.sampler": "gp", "settings.profile": "never",
}  # fmt: skip
CAMPAIGN_FORM = {
    "team": "{slug}", "suite": "{suite_id}", "draw_seed": "0", "target": "cpu", "dispatcher": "celery",
    "objective": "device", "baselines": ["torch_eager"], "seeds": "0", "parallel_runs": "2", "order_seed": "0",
    "c-0-name": "a", "c-0-strategy": "tune", "c-0-evaluations": "2", "c-0-settings": "sampler=random",
    "c-TOTAL_FORMS": "1", "c-INITIAL_FORMS": "0",
}  # fmt: skip
# Forms that the matrix sends half empty, since it undoes nothing outside the database: as they are accepted.
FORMS = {
    "account/tokens/": Form("outsider", {"name": "ci", "scopes": "read"}, count_of(ApiToken)),
    "teams/": Form("outsider", {"name": "Mine"}, count_of(Team)),
    "problems/new/": Form("outsider", {"name": "relu", "source": "class Model: ...\n"}, count_of(ProblemUpload)),
    "knowledge/new/": Form("reviewer", {"title": "t", "text": "x", "team": "{slug}"}, count_of(Finding)),
    "knowledge/<int:finding_id>/edit/": Form("reviewer", {"title": "t", "text": "other"}, count_of(Finding)),
    "runs/new/": Form("operator", RUN_FORM, count_of(Run)),
    "runs/new/templates/": Form("operator", RUN_FORM | {"template_name": "Nightly"}, count_of(RunTemplate)),
    "campaigns/new/": Form("operator", CAMPAIGN_FORM, count_of(Campaign)),
    f"{CAMPAIGN}continue/": Form("operator", {"evaluations": "9"}, evaluations_of_campaign),
    f"{RUN}budget/": Form("operator", {"budget_evaluations": "77"}, evaluations_of),
    "providers/new/": Form("owner", PROVIDER, count_of(Provider)),
    "providers/<int:provider_id>/": Form("owner", PROVIDER, name_of_provider),
    "account/webhooks/": Form(
        "owner", {"team": "{slug}", "url": HOOK["url"], "events": HOOK["events"]}, count_of(Webhook)
    ),
    f"{SERVICE}tokens/": Form("owner", {"name": "ci", "scopes": "read"}, count_of(ApiToken)),
}
# Pages that answer a POST with 200 and are no half-empty form, with the reason or the test of what is accepted.
NO_FORMS = {
    "sign-in/": "tests/optimizer/test_accounts.py",
    "profile/password/": "tests/optimizer/test_accounts.py",
    "runs/new/check/": "stores nothing",
    f"{RUN}threads/preview/": "stores nothing",
    f"{TEAM}invitations/": "is accepted in the matrix: the page shows the link",
}


def test_every_form_that_the_matrix_sends_half_empty_is_filled_in_here() -> None:
    assert {row.route for row in PAGES if row.method == "POST" and row.ok == 200} == {*FORMS, *NO_FORMS}


@pytest.mark.parametrize("route", FORMS)
def test_form_that_is_filled_in_is_stored_for_those_whom_the_matrix_names(world: World, route: str) -> None:
    form = FORMS[route]
    address = address_of(world, Row(route, form.person, method="POST"))[1:]
    places = world.places | {"suite_id": Suite.objects.values_list("pk", flat=True).first()}
    filled = {
        name: value.format(**places) if isinstance(value, str) else value for name, value in form.data.items()
    }
    before = form.changed(world)
    for person in ("anonymous", lower_than(form.person)):
        sent(world, address, filled, person)
        assert form.changed(world) == before, person
    assert sent(world, address, filled, form.person) == 200
    assert form.changed(world) != before


def lower_than(person: str) -> str:
    """Return the person of the next lower standing."""
    return PEOPLE[PEOPLE.index(person) - 1]


def test_whoever_is_signed_in_uploads_a_problem_that_nobody_else_finds(world: World) -> None:
    address = "api/v1/problem-uploads"
    data = {"name": "relu", "source": "class Model: ...\n"}
    assert sent(world, address, data, "anonymous") == 401
    assert sent(world, address, data, "outsider") == 202
    upload = ProblemUpload.objects.get(created_by=world.people["outsider"])
    for person, status in {"outsider": 200, "owner": 404}.items():
        headers = {"Authorization": f"Bearer {world.tokens[person]}"}
        assert Client().get(f"/{address}/{upload.pk}", headers=headers).status_code == status, person


def test_an_invitation_works_for_its_guest_and_once(world: World) -> None:
    token = do_invite(starter(world), of(world).team, TeamRole.VIEWER, "", 7)[1]
    anonymous, guest = Client(), Client()
    assert anonymous.get(f"/join/{token}/").status_code == 200
    outsider = world.people["outsider"]
    assert outsider is not None
    guest.force_login(outsider)
    assert guest.get(f"/join/{token}/").status_code == 200
    assert guest.post(f"/join/{token}/").status_code == 302
    assert outsider.role_in(of(world).team) == TeamRole.VIEWER
    assert anonymous.get(f"/join/{token}/").status_code == 404


def test_releases_list_what_is_released_to_members_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releases, "conditions_of", lambda _: [])
    releases.do_release(starter(world), Release.objects.get(pk=world.places["release_id"]))
    assert Release.objects.get().state == ReleaseState.RELEASED
    for person, count in {"viewer": 1, "outsider": 0}.items():
        headers = {"Authorization": f"Bearer {world.tokens[person]}"}
        assert len(Client().get("/api/v1/releases", headers=headers).json()["items"]) == count, person
