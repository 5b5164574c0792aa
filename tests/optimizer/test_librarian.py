"""Test that an agent consolidates findings that exceed their share of a prompt; people's findings and replays stay."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
from django.db import transaction
from django.test import Client

from optimizer.agents.prompting import build_prompt
from optimizer.calls.prepare import knowledge_of
from optimizer.loop.steps import take_steps
from optimizer.models import Finding, LlmCall, Run
from optimizer.runs.history import history_of
from optimizer.runs.locking import lock_run
from optimizer.search.base import Ask, History, Note
from optimizer.search.machinery.librarian import exceed_their_share
from optimizer.search.scientist import Scientist, ScientistSettings
from tests.optimizer.simulated_run import SimulatedRun, numbered_answers

QUESTION = Ask("r1.librarian", "librarian", {"round": 1}, "LibrarianAnswer")
LONG = "Tiles of 64 by 64 were 12 % faster than 32 by 32 on this processor, measured on all sizes. " * 6


def finding(run: Run, number: int, origin: str = "agent") -> Finding:
    """Store a finding that applies to every run of the problem on the target."""
    return Finding.objects.create(
        team=run.team, problem=run.problem_version.problem, target=run.target, key=f"f{number}", origin=origin,
        text=f"Finding {number}. {LONG}", source="run 0",
    )  # fmt: skip


@pytest.fixture
def piled(run: Run) -> list[Finding]:
    """Return sixty findings of agents and, last, one of a person."""
    return [*(finding(run, number) for number in range(60)), finding(run, 60, "person")]


def consolidated(run: Run) -> Finding:
    """Store the librarian's document, as the strategy does when its question is answered."""
    prompt = build_prompt(QUESTION, history_of(run), knowledge_of(run))
    LlmCall.objects.create(
        run=run, key=QUESTION.key, role="librarian", provider="inbox", context_report=prompt.report
    )
    note = Note("r1.librarian.note", "- Tiles of 64 win.", "problem", call_key=QUESTION.key, consolidates=True)
    with transaction.atomic():
        take_steps(lock_run(run.pk), [note])
    return Finding.objects.get(key="r1.librarian.note")


def test_sixty_findings_exceed_their_share_and_a_few_do_not(run: Run) -> None:
    finding(run, 1)
    assert not exceed_their_share(history_of(run))
    for number in range(2, 62):
        finding(run, number)
    assert exceed_their_share(history_of(run))


def test_the_librarian_reads_every_finding_of_agents_and_nothing_else(run: Run, piled: list[Finding]) -> None:
    report = build_prompt(QUESTION, history_of(run), knowledge_of(run)).report
    assert {entry["ref"] for entry in report["taken"]} == {f"finding-{row.pk}" for row in piled[:60]}
    assert report["left_out"] == []


def test_its_document_takes_the_place_of_what_it_was_shown(run: Run, piled: list[Finding]) -> None:
    document = consolidated(run)
    assert set(Finding.objects.filter(superseded_by=document)) == set(piled[:60])
    read = [item.text for item in knowledge_of(run) if item.scope == "problem"]
    assert read == [piled[60].text, "- Tiles of 64 win."]
    assert not exceed_their_share(history_of(run))


def test_a_finding_that_was_written_meanwhile_stays(run: Run, piled: list[Finding]) -> None:
    prompt = build_prompt(QUESTION, history_of(run), knowledge_of(run))
    LlmCall.objects.create(
        run=run, key=QUESTION.key, role="librarian", provider="inbox", context_report=prompt.report
    )
    late = finding(run, 99)
    with transaction.atomic():
        take_steps(lock_run(run.pk), [Note("n", "- All.", "problem", call_key=QUESTION.key, consolidates=True)])
    late.refresh_from_db()
    assert late.is_current


def test_another_teams_findings_are_never_replaced(run: Run, piled: list[Finding]) -> None:
    foreign = Finding.objects.create(text="Not theirs.", origin="agent", source="run 0")
    consolidated(run)
    foreign.refresh_from_db()
    assert foreign.is_current


def test_its_page_lists_what_it_consolidates_and_has_one_version(
    pages: Client, run: Run, piled: list[Finding]
) -> None:
    document = consolidated(run)
    said = pages.get(f"/knowledge/{document.pk}/").content.decode()
    assert "Consolidates" in said and f"/knowledge/{piled[0].pk}/" in said
    assert said.split('<ol class="history">')[1].split("</ol>")[0].count("<li>") == 1
    older = pages.get(f"/knowledge/{piled[0].pk}/").content.decode()
    assert "This is an older version" in older and f"/knowledge/{document.pk}/" in older


@dataclass
class LearningRun(SimulatedRun):
    """A simulated run whose findings count, `known` of them from earlier runs."""

    known: int = 0

    def history(self) -> History:
        """Return the run with its findings, or with the librarian's document alone."""
        documents = [text for key, text in self.notes.items() if ".librarian." in key]
        written = [text for key, text in self.notes.items() if ".finding" in key]
        return replace(super().history(), findings=tuple(documents or [*[LONG] * self.known, *written]))


def played(known: int, **settings: Any) -> LearningRun:
    """Play a run of three rounds."""
    answers = numbered_answers(random.Random(1))

    def answer(ask: Ask) -> Mapping[str, Any] | None:
        return {"findings": ["Tiles of 64 win."]} if ask.role == "librarian" else answers(ask)

    run = LearningRun(Scientist(), ScientistSettings(**settings), answer, lambda draft: 50.0, budget=9, known=known)
    return run.play()


def librarians(run: SimulatedRun) -> list[str]:
    """Return the keys of the questions to the librarian."""
    return [ask.key for ask in run.asked if ask.role == "librarian"]


def test_the_scientist_asks_once_when_findings_are_too_long() -> None:
    run = played(known=60)
    assert librarians(run) == ["r1.librarian"]
    assert run.notes["r1.librarian.note"] == "- Tiles of 64 win."
    assert run.finished


def test_it_does_not_ask_while_they_fit_or_when_it_is_turned_off() -> None:
    assert librarians(played(known=2)) == []
    assert librarians(played(known=60, consolidate=False)) == []
