"""Test tags, notes, the archive, what is done with ticked runs, and the table as a stream."""

from __future__ import annotations

import csv
import json
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from optimizer.models import Run, RunState, Team, TeamRole
from tests.factories import make_run, make_team, make_user
from tests.optimizer.clients import streamed

pytestmark = pytest.mark.django_db
SCRIPT = "<script>alert(1)</script>"


def fresh(run: Run) -> Run:
    return Run.objects.get(pk=run.pk)


def bulk(client: Client, verb: str, *runs: Run, **more: Any) -> Any:
    return client.post(reverse("runs_bulk"), {"do": verb, "run": [run.pk for run in runs], **more}, follow=True)


def exported(client: Client, name: str, **asked: Any) -> str:
    answer = client.get(reverse(name), asked)
    assert answer.status_code == 200
    return streamed(answer)


def test_tags_and_notes_are_kept_and_found_again(pages: Client, run: Run, team: Team) -> None:
    pages.post(reverse("run_labels", args=[run.pk]), {"tags": " fp8 , paper,fp8,, ", "notes": "Promising."})
    assert (fresh(run).tags, fresh(run).notes) == (["fp8", "paper"], "Promising.")
    make_run(team, title="other")
    table = pages.get(reverse("runs"), {"tag": "paper"})
    assert [row.pk for row in table.context["runs"]] == [run.pk]


@pytest.mark.parametrize("tags", ["x" * 41, ",".join(f"t{n}" for n in range(21))])
def test_tags_beyond_the_limits_are_refused_in_words(pages: Client, run: Run, tags: str) -> None:
    said = pages.post(reverse("run_labels", args=[run.pk]), {"tags": tags}, follow=True).content.decode()
    assert "at most" in said
    assert fresh(run).tags == []


def test_what_was_typed_is_shown_again_once_when_it_was_refused(pages: Client, run: Run) -> None:
    sent = {"tags": f"fp8, {'x' * 41}", "notes": "An hour's work."}
    refused = pages.post(reverse("run_labels", args=[run.pk]), sent, follow=True).content.decode()
    assert f'value="{sent["tags"]}"' in refused and "An hour&#x27;s work.</textarea>" in refused
    assert fresh(run).notes == ""
    again = pages.get(reverse("run_page", args=[run.pk])).content.decode()
    assert sent["tags"] not in again and "An hour&#x27;s work." not in again


def test_script_and_reordering_characters_in_tags_stay_harmless(pages: Client, run: Run) -> None:
    pages.post(reverse("run_labels", args=[run.pk]), {"tags": f"{SCRIPT},a\u202eb\x07", "notes": SCRIPT})
    assert fresh(run).tags == [SCRIPT, "ab"]
    for address in (reverse("runs") + "?cols=notes&cols=tags", reverse("run_page", args=[run.pk])):
        assert SCRIPT not in pages.get(address).content.decode()


def test_an_archived_run_leaves_the_table_and_comes_back(pages: Client, run: Run) -> None:
    pages.post(reverse("run_archive", args=[run.pk]), {"archived": "1"})
    assert list(pages.get(reverse("runs")).context["runs"]) == []
    assert list(pages.get(reverse("runs"), {"archived": "on"}).context["runs"]) == [run]
    bulk(pages, "unarchive", run)
    assert list(pages.get(reverse("runs")).context["runs"]) == [run]


def test_ticked_runs_are_tagged_untagged_archived_and_stopped_together(pages: Client, run: Run, team: Team) -> None:
    other = make_run(team)
    assert "2 runs tagged night" in bulk(pages, "tag", run, other, tags="night").content.decode()
    bulk(pages, "untag", other, tags="night")
    assert [fresh(run).tags, fresh(other).tags] == [["night"], []]
    bulk(pages, "stop", run, other)
    assert fresh(run).state == fresh(other).state == RunState.STOPPING
    assert "0 runs stopping" in bulk(pages, "stop", run).content.decode()
    assert "2 runs archived" in bulk(pages, "archive", run, other).content.decode()


def test_ticked_runs_are_compared_under_an_address_without_the_forms_token(pages: Client, run: Run) -> None:
    answer = pages.post(reverse("runs_bulk"), {"do": "compare", "run": [run.pk, "x"], "csrfmiddlewaretoken": "t"})
    assert answer["Location"] == f"{reverse('compare')}?run={run.pk}"


def test_a_viewer_changes_nothing_with_a_crafted_post(client: Client, run: Run, team: Team) -> None:
    client.force_login(make_user(team, TeamRole.VIEWER))
    for verb in ("archive", "tag", "stop"):
        assert "unchanged" in bulk(client, verb, run, tags="x").content.decode()
    for name in ("run_labels", "run_archive"):
        assert client.post(reverse(name, args=[run.pk]), {"tags": "x", "archived": "1"}).status_code == 404
    after = fresh(run)
    assert (after.tags, after.is_archived, after.state) == ([], False, RunState.PENDING)


def test_an_outsider_does_not_learn_that_a_run_exists(client: Client, run: Run) -> None:
    client.force_login(make_user(make_team(), TeamRole.OWNER))
    said = bulk(client, "archive", run).content.decode()
    assert "unchanged" not in said
    assert not fresh(run).is_archived
    assert exported(client, "runs_json") == ""


def test_an_unknown_verb_is_nothing_and_a_foreign_way_back_leads_home(pages: Client, run: Run) -> None:
    assert bulk(pages, "explode", run).status_code == 404
    answer = pages.post(reverse("runs_bulk"), {"do": "archive", "next": "//evil.example/"})
    assert answer["Location"] == reverse("runs")


def test_the_streams_hold_what_the_table_shows_in_its_order(pages: Client, run: Run, team: Team) -> None:
    Run.objects.filter(pk=run.pk).update(best_speedup=2.0, best_speedup_low=1.9, tags=["a", "b"])
    make_run(team, title="second", strategy="tune")
    lines = [json.loads(line) for line in exported(pages, "runs_json", sort="best").splitlines()]
    assert [line["id"] for line in lines] == [run.pk, run.pk + 1]
    assert lines[0]["tags"] == ["a", "b"]
    rows = list(csv.DictReader(exported(pages, "runs_csv", q="second").splitlines()))
    assert [row["title"] for row in rows] == ["second"]


def test_a_title_that_a_spreadsheet_would_compute_is_only_text(pages: Client, team: Team) -> None:
    make_run(team, title='=HYPERLINK("http://evil.example")')
    (row,) = csv.DictReader(exported(pages, "runs_csv").splitlines())
    assert row["title"].startswith("'=HYPERLINK")
