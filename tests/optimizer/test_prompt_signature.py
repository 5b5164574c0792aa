"""The entry point that a prompt asks for is the one that the harness calls."""

from __future__ import annotations

import inspect
import re

import pytest

from optimizer.agents import sections
from optimizer.llm.delimiters import Delimiters
from runners.job import Language
from runners.problems import load, open_bundle, shipped


def _entry(source: str) -> inspect.Signature:
    namespace: dict[str, object] = {}
    exec(source, namespace)  # noqa: S102 - a shipped reference of our own
    return inspect.signature(namespace["custom_kernel"])  # type: ignore[arg-type]


@pytest.mark.parametrize("name", shipped())
def test_the_python_signature_of_a_prompt_is_that_of_the_problems_own_seed(name: str) -> None:
    problem = open_bundle(load(name))
    seed = next(seed for seed in problem.seeds if seed.name == "reference")
    text = sections.task(problem, "sm_90", Language.TRITON, Delimiters())
    asked = re.search(r"`custom_kernel\(([^)]*)\)`", text)
    assert asked, "the prompt names no entry point"
    assert asked.group(1).split(", ") == list(_entry(seed.source.text).parameters)


@pytest.mark.parametrize("language", [Language.TRITON, Language.PYTHON])
def test_no_language_guide_asks_for_one_tuple_that_only_a_foreign_format_has(language: Language) -> None:
    assert "custom_kernel(data)" not in sections.language_guide(language)
