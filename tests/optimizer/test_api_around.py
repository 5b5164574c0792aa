"""Test the API around the runs: notifications, who follows and sees, comparison, estimate, templates, teams,
parameters."""

from __future__ import annotations

import pytest
from django.test import Client

from optimizer.actions.team import do_make_service_account
from optimizer.events.notify import NewNotification, do_notify
from optimizer.models import (
    AuditEntry,
    Follow,
    Membership,
    Notification,
    NotificationKind,
    Run,
    RunTemplate,
    Team,
    TeamRole,
    TokenScope,
    User,
)
from tests.driven_runs import make_finished_run
from tests.factories import make_run, make_team, make_user
from tests.optimizer.clients import Call, caller_of

pytestmark = pytest.mark.django_db
START = {"problem": "softmax_rows", "budget": {"evaluations": 8}}


@pytest.fixture
def foreign(db: None) -> Run:
    """Return a run of another team."""
    return make_run(make_team())


def tell(user: User, run: Run, key: str) -> int:
    do_notify([user], NewNotification(NotificationKind.ENDED, key, f"Run {run.pk} has ended", "/runs/", run))
    return Notification.objects.get(user=user, key=key).pk


# notifications


def test_notifications_come_in_pages_and_only_the_unread_if_asked(api: Call, member: User, run: Run) -> None:
    first, second = tell(member, run, "a"), tell(member, run, "b")
    page = api("GET", "/notifications?limit=1").json()
    assert [row["id"] for row in page["items"]] == [second] and page["items"][0]["run"] == run.pk
    assert [row["id"] for row in api("GET", f"/notifications?cursor={page['next']}").json()["items"]] == [first]
    assert api("POST", "/notifications/read", {"ids": [second]}).json() == {"read": 1}
    assert [row["id"] for row in api("GET", "/notifications?unread=true").json()["items"]] == [first]
    assert api("POST", "/notifications/read", {}).json() == {"read": 1}


def test_other_peoples_notifications_are_neither_told_nor_marked(api: Call, owner: User, run: Run) -> None:
    theirs = tell(owner, run, "a")
    assert api("GET", "/notifications").json()["items"] == []
    assert api("POST", "/notifications/read", {"ids": [theirs]}).json() == {"read": 0}


# who follows and sees a run


def test_a_run_is_followed_and_no_more(api: Call, member: User, run: Run) -> None:
    Follow.objects.filter(user=member, run=run).delete()
    assert api("PUT", f"/runs/{run.pk}/follow", {"follow": True}).json() == {"follow": True}
    assert Follow.objects.filter(user=member, run=run).exists()
    assert api("PUT", f"/runs/{run.pk}/follow", {"follow": False}).json() == {"follow": False}
    assert not Follow.objects.filter(user=member, run=run).exists()


def test_nobody_follows_what_they_do_not_see(api: Call, foreign: Run) -> None:
    assert api("PUT", f"/runs/{foreign.pk}/follow", {"follow": True}).status_code == 404


def test_a_starter_hides_a_run_from_the_team_and_shows_it(api: Call, team: Team, run: Run) -> None:
    other = caller_of(make_user(team, TeamRole.OPERATOR))
    assert api("PUT", f"/runs/{run.pk}/privacy", {"private": True}).json()["is_private"] is True
    assert other("PUT", f"/runs/{run.pk}/privacy", {"private": False}).status_code == 404
    assert api("PUT", f"/runs/{run.pk}/privacy", {"private": False}).json()["is_private"] is False
    assert other("PUT", f"/runs/{run.pk}/privacy", {"private": True}).status_code == 422
    assert AuditEntry.objects.filter(run_id=run.pk, action="run.privacy").count() == 2


def test_hiding_what_is_hidden_leaves_no_line_in_the_log(api: Call, run: Run) -> None:
    for _ in range(2):
        assert api("PUT", f"/runs/{run.pk}/privacy", {"private": True}).status_code == 200
    assert AuditEntry.objects.filter(run_id=run.pk, action="run.privacy").count() == 1


# comparison


def test_runs_are_compared_in_the_order_asked_for(api: Call, team: Team, member: User, finished: Run) -> None:
    other = make_run(team, member, seed=7)
    run = finished
    told = api("GET", f"/runs/compare?ids={other.pk},{run.pk}").json()
    assert [one["id"] for one in told["runs"]] == [other.pk, run.pk] == [one["run"] for one in told["outcomes"]]
    assert told["same_ground"] is True
    assert {"setting": "seed", "values": [7, run.seed]} in told["differences"]
    nothing, something = told["outcomes"]
    assert (nothing["evaluated"], nothing["success"]) == (0, None)
    assert something["evaluated"] > 0 and 0 < something["success"]["low"] < something["success"]["value"] <= 100


def test_a_comparison_names_two_to_eight_different_runs(api: Call, run: Run) -> None:
    for ids in (f"{run.pk}", f"{run.pk},{run.pk}", ",".join(map(str, range(1, 10))), "a,b", ""):
        assert api("GET", f"/runs/compare?ids={ids}").status_code == 422, ids


def test_a_comparison_with_a_run_of_others_is_not_there(api: Call, run: Run, foreign: Run) -> None:
    assert api("GET", f"/runs/compare?ids={run.pk},{foreign.pk}").status_code == 404


# estimate


def test_an_estimate_tells_what_such_runs_took_and_starts_nothing(api: Call, team: Team, finished: Run) -> None:
    run = finished
    told = api("POST", "/runs/estimate", START | {"team": team.slug, "strategy": run.strategy}).json()
    assert (told["based_on"], told["evaluations"]) == (1, 8)
    assert 0 <= told["minutes"]["low"] <= told["minutes"]["high"]
    assert "Waiting for a runner for cpu." in told["absence"]
    assert Run.objects.count() == 1


def test_an_estimate_refuses_what_a_start_refuses(api: Call, team: Team) -> None:
    sent = START | {"team": team.slug, "strategy": "divination"}
    told, started = api("POST", "/runs/estimate", sent), api("POST", "/runs", sent)
    assert told.status_code == started.status_code == 422 and told.json() == started.json()


def test_a_malformed_request_is_refused_in_the_shape_of_all_refusals(api: Call, team: Team) -> None:
    wrong = api("POST", "/runs/estimate", START | {"team": team.slug, "seed": "many"})
    assert wrong.status_code == 422 and list(wrong.json()["fields"]) == ["seed"]
    assert wrong.json()["detail"].startswith("seed: ")
    asked = api("GET", "/runs?limit=abc")
    assert asked.status_code == 422 and list(asked.json()["fields"]) == ["limit"]
    nothing = api("POST", "/runs/estimate", None)
    assert nothing.status_code in (400, 422) and isinstance(nothing.json()["detail"], str)


def test_an_estimate_learns_nothing_from_runs_of_others(api: Call, team: Team) -> None:
    foreign = make_finished_run()
    sent = START | {"team": team.slug, "strategy": foreign.strategy}
    assert api("POST", "/runs/estimate", sent).json()["based_on"] == 0


# templates


def test_a_template_is_kept_replaced_and_forgotten(api: Call, team: Team) -> None:
    kept = api("POST", "/templates", {"team": team.slug, "name": "Nightly", "values": {"seed": "3"}})
    assert kept.status_code == 201, kept.content
    assert kept.json()["values"]["seed"] == "3" and kept.json()["values"]["team"] == team.slug
    again = api("POST", "/templates", {"team": team.slug, "name": "Nightly", "values": {"seed": "4"}}).json()
    assert [(row["id"], row["values"]["seed"]) for row in api("GET", "/templates").json()] == [(again["id"], "4")]
    assert api("DELETE", f"/templates/{again['id']}").status_code == 204
    assert not RunTemplate.objects.exists()


def test_the_form_is_filled_from_a_template_that_came_through_the_api(api: Call, pages: Client, team: Team) -> None:
    values = {"seed": "4", "strategy": "tune", "is_private": "1"}
    kept = api("POST", "/templates", {"team": team.slug, "name": "Nightly", "values": values}).json()
    form = pages.get(f"/runs/new/?template={kept['id']}").context["form"]
    assert (form["seed"].value(), form["is_private"].value(), form["team"].value()) == ("4", True, team.slug)


def test_a_template_with_a_field_that_the_form_does_not_have_is_refused(api: Call, team: Team) -> None:
    refused = api("POST", "/templates", {"team": team.slug, "name": "x", "values": {"sead": "3"}})
    assert refused.status_code == 422 and "sead" in refused.json()["detail"]


def test_templates_of_others_are_not_there(api: Call, foreign: Run) -> None:
    row = RunTemplate.objects.create(team=foreign.team, name="t", values={})
    assert api("GET", "/templates").json() == []
    assert api("DELETE", f"/templates/{row.pk}").status_code == 404
    assert api("POST", "/templates", {"team": foreign.team.slug, "name": "x", "values": {}}).status_code == 404


def test_a_token_to_read_changes_nothing_around_runs(member: User, team: Team, run: Run) -> None:
    call = caller_of(member, TokenScope.READ)
    assert call("POST", "/templates", {"team": team.slug, "name": "x", "values": {}}).status_code == 403
    assert call("PUT", f"/runs/{run.pk}/follow", {"follow": False}).status_code == 403
    assert call("POST", "/notifications/read", {}).status_code == 403


# teams


def test_a_caller_is_told_their_teams_with_their_role(api: Call, member: User, team: Team) -> None:
    make_team()
    other = make_team()
    Membership.objects.create(team=other, user=member, role=TeamRole.VIEWER)
    told = {row["slug"]: row["role"] for row in api("GET", "/teams").json()}
    assert told == {team.slug: "operator", other.slug: "viewer"}


def test_members_are_told_to_members_and_programs_to_owners(
    api: Call, owner: User, member: User, team: Team
) -> None:
    program = do_make_service_account(owner, team, "ci", TeamRole.VIEWER)
    people = {owner.username: "owner", member.username: "operator"}
    told = api("GET", f"/teams/{team.slug}/members").json()["items"]
    assert {row["username"]: row["role"] for row in told} == people
    told = caller_of(owner)("GET", f"/teams/{team.slug}/members").json()["items"]
    assert {row["username"] for row in told if row["is_service_account"]} == {program.username}


def test_the_log_is_for_owners_in_pages_and_by_action(api: Call, owner: User, team: Team, run: Run) -> None:
    call, here = caller_of(owner), f"/teams/{team.slug}/log"
    call("POST", f"/runs/{run.pk}/stop")
    page = call("GET", f"{here}?limit=1").json()
    assert [(row["action"], row["run_id"]) for row in page["items"]] == [("run.stopped", run.pk)]
    assert page["next"] == page["items"][0]["id"]
    assert {row["action"] for row in call("GET", f"{here}?action=run.started").json()["items"]} <= {"run.started"}
    assert call("GET", f"{here}?action=nothing").status_code == 422
    assert api("GET", here).status_code == 404


# parameters


def test_tuned_parameters_are_told_with_their_fastest_trials(api: Call, finished: Run) -> None:
    run = finished
    (space, *_) = api("GET", f"/runs/{run.pk}/parameters").json()
    times = [trial["time_us"] for trial in space["trials"]]
    assert times == sorted(times) and len(times) == space["count"] > 0
    assert all(set(trial["values"]) == set(space["names"]) for trial in space["trials"])
    assert all(0 <= one["share"] <= 1 and one["name"] in space["names"] for one in space["importances"])


def test_parameters_of_a_run_of_others_are_not_there(api: Call, foreign: Run) -> None:
    assert api("GET", f"/runs/{foreign.pk}/parameters").status_code == 404
