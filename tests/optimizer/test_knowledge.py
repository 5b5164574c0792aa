"""Hardware notes in the database, and what of all knowledge enters a prompt."""

from __future__ import annotations

from dataclasses import replace

import pytest

from optimizer.actions.knowledge import do_sync_notes
from optimizer.actions.target import do_sync_targets
from optimizer.agents.knowledge import HARDWARE_SHARE, KnowledgeItem, bottlenecks_of, choose_knowledge
from optimizer.agents.prompting import build_prompt
from optimizer.knowledge import page
from optimizer.models import Finding
from optimizer.runs.history import history_of
from optimizer.search.base import Ask, History, KernelView
from runners.job import BuildReport, JobResult, KernelResources, Language, Source, Status
from tests.factories import drive, make_run


@pytest.mark.django_db
def test_syncing_notes_twice_adds_nothing_and_a_new_text_supersedes_the_old() -> None:
    do_sync_targets()
    first = do_sync_notes()
    targets: set[str] = set()
    for row in first:
        assert row.target is not None
        targets.add(row.target.key.split("-")[0])
    assert targets >= {"cpu", "gfx942"}
    assert [row.pk for row in do_sync_notes()] == [row.pk for row in first]
    Finding.objects.filter(pk=first[0].pk).update(text="an older text")
    newer = do_sync_notes()[0]
    first[0].refresh_from_db()
    assert first[0].superseded_by == newer


def item(ref: str, scope: str, tokens: int) -> KnowledgeItem:
    return KnowledgeItem(ref, scope, ref, "x" * (4 * tokens))


def test_guidance_always_enters_and_the_budget_keeps_out_what_is_oldest_and_most_general() -> None:
    items = [
        item("target", "target", 50),
        item("old", "run", 40),
        item("new", "run", 40),
        item("g", "guidance", 900),
    ]
    chosen = choose_knowledge(items, budget_tokens=1000)
    assert [i.ref for i in chosen.taken] == ["g", "new", "old"]
    assert [i.ref for i in chosen.left_out] == ["target"]
    assert chosen.report()["left_out"] == [{"ref": "target", "scope": "target", "title": "target", "tokens": 50}]


def test_sixty_findings_never_crowd_out_the_hardware() -> None:
    findings = [item(f"finding-{number}", "problem", 400) for number in range(60)]
    notes = [item(f"page-{number}", "hardware", 1500) for number in range(6)]
    chosen = choose_knowledge([*findings, *notes])
    hardware = [i for i in chosen.taken if i.scope == "hardware"]
    assert [i.ref for i in hardware] == ["page-0", "page-1", "page-2"]
    assert sum(i.tokens for i in chosen.taken) <= chosen.budget_tokens


def test_hardware_never_takes_more_than_its_share() -> None:
    notes = [item(f"page-{number}", "hardware", 1000) for number in range(30)]
    chosen = choose_knowledge([*notes, item("finding", "problem", 6000)])
    assert sum(i.tokens for i in chosen.taken if i.scope == "hardware") == HARDWARE_SHARE
    assert "finding" in [i.ref for i in chosen.taken]


def bound_by(history: History, name: str) -> History:
    """Return the history with every kernel bound by `name`, as the profile says it."""
    kernels = [
        replace(kernel, result=replace(kernel.result, profile={"bound": name})) if kernel.result else kernel
        for kernel in history.kernels
    ]
    return replace(history, kernels=kernels)


@pytest.mark.django_db
def test_a_prompt_holds_the_pages_that_help_against_what_binds_its_kernel() -> None:
    run = drive(make_run(), rounds=2)
    history, base = history_of(run), run.kernels.all()[0].key
    ask = Ask("q", "solo", {"node": base, "window": [base]}, "KernelAnswer")
    for bound in ("compute", "memory"):
        report = build_prompt(ask, bound_by(history, bound)).report
        taken = [entry["ref"].removeprefix("page-") for entry in report["taken"] if entry["scope"] == "hardware"]
        assert len(taken) >= 3 and all(page(name).holds_for("cpu") for name in taken)
        assert bound in page(taken[0]).bottlenecks
        assert sum(entry["tokens"] for entry in report["taken"]) <= HARDWARE_SHARE


@pytest.mark.django_db
@pytest.mark.parametrize(("vector", "shown"), [(["avx2", "fma"], False), (["avx2", "avx512f"], True)])
def test_a_prompt_has_no_pages_for_instruction_sets_that_the_machine_lacks(vector: list[str], shown: bool) -> None:
    run = drive(make_run(), rounds=1)
    history, base = history_of(run), run.kernels.all()[0].key
    kernels = [
        replace(kernel, result=replace(kernel.result, environment={"vector": vector})) if kernel.result else kernel
        for kernel in history.kernels
    ]
    ask = Ask("q", "solo", {"node": base, "window": [base]}, "KernelAnswer")
    knows = build_prompt(ask, replace(history, kernels=kernels), budget_tokens=10**6).report["taken"]
    names = {entry["ref"] for entry in knows}
    assert ("page-cpu/avx512" in names) == shown and "page-cpu/vector_exp" in names and "page-cpu/amx" not in names


@pytest.mark.parametrize(
    ("profile", "names"),
    [
        ({}, set()),
        ({"bound": "latency"}, {"latency"}),
        ({"bound": "memory", "kernels": {"bound": "compute"}}, {"memory", "compute"}),
        ({"bound": "compute", "kernels": ["hostile"]}, {"compute"}),
    ],
)
def test_what_binds_a_kernel_is_read_from_its_profile(profile: dict[str, object], names: set[str]) -> None:
    result = JobResult("job", Status.CORRECT, profile=profile)
    kernel = KernelView("k", 1, (), "seed", Source(Language.CPP, ""), True, Status.CORRECT, result)
    assert bottlenecks_of(kernel) == names


def test_spills_and_low_occupancy_bind_too() -> None:
    built = BuildReport(True, 1.0, False, "", kernels=[KernelResources("k", vgpr_spills=3, occupancy=2)])
    result = JobResult("job", Status.CORRECT, build=built)
    kernel = KernelView("k", 1, (), "seed", Source(Language.HIP, ""), True, Status.CORRECT, result)
    assert bottlenecks_of(kernel) == {"registers", "occupancy"}
    assert bottlenecks_of(None) == frozenset()
