"""Strategies and the run's own ranking agree on which kernel leads, and neither builds on one that did not stand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from optimizer.models import Run, Team
from optimizer.queries.budgets import Budget
from optimizer.runs.history import history_of
from optimizer.search.base import History, KernelView, StrategySettings, fastest
from optimizer.search.machinery.descriptor import descriptor
from optimizer.search.machinery.handoff import is_promising
from optimizer.search.scientist import _by_number
from optimizer.search.tune import choose_basis
from runners.job import BuildReport, Effort, JobResult, JobSpec, KernelResources, Language, Source, Status
from tests.factories import correct_result, drive, fake_evaluate, fake_time_us, make_run
from tests.optimizer.simulated_run import seed

TUNABLE = Source(Language.CPP, "// @tune T 1 2 4\nint x;")


def history(*kernels: KernelView) -> History:
    return History(None, "cpu", StrategySettings(), 1, kernels)


def test_a_kernel_is_promising_when_it_leads_all_before_it() -> None:
    slow, fast, slower = seed("a", 100.0, 0), seed("b", 50.0, 1), seed("c", 60.0, 2)
    told = history(slow, fast, slower)
    assert [is_promising(kernel, told) for kernel in told.kernels] == [True, True, False]


def test_a_claim_that_was_not_confirmed_leads_nowhere_and_stands_in_nobodys_way() -> None:
    boaster = replace(seed("boast", 1.0, 1), time_us=None, source=TUNABLE)
    told = history(seed("a", 100.0, 0), boaster, replace(seed("b", 50.0, 2), source=TUNABLE))
    assert not is_promising(boaster, told) and is_promising(told.kernels[2], told)
    assert told.best() == fastest(told.kernels) == told.kernels[2]
    assert choose_basis(told, "") == told.kernels[2]
    assert _by_number(told.kernels, 1) is None, "a selector that names it gets the best instead"


def test_a_person_may_have_any_correct_kernel_tuned() -> None:
    boaster = replace(seed("boast", 1.0, 1), time_us=None, source=TUNABLE)
    assert choose_basis(history(boaster), "seed.boast") == boaster


@pytest.mark.django_db
def test_a_kernel_that_a_second_measurement_refuted_is_not_the_best_of_a_history_read_before(team: Team) -> None:
    seen: list[str | None] = []

    def judge(spec: JobSpec, **more: Any) -> JobResult:
        if spec.effort != Effort.CONFIRM:
            return fake_evaluate(spec, **more)
        best = history_of(run).best()
        seen.append(best.key if best else None)
        return correct_result(spec, 400.0 if len(seen) == 1 else fake_time_us(spec))

    run = make_run(team, budget=Budget(evaluations=4))
    run = drive(run, judge)
    refuted = run.kernels.get(number=run.events.get(type="best.refuted").payload["number"])
    told = history_of(run)
    assert seen[0] == refuted.key, "it led until it was measured again"
    assert told.kernels_by_key[refuted.key].time_us is None
    assert told.best() is not None and run.best_kernel is not None
    assert told.best().key == run.best_kernel.key  # type: ignore[union-attr]


@pytest.mark.django_db
def test_on_a_machine_that_drifts_strategies_order_kernels_as_the_run_does(team: Team) -> None:
    drift = iter([1.0, 3.0, 0.5, 2.0, 0.7, 4.0, 1.5, 1.0, 1.0, 1.0, 1.0, 1.0])

    def drifting(spec: JobSpec, **more: Any) -> JobResult:
        slowed = next(drift)
        time_us = 200.0 if spec.candidate.language == Language.PYTHON else fake_time_us(spec)
        return correct_result(spec, time_us * slowed, baseline_us=200.0 * slowed)

    run: Run = drive(make_run(team, settings={"confirm": False}, budget=Budget(evaluations=4)), drifting)
    speedups = dict(run.kernels.filter(evaluation__speedup__gt=0).values_list("key", "evaluation__speedup"))
    raw = dict(run.kernels.filter(evaluation__speedup__gt=0).values_list("key", "evaluation__time_us"))
    told = {kernel.key: kernel.time_us for kernel in history_of(run).kernels if kernel.counts}
    assert None not in speedups.values() and None not in raw.values()
    by_speedup = sorted(speedups, key=lambda key: -(speedups[key] or 0.0))
    assert sorted(told, key=lambda key: told[key] or 0.0) == by_speedup
    assert sorted(raw, key=lambda key: raw[key] or 0.0) != by_speedup, (
        "the raw times would have said something else"
    )


def test_kernels_of_another_kind_have_cells_of_their_own_on_an_island() -> None:
    def built(tile: int, lds_bytes: int, occupancy: int, bound: str) -> KernelView:
        report = BuildReport(
            ok=True,
            seconds=1.0,
            cached=False,
            log="",
            kernels=[KernelResources("k", lds_bytes=lds_bytes, occupancy=occupancy)],
        )
        result = JobResult("j", Status.CORRECT, build=report, profile={"bound": bound})
        return replace(seed("k", 1.0, 1), source=Source(Language.HIP, "x", {"TILE": tile}), result=result)

    plain = built(64, 1024, 4, "memory")
    others = [built(128, 1024, 4, "memory"), built(64, 32768, 4, "memory"), built(64, 1024, 8, "memory"),
              built(64, 1024, 4, "compute")]  # fmt: skip
    assert len({descriptor(plain), *(descriptor(other) for other in others)}) == 5
    assert descriptor(built(65, 1100, 4, "memory")) == descriptor(plain), "much alike is the same kind"
