"""Meta notes: agents write the next version, and what a person wrote into one stays."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from django.db import transaction
from django.test import Client

from optimizer.actions.finding import do_edit_finding
from optimizer.calls.prepare import knowledge_of
from optimizer.loop.steps import take_steps
from optimizer.models import Finding, Run, User
from optimizer.runs.locking import lock_run
from optimizer.search.base import Ask, Note
from optimizer.search.machinery.meta import MetaSettings
from optimizer.search.stark import Stark, StarkSettings
from tests.optimizer.simulated_run import SimulatedRun, numbered_answers


def note(run: Run, number: int, text: str) -> Finding:
    """Store the agents' note of a block, as a strategy says it."""
    before = f"meta{number - 1}.note" if number > 1 else None
    with transaction.atomic():
        take_steps(lock_run(run.pk), [Note(f"meta{number}.note", text, "run", before)])
    return Finding.objects.get(run=run, key=f"meta{number}.note")


def edit(user: User, row: Finding, text: str) -> Finding:
    return do_edit_finding(user, row, "What we know", text)


def read_by_agents(run: Run) -> list[str]:
    return [item.text for item in knowledge_of(run) if item.scope == "run"]


def test_the_next_note_takes_the_place_of_the_one_before(run: Run) -> None:
    first, second = note(run, 1, "- tiles help"), note(run, 2, "- tiles of 64 help")
    first.refresh_from_db()
    assert first.superseded_by == second
    assert read_by_agents(run) == ["- tiles of 64 help"]


def test_what_a_person_wrote_stays_above_the_next_note(run: Run, member: User) -> None:
    mine = edit(member, note(run, 1, "- tiles help"), "Never use atomics.")
    second = note(run, 2, "- tiles of 64 help")
    mine.refresh_from_db()
    assert mine.superseded_by == second and second.title == "What we know"
    (text,) = read_by_agents(run)
    assert text.startswith("Never use atomics.\n\n") and text.endswith("\n\n- tiles of 64 help")


def test_it_stays_through_every_later_note_and_old_notes_go(run: Run, member: User) -> None:
    edit(member, note(run, 1, "- one"), "Never use atomics.")
    note(run, 2, "- two")
    note(run, 3, "- three")
    (text,) = read_by_agents(run)
    assert "Never use atomics." in text and "- three" in text
    assert "- two" not in text and "- one" not in text


def test_a_persons_later_edit_wins_over_their_first(run: Run, member: User) -> None:
    edit(member, note(run, 1, "- one"), "Never use atomics.")
    edit(member, note(run, 2, "- two"), "Atomics are fine after all.")
    note(run, 3, "- three")
    (text,) = read_by_agents(run)
    assert "fine after all" in text and "Never" not in text


def test_the_page_of_a_note_shows_every_version_and_who_wrote_it(pages: Client, run: Run, member: User) -> None:
    edit(member, note(run, 1, "- one"), "Never use atomics.")
    newest = note(run, 2, "- two")
    said = pages.get(f"/knowledge/{newest.pk}/").content.decode()
    assert "Never use atomics." in said and "Noted by the agents since" in said
    versions = said.split('<ol class="history">')[1].split("</ol>")[0]
    assert versions.count("<li>") == 3 and member.username in versions


def test_saying_a_note_again_adds_nothing(run: Run) -> None:
    assert note(run, 1, "- one") == note(run, 1, "- other words")


def test_a_note_that_an_agent_failed_to_write_breaks_no_chain() -> None:
    written = numbered_answers(random.Random(3))

    def answer(ask: Ask) -> Mapping[str, Any] | None:
        return None if ask.key == "meta2" else written(ask)

    settings = StarkSettings(meta=MetaSettings(every=1))
    run = SimulatedRun(Stark(), settings, answer, lambda draft: 50.0, budget=3).play()
    said = [step for step in Stark().decide(run.history()) if isinstance(step, Note)]
    assert [(one.key, one.supersedes) for one in said] == [("meta1.note", None), ("meta3.note", "meta1.note")]
