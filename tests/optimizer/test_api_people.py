"""The API as people use the pages: labels, many runs at once, exports, talk, releases, providers."""

from __future__ import annotations

import csv
import json

import pytest

from optimizer.actions.provider import ProviderFields, do_save_provider
from optimizer.models import Comment, Kernel, Provider, Run, Team, TeamRole, Thread, TokenScope, User
from tests.factories import make_run, make_team, make_user
from tests.optimizer.clients import Call, caller_of, streamed

pytestmark = pytest.mark.django_db
ADDRESS = "https://93.184.215.14/v1"


@pytest.fixture
def member(owner: User) -> User:
    """Return a member who starts and asks here and may do everything in the team."""
    return owner


@pytest.fixture
def run(finished: Run) -> Run:
    """Return a run that has gone to its end, as every run here has."""
    return finished


def best_of(run: Run) -> Kernel:
    assert run.best_kernel is not None
    return run.best_kernel


# labels


def test_tags_and_notes_are_replaced_and_told(api: Call, run: Run) -> None:
    told = api(
        "PUT", f"/runs/{run.pk}/labels", {"tags": ["later", "later", " tiles"], "notes": "Look again."}
    ).json()
    assert (told["tags"], told["notes"]) == (["later", "tiles"], "Look again.")
    assert api("PUT", f"/runs/{run.pk}/labels", {}).json()["tags"] == []


def test_a_tag_that_is_too_long_is_refused(api: Call, run: Run) -> None:
    assert api("PUT", f"/runs/{run.pk}/labels", {"tags": ["x" * 41]}).status_code == 422


def test_a_run_is_put_away_and_taken_out(api: Call, run: Run) -> None:
    assert api("PUT", f"/runs/{run.pk}/archived", {"archived": True}).json()["is_archived"] is True
    assert api("GET", "/runs").json()["items"] == []
    assert api("PUT", f"/runs/{run.pk}/archived", {"archived": False}).json()["is_archived"] is False


def test_many_runs_are_tagged_at_once_and_those_of_others_left_alone(api: Call, run: Run) -> None:
    foreign = make_run(make_team())
    told = api("POST", "/runs/bulk", {"do": "tag", "runs": [run.pk, foreign.pk, 10**18], "tags": ["later"]}).json()
    assert told == {"changed": 1, "refused": [foreign.pk, 10**18]}
    foreign.refresh_from_db()
    assert foreign.tags == []


def test_bulk_without_a_tag_or_with_an_unknown_verb_is_refused(api: Call, run: Run) -> None:
    assert api("POST", "/runs/bulk", {"do": "tag", "runs": [run.pk]}).status_code == 422
    assert api("POST", "/runs/bulk", {"do": "delete", "runs": [run.pk]}).status_code == 422


# exports


def test_the_table_of_runs_is_a_stream_of_what_the_caller_sees(api: Call, run: Run) -> None:
    make_run(make_team())
    rows = list(csv.DictReader(streamed(api("GET", "/runs/export.csv")).splitlines()))
    assert [row["id"] for row in rows] == [str(run.pk)]
    lines = [json.loads(line) for line in streamed(api("GET", "/runs/export.jsonl?q=nothing-like-it")).splitlines()]
    assert lines == []


# talk


def test_a_thread_is_begun_answered_and_resolved(api: Call, run: Run) -> None:
    number = best_of(run).number
    begun = api("POST", f"/runs/{run.pk}/threads", {"kernel": number, "first": 1, "body": "Why?"})
    assert begun.status_code == 201, begun.content
    thread = begun.json()
    assert (thread["kernel"], thread["first_line"], thread["line_count"]) == (number, 1, 1)
    here = f"/runs/{run.pk}/threads/{thread['id']}"
    assert [one["body"] for one in api("POST", f"{here}/comments", {"body": "So."}).json()["comments"]] == [
        "Why?",
        "So.",
    ]
    assert api("PUT", f"{here}/state", {"state": "resolved"}).json()["state"] == "resolved"
    assert api("PUT", f"{here}/state", {"state": "resolved"}).status_code == 422
    assert api("GET", f"/runs/{run.pk}/threads?state=open").json()["items"] == []
    assert [row["id"] for row in api("GET", f"/runs/{run.pk}/threads").json()["items"]] == [thread["id"]]


def test_a_draft_is_nobody_elses_until_a_review_publishes_it(api: Call, team: Team, run: Run) -> None:
    other, number = caller_of(make_user(team, TeamRole.REVIEWER)), best_of(run).number
    thread = api("POST", f"/runs/{run.pk}/threads", {"kernel": number, "body": "Hm.", "draft": True}).json()
    assert thread["comments"][0]["is_draft"] is True
    assert other("GET", f"/runs/{run.pk}/threads/{thread['id']}").status_code == 404
    said = api("POST", f"/runs/{run.pk}/reviews", {"kernel": number, "verdict": "request_changes"}).json()
    assert (said["verdict"], said["comments"]) == ("request_changes", 1)
    assert other("GET", f"/runs/{run.pk}/threads/{thread['id']}").json()["comments"][0]["body"] == "Hm."
    assert [row["id"] for row in other("GET", f"/runs/{run.pk}/reviews").json()["items"]] == [said["id"]]


def test_a_reply_leaves_other_peoples_drafts_unseen(api: Call, team: Team, run: Run) -> None:
    thread = api("POST", f"/runs/{run.pk}/threads", {"body": "Seen."}).json()
    here = f"/runs/{run.pk}/threads/{thread['id']}"
    api("POST", f"{here}/comments", {"body": "Unseen.", "draft": True})
    shown = caller_of(make_user(team, TeamRole.VIEWER))("GET", here).json()
    assert [one["body"] for one in shown["comments"]] == ["Seen."]


def test_words_for_a_kernel_or_line_that_is_not_there_are_refused(api: Call, run: Run) -> None:
    number = best_of(run).number
    assert api("POST", f"/runs/{run.pk}/threads", {"kernel": 999, "body": "x"}).status_code == 404
    assert (
        api("POST", f"/runs/{run.pk}/threads", {"kernel": number, "first": 10**6, "body": "x"}).status_code == 422
    )
    assert api("POST", f"/runs/{run.pk}/reviews", {"verdict": "approve"}).status_code == 422
    assert not Thread.objects.exists() and not Comment.objects.exists()


def test_a_token_to_read_says_nothing(owner: User, run: Run) -> None:
    call = caller_of(owner, TokenScope.READ)
    assert call("POST", f"/runs/{run.pk}/threads", {"body": "x"}).status_code == 403
    assert call("PUT", f"/runs/{run.pk}/labels", {}).status_code == 403


# releases


def test_a_release_is_asked_for_waits_for_its_conditions_and_is_withdrawn(api: Call, run: Run) -> None:
    asked = api("POST", "/releases", {"run": run.pk, "kernel": best_of(run).number, "note": "Ship it"})
    assert asked.status_code == 201, asked.content
    release = asked.json()
    assert release["state"] == "asked" and not all(one["is_met"] for one in release["conditions"])
    refused = api("POST", f"/releases/{release['id']}/release")
    assert refused.status_code == 422 and "0 of 2 approvals" in refused.json()["detail"]
    assert api("POST", f"/releases/{release['id']}/withdraw").json()["state"] == "withdrawn"
    assert [row["state"] for row in api("GET", "/releases").json()["items"]] == ["withdrawn"]


# providers


def test_a_provider_is_added_changed_and_removed_without_a_key(api: Call, team: Team) -> None:
    new = {"team": team.slug, "name": "vllm", "base_url": ADDRESS, "default_model": "m"}
    added = api("POST", "/providers", new)
    assert added.status_code == 201, added.content
    here = f"/providers/{added.json()['id']}"
    changed = api("PUT", here, {"name": "vllm", "base_url": ADDRESS, "default_model": "n", "concurrency": 2}).json()
    assert (changed["default_model"], changed["concurrency"], changed["has_key"]) == ("n", 2, False)
    assert api("DELETE", here).status_code == 204
    assert not Provider.objects.exists()


def test_a_stored_key_neither_comes_out_nor_travels(api: Call, team: Team, owner: User) -> None:
    row = do_save_provider(owner, team, ProviderFields("vllm", ADDRESS, key="sk-secret"))
    listed = api("GET", "/providers")
    assert b"sk-secret" not in listed.content and listed.json()[0]["has_key"] is True
    moved = api("PUT", f"/providers/{row.pk}", {"name": "vllm", "base_url": "https://93.184.215.15/v1"})
    assert moved.status_code == 422 and "key" in moved.json()["fields"]
    kept = api("PUT", f"/providers/{row.pk}", {"name": "other", "base_url": ADDRESS}).json()
    assert (kept["name"], kept["has_key"]) == ("other", True)


@pytest.mark.parametrize(
    "address", ["http://127.0.0.1:6379/v1", "https://169.254.169.254/v1", "file:///etc/passwd"]
)
def test_a_provider_leads_to_no_private_address(api: Call, team: Team, address: str) -> None:
    assert api("POST", "/providers", {"team": team.slug, "name": "x", "base_url": address}).status_code == 422


def test_only_owners_change_providers(team: Team, owner: User) -> None:
    row = do_save_provider(owner, team, ProviderFields("vllm", ADDRESS))
    call = caller_of(make_user(team, TeamRole.OPERATOR))
    assert call("PUT", f"/providers/{row.pk}", {"name": "y", "base_url": ADDRESS}).status_code == 404
    assert call("POST", "/providers", {"team": team.slug, "name": "y", "base_url": ADDRESS}).status_code == 404
