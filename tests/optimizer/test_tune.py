"""Test the strategy `tune` as a pure function of a history."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from optimizer.search.base import Draft, Finish, History, KernelView
from optimizer.search.flow import Flow, Waiting
from optimizer.search.machinery.tuning import is_numbered, tune_kernel
from optimizer.search.tune import Tune, TuneSettings, choose_basis
from runners.job import Language, Source, Status

SMALL = "// @tune A 1 2\n// @tune B 1 2 4\n// @constraint A * B <= 4\n// @flags -O2 | -O3\nint x;"
LARGE = "// @tune A 1 2 4 8\n// @tune B 1 2 4 8\nint y;"


def kernel(key: str, text: str = SMALL, time_us: float | None = 10.0, number: int = 0) -> KernelView:
    status = Status.CORRECT if time_us else Status.INCORRECT
    return KernelView(key, number, (), "seed", Source(Language.CPP, text), True, status, time_us=time_us)


def history(kernels: list[KernelView], settings: TuneSettings | None = None, left: int | None = None) -> History:
    return History(None, "cpu", settings or TuneSettings(), seed=3, kernels=kernels, evaluations_left=left)


def measured(draft: Draft, number: int, time_us: float | None) -> KernelView:
    status = Status.CORRECT if time_us else Status.CRASHED
    return KernelView(draft.key, number, draft.parent_keys, "tuner", draft.source, True, status, time_us=time_us)


def exhaust(settings: TuneSettings, fail_every: int = 0) -> tuple[list[Draft], Finish]:
    """Play the whole search; every `fail_every`th kernel fails."""
    kernels = [kernel("seed.a")]
    drafts: list[Draft] = []
    while True:
        steps = Tune().decide(history(kernels, settings))
        for step in steps:
            if isinstance(step, Finish):
                return drafts, step
            assert isinstance(step, Draft)
            drafts.append(step)
            failed = fail_every and len(drafts) % fail_every == 0
            kernels.append(measured(step, len(kernels), None if failed else 5.0 + len(drafts)))


@pytest.mark.parametrize("sampler", ["gp", "random"])
def test_every_valid_configuration_is_tried_once_and_then_the_run_is_over(sampler: str) -> None:
    drafts, finish = exhaust(TuneSettings(sampler=sampler, concurrency=2), fail_every=3)

    tried = [(draft.source.tunables["A"], draft.source.tunables["B"], draft.source.flags) for draft in drafts]
    valid = {(a, b, (f,)) for a in (1, 2) for b in (1, 2, 4) if a * b <= 4 for f in ("-O2", "-O3")}
    assert len(tried) == len(set(tried)) == len(valid)
    assert set(tried) == valid
    assert finish.reason == f"All {len(valid)} configurations were measured."
    assert [draft.key for draft in drafts] == [f"tune.{n}" for n in range(len(valid))]


def test_the_first_draft_is_the_declared_default() -> None:
    (first,) = Tune().decide(history([kernel("seed.a")]))
    assert isinstance(first, Draft)
    assert first.source.tunables == {"A": 1, "B": 1}
    assert first.source.flags == ("-O2",)
    assert first.parent_keys == ("seed.a",)


def test_the_seed_with_the_largest_space_is_tuned_and_the_faster_of_equals() -> None:
    slow, fast = kernel("seed.slow", LARGE, 20.0, 1), kernel("seed.fast", LARGE, 10.0, 2)
    chosen = choose_basis(history([kernel("seed.a", SMALL, 1.0), slow, fast]), "")
    assert chosen is fast


def test_a_seed_that_is_wrong_is_not_tuned() -> None:
    chosen = choose_basis(history([kernel("seed.a"), kernel("seed.b", LARGE, None)]), "")
    assert chosen is not None and chosen.key == "seed.a"


def test_a_kernel_may_be_named() -> None:
    kernels = [kernel("seed.a"), kernel("seed.b", LARGE)]
    (first,) = Tune().decide(history(kernels, TuneSettings(kernel="seed.a")))
    assert isinstance(first, Draft) and first.parent_keys == ("seed.a",)


def test_without_a_tunable_kernel_the_run_is_over() -> None:
    assert Tune().decide(history([kernel("seed.a", "int x;")])) == [
        Finish("No kernel with tunables is correct here.")
    ]


def test_it_waits_while_its_slots_are_taken_and_never_asks_for_more_than_is_left() -> None:
    kernels = [kernel("seed.a")]
    (first,) = Tune().decide(history(kernels))
    assert isinstance(first, Draft)
    running = KernelView(first.key, 1, (), "tuner", first.source, finished=False)
    assert Tune().decide(history([*kernels, running])) == []
    assert len(Tune().decide(history(kernels, TuneSettings(concurrency=5), left=2))) == 2


def test_the_same_history_and_seed_give_the_same_drafts() -> None:
    kernels = [kernel("seed.a", LARGE)]
    once = Tune().decide(history(kernels, TuneSettings(concurrency=3)))
    assert once == Tune().decide(history(kernels, TuneSettings(concurrency=3)))


def test_an_unknown_sampler_or_setting_is_refused() -> None:
    with pytest.raises(ValidationError):
        TuneSettings.model_validate({"sampler": "oracle"})
    with pytest.raises(ValidationError):
        TuneSettings.model_validate({"budget": 3})


def test_a_promising_kernel_of_another_strategy_is_tuned_for_as_long_as_it_was_told() -> None:
    kernels = [kernel("k1")]
    for number in range(1, 4):
        flow = Flow(history(kernels))
        with pytest.raises(Waiting):
            tune_kernel(flow, kernels[0], "random", 3, prefix="k1.t")
        (step,) = flow.steps
        assert isinstance(step, Draft) and step.key == f"k1.t{number - 1}"
        kernels.append(measured(step, number, 9.0))

    done = Flow(history(kernels))
    tune_kernel(done, kernels[0], "random", 3, prefix="k1.t")
    assert done.steps == []


def test_configurations_of_a_tuned_kernel_are_not_taken_for_those_of_its_parent() -> None:
    assert is_numbered("k1.t0", "k1.t")
    assert not is_numbered("k1.t0.t0", "k1.t")


def test_a_kernel_without_tunables_is_not_tuned() -> None:
    flow = Flow(history([]))
    tune_kernel(flow, kernel("k1", "int x;"), "random", 3, prefix="k1.t")
    assert flow.steps == []
