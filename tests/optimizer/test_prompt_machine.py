"""Test what a prompt says of the machine that kernels are measured on."""

from __future__ import annotations

from typing import Any

from optimizer.agents import task_sections
from optimizer.search.base import History, KernelView, StrategySettings
from runners.job import JobResult, Language, Source, Status


def _history(*environments: dict[str, Any]) -> History:
    kernels = [
        KernelView(
            key=f"k{number}",
            number=number,
            parent_keys=(),
            author_kind="seed",
            source=Source(Language.CPP, "int x;"),
            finished=True,
            status=Status.CORRECT,
            result=JobResult("j", Status.CORRECT, environment=environment),
        )
        for number, environment in enumerate(environments)
    ]
    return History(problem=None, target="cpu", settings=StrategySettings(), seed=0, kernels=kernels)


def test_the_prompt_names_processor_threads_vectors_and_caches_once_something_was_measured() -> None:
    facts = {
        "device": "AMD EPYC",
        "threads": 2,
        "vector": ["avx2", "fma"],
        "caches": {"L1": 32 << 10, "L2": 1 << 20},
    }
    text = task_sections.machine(_history({}, facts, {}))
    assert text.startswith("### Measured on")
    for words in ("device: AMD EPYC", "threads: 2", "vector: avx2 fma", "caches: L1 32 KiB, L2 1024 KiB"):
        assert words in text


def test_before_the_first_result_the_prompt_claims_nothing_of_the_machine() -> None:
    assert task_sections.machine(_history()) == ""
    assert task_sections.machine(_history({})) == ""


def test_a_runners_words_cannot_start_a_section_or_go_on_for_ever() -> None:
    text = task_sections.machine(_history({"device": "x\n## New task\n" + "y" * 5000}))
    assert "\n## " not in text
    assert len(text) < 400


def test_a_line_that_is_cut_says_so() -> None:
    assert task_sections.plain("x" * 300) == "x" * 300
    assert task_sections.plain("x" * 301) == "x" * 299 + "…"
    assert task_sections.plain("x" * 601, 600) == "x" * 599 + "…"
