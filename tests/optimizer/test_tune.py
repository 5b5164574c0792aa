"""Test the strategy `tune` as a pure function of a history."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from pydantic import ValidationError

from optimizer.search.base import Draft, Finish, History, KernelView, Step
from optimizer.search.compiled import CompileAhead, CompiledBatch
from optimizer.search.flow import Flow, Waiting
from optimizer.search.machinery.tuned_source import with_values
from optimizer.search.machinery.tuning import Search, is_numbered, tune_kernel
from optimizer.search.tune import Tune, TuneSettings, choose_basis
from runners.job import AheadBuild, Language, Source, Status, TunableValue, Variant

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
        Finish("No kernel declares tunables: there is nothing to vary.")
    ]
    wrong = replace(kernel("seed.a"), status=Status.INCORRECT, time_us=None)
    assert Tune().decide(history([wrong])) == [Finish("No kernel with tunables is correct here.")]
    doubted = replace(kernel("seed.a"), time_us=None)
    assert Tune().decide(history([doubted])) == [Finish("The time of the kernel with tunables was not confirmed.")]


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
            tune_kernel(flow, kernels[0], "random", 3, prefix="k1.t", width=1)
        (step,) = flow.steps
        assert isinstance(step, Draft) and step.key == f"k1.t{number - 1}"
        kernels.append(measured(step, number, 9.0))

    done = Flow(history(kernels))
    tune_kernel(done, kernels[0], "random", 3, prefix="k1.t", width=1)
    assert done.steps == []


def test_the_default_of_a_kernel_with_several_sets_of_flags_is_not_measured_again() -> None:
    flow = Flow(history([kernel("k1")]))
    with pytest.raises(Waiting):
        tune_kernel(flow, kernel("k1"), "gp", 99, prefix="k1.t", width=64)
    tried = [(step.source.tunables, step.source.flags) for step in flow.steps if isinstance(step, Draft)]
    assert len(tried) == 9 and ({"A": 1, "B": 1}, ("-O2",)) not in tried


def test_configurations_of_a_tuned_kernel_are_not_taken_for_those_of_its_parent() -> None:
    assert is_numbered("k1.t0", "k1.t")
    assert not is_numbered("k1.t0.t0", "k1.t")


def test_a_kernel_without_tunables_is_not_tuned() -> None:
    flow = Flow(history([]))
    tune_kernel(flow, kernel("k1", "int x;"), "random", 3, prefix="k1.t", width=1)
    assert flow.steps == []


# What was fast for other kernels


def tuned(base: KernelView, number: int, time_us: float, **values: int) -> KernelView:
    """Return a configuration of a kernel, measured, with its values in its text."""
    source = with_values(replace(base.source, tunables=dict(values)))
    return replace(
        kernel(f"{base.key}.t{number}", time_us=time_us, number=number), source=source, author_kind="tuner",
        parent_keys=(base.key,),
    )  # fmt: skip


def values_of(draft: Draft) -> tuple[TunableValue, ...]:
    return tuple(draft.source.tunables[name] for name in ("A", "B"))


@pytest.mark.parametrize("sampler", ["gp", "random"])
def test_a_tuning_begins_with_what_was_fast_for_other_kernels_of_the_same_parameters(sampler: str) -> None:
    parent = kernel("k0", LARGE, 20.0)
    others = [
        parent,
        tuned(parent, 0, 9.0, A=4, B=8),
        tuned(parent, 1, 12.0, A=8, B=8),  # lost its tuning
        kernel("k1", LARGE.replace("1 2 4 8", "2 4 8 16"), 8.0),  # the fastest, at A=2 and B=2
        kernel("k2", LARGE.replace("1 2 4 8", "16 32"), 7.0),  # values that the kernel does not list
        kernel("k3", LARGE.replace("@tune A", "@tune C"), 6.0),
        kernel("k4", LARGE.replace("@tune A 1", "@tune A 8 1"), None),  # wrong
    ]
    child = kernel("k9", LARGE + "// better", 15.0)
    flow = Flow(history([*others, child]))
    with pytest.raises(Waiting):
        tune_kernel(flow, child, sampler, 4, prefix="k9.t", width=4)
    drafts, _ = parts(flow.steps)
    assert [values_of(draft) for draft in drafts[:2]] == [(2, 2), (4, 8)]
    assert len({values_of(draft) for draft in drafts} - {(1, 1)}) == 4


def test_no_more_than_three_configurations_of_other_kernels_are_tried_first() -> None:
    others = [kernel(f"k{a}", f"// @tune A {a}\n// @tune B 1 2\nint {a};", float(a)) for a in range(2, 20)]
    child = kernel("c", "// @tune A " + " ".join(map(str, range(1, 20))) + "\n// @tune B 1 2\nint c;")
    search = Search(history([*others, child]), child, "c.t", written=True)
    assert [values_of(draft) for draft in search.drafts(3, "random")] == [(2, 1), (3, 1), (4, 1)]
    assert values_of(search.drafts(4, "random")[3]) != (5, 1)


def test_what_was_fast_for_another_kernel_is_compiled_first_and_measured_only_if_it_compiled() -> None:
    sibling = replace(hip("seed.b"), source=Source(Language.HIP, f"{DEVICE} // b", {"A": 8, "B": 4}), time_us=20.0)
    kernels = [hip(), sibling]
    (default,), (batch,) = parts(Tune().decide(on_device(kernels, [])))
    assert Variant({"A": 8, "B": 4}) in batch.variants and len(batch.variants) == 4
    after = [*kernels, measured(default, 2, 9.0)]
    (draft,), _ = parts(Tune().decide(on_device(after, [compiled(batch)])))
    assert values_of(draft) == (8, 4)
    refused = compiled(batch, lambda one: "too many" if one.tunables["A"] == 8 else "")
    (other,), _ = parts(Tune().decide(on_device(after, [refused])))
    assert values_of(other)[0] != 8


# What is compiled ahead

DEVICE = "// @tune A 1 2 4 8\n// @tune B 1 2 4 8\n__global__ void k() {}"


def on_device(kernels: list[KernelView], batches: list[CompiledBatch], left: int | None = 9) -> History:
    """Return the history of a run on an MI300, with what was compiled ahead for it."""
    return replace(history(kernels, TuneSettings(ahead=4), left), target="gfx942", compiled=batches)


def hip(key: str = "seed.a") -> KernelView:
    plain = kernel(key)
    return replace(plain, source=Source(Language.HIP, DEVICE))


def compiled(step: CompileAhead, refused: Callable[[Variant], str] = lambda _: "") -> CompiledBatch:
    """Answer a batch as a runner would; variants that are not refused have figures."""
    builds = [
        AheadBuild(refused=refused(one), figures={"vector": float(one.tunables["A"]), "store_bytes": 4.0})
        for one in step.variants
    ]
    return CompiledBatch(step.key, step.variants, True, "", tuple(builds))


def parts(steps: list[Step]) -> tuple[list[Draft], list[CompileAhead]]:
    return [one for one in steps if isinstance(one, Draft)], [one for one in steps if isinstance(one, CompileAhead)]


def test_the_default_is_measured_while_the_first_batch_is_compiled() -> None:
    (default,), (batch,) = parts(Tune().decide(on_device([hip()], [])))
    assert default.source.tunables == {"A": 1, "B": 1}
    assert batch.key == "tune.ahead0" and len(batch.variants) == 4
    assert len({tuple(one.tunables.items()) for one in batch.variants}) == 4


def test_nothing_is_measured_that_the_compiler_ruled_out() -> None:
    kernels, batches, sent = [hip()], list[CompiledBatch](), list[Draft]()
    refused = {(a, b) for a in (4, 8) for b in (1, 2, 4, 8)}
    for _ in range(40):
        steps = Tune().decide(on_device(kernels, batches))
        drafts, asked = parts(steps)
        if any(isinstance(step, Finish) for step in steps):
            break
        batches += [
            compiled(step, lambda one: "too many" if (one.tunables["A"], one.tunables["B"]) in refused else "")
            for step in asked
        ]
        sent += drafts
        kernels += [measured(draft, len(kernels) + n, 5.0 + n) for n, draft in enumerate(drafts)]
    tried = {(draft.source.tunables["A"], draft.source.tunables["B"]) for draft in sent}
    assert tried == {(a, b) for a in (1, 2) for b in (1, 2, 4, 8)}
    (finish,) = steps
    assert finish == Finish("All 8 configurations were measured. 8 more were ruled out by the compiler.")


def test_a_batch_that_is_being_compiled_does_not_hold_up_what_is_ready() -> None:
    _, (first,) = parts(Tune().decide(on_device([hip()], [])))
    done = compiled(first)
    default = measured(parts(Tune().decide(on_device([hip()], [])))[0][0], 1, 9.0)
    _, (second,) = parts(Tune().decide(on_device([hip(), default], [done])))
    open_batch = CompiledBatch(second.key, second.variants)
    drafts, asked = parts(Tune().decide(on_device([hip(), default], [done, open_batch])))
    assert not asked
    assert Variant(dict(drafts[0].source.tunables), ()) in first.variants


def test_where_nothing_compiles_the_search_goes_on_as_without() -> None:
    default = measured(parts(Tune().decide(on_device([hip()], [])))[0][0], 1, 9.0)
    failed = CompiledBatch("tune.ahead0", (), True, "no compiler for gfx942")
    drafts, asked = parts(Tune().decide(on_device([hip(), default], [failed])))
    plain = parts(Tune().decide(replace(on_device([hip(), default], []), settings=TuneSettings(ahead=0))))
    assert not asked and drafts == plain[0] and not plain[1]


def test_nothing_is_compiled_ahead_on_a_cpu_or_after_the_last_evaluation() -> None:
    assert not parts(Tune().decide(history([kernel("seed.a")], TuneSettings(ahead=4))))[1]
    assert not parts(Tune().decide(on_device([hip()], [], left=0)))[1]


def test_what_a_cancelled_batch_named_may_be_compiled_later() -> None:
    _, (first,) = parts(Tune().decide(on_device([hip()], [])))
    cancelled = CompiledBatch(first.key, first.variants, finished=True)
    _, (again,) = parts(Tune().decide(on_device([hip()], [cancelled])))
    assert again.key == "tune.ahead1" and len(again.variants) == 4
