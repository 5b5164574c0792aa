"""Test that related tables are complete: adding a language, role or event to one of them is not enough."""

from __future__ import annotations

import pytest

from optimizer.agents.prompting import PROMPTS, ROLES
from optimizer.agents.task_sections import language_guide
from optimizer.events.payloads import PAYLOADS
from optimizer.runs.languages import languages_for
from optimizer.search import STRATEGIES
from optimizer.views.colour import LEXERS
from optimizer.views.feed import WORDING
from runners.backends import REGISTRY
from runners.commands.reading import SUFFIXES
from runners.job import Language
from runners.targets import TARGETS

RUN_SOMEWHERE = sorted({language for key in TARGETS for language in languages_for(key)})
ASKED = sorted({role for strategy in STRATEGIES.values() for role in strategy.roles})


@pytest.mark.parametrize("language", Language)
def test_every_language_has_a_backend_and_a_target_that_runs_it(language: Language) -> None:
    assert language in REGISTRY
    assert language in RUN_SOMEWHERE


@pytest.mark.parametrize("language", RUN_SOMEWHERE)
def test_every_language_has_rules_for_prompts_and_colours_for_pages(language: Language) -> None:
    assert language_guide(language).strip()
    assert language in LEXERS
    assert language.label[0].isupper()


@pytest.mark.parametrize("language", [one for one in RUN_SOMEWHERE if one != Language.TRITON])
def test_every_language_but_triton_has_a_suffix(language: Language) -> None:
    assert language in SUFFIXES.values()


@pytest.mark.parametrize("key", TARGETS)
def test_every_target_runs_some_language(key: str) -> None:
    assert languages_for(key)


@pytest.mark.parametrize("role", ASKED)
def test_every_role_of_a_strategy_has_a_prompt(role: str) -> None:
    assert role in ROLES
    assert (PROMPTS / f"{role}.md").read_text().strip()


def test_every_event_has_a_sentence_in_the_feed() -> None:
    assert set(WORDING) == set(PAYLOADS.values())
