"""Test the statistics of suites against scipy, numpy and values computed by hand."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from scipy import stats

from optimizer.queries import suite_statistics as own

NAN = math.nan


def array(rows: list[list[float]]) -> np.ndarray:
    return np.array(rows, dtype=float)


@pytest.mark.parametrize(("hits", "trials"), [(0, 5), (3, 10), (10, 10), (117, 250)])
def test_wilson_agrees_with_scipy(hits: int, trials: int) -> None:
    found = own.wilson(hits, trials)
    theirs = stats.binomtest(hits, trials).proportion_ci(method="wilson")
    assert found is not None
    assert (found.low, found.high) == pytest.approx((theirs.low, theirs.high), abs=1e-6)


def test_seeds_of_one_problem_do_not_narrow_the_interval() -> None:
    once = own.fast(array([[2.0], [0.5], [2.0], [0.0]]), 1.0)
    thrice = own.fast(array([[2.0] * 3, [0.5] * 3, [2.0] * 3, [0.0] * 3]), 1.0)
    assert once == thrice
    assert once is not None
    assert once.value == 0.5


def test_fast_p_is_the_share_above_the_threshold_computed_by_hand() -> None:
    scores = array([[3.0, 1.5], [0.9, 1.1], [0.0, 0.0], [NAN, NAN]])
    values = [round(one.value, 6) for one in own.fast_curve(scores, [0, 1, 2])]
    # Three problems count; the fourth was not run. Correct: 1, 1, 0. Above 1: 1, 1/2, 0. Above 2: 1/2, 0, 0.
    assert values == [round(2 / 3, 6), 0.5, round(0.5 / 3, 6)]


def test_fast_p_counts_strictly_faster_kernels_as_kernelbench_does() -> None:
    found = own.fast(array([[1.0], [1.0001]]), 1.0)
    assert found is not None
    assert found.value == 0.5


def test_nothing_to_count_gives_no_figure() -> None:
    empty = array([[NAN, NAN]])
    assert own.success(empty) is None
    assert own.geometric_mean(empty) is None
    assert own.median_cost([]) is None


def test_geometric_mean_agrees_with_scipy_and_leaves_failures_out_or_counts_them_as_one() -> None:
    scores = array([[2.0], [8.0], [0.0]])
    correct, kept = own.geometric_mean(scores), own.geometric_mean(scores, missing=1.0)
    assert correct is not None
    assert kept is not None
    assert correct.value == pytest.approx(stats.gmean([2, 8]))
    assert kept.value == pytest.approx(stats.gmean([2, 8, 1]))


def test_bootstrap_interval_agrees_with_scipy() -> None:
    rng = np.random.default_rng(5)
    values = rng.lognormal(0.4, 0.5, size=60)
    found = own.geometric_mean(values[:, None])
    theirs = stats.bootstrap((np.log(values),), np.mean, n_resamples=9999, method="percentile", rng=rng)
    assert found is not None
    expected = np.exp([theirs.confidence_interval.low, theirs.confidence_interval.high])
    assert (found.low, found.high) == pytest.approx(tuple(expected), rel=0.03)


def test_holm_agrees_with_the_example_computed_by_hand() -> None:
    # Sorted: 0.01·4, 0.02·3 = 0.06, 0.03·2 = 0.06 (not smaller than before), 0.5·1.
    assert own.holm([0.03, 0.01, 0.5, 0.02]) == pytest.approx([0.06, 0.04, 0.5, 0.06])
    assert own.holm([0.9, 0.8]) == [1.0, 1.0]


def test_a_clear_difference_is_shown_with_its_size() -> None:
    rng = np.random.default_rng(1)
    slow = rng.lognormal(0.3, 0.4, size=(40, 3))
    fast = slow * rng.lognormal(math.log(1.5), 0.1, size=(40, 3))
    (found,) = own.compare({"stark": fast, "sampling": slow})
    assert found.shows == "stark"
    assert found.ratio is not None
    assert found.ratio.value == pytest.approx(1.5, rel=0.05)
    assert "stark is 1." in found.words


def test_equal_configurations_show_a_difference_in_at_most_one_campaign_of_twenty() -> None:
    rng, shown = np.random.default_rng(2), 0
    for _ in range(200):
        scores = {name: rng.lognormal(0.3, 0.4, size=(30, 1)) for name in ("a", "b", "c", "d")}
        shown += any(one.shows for one in own.compare(scores))
    # Six comparisons each: without the correction more than a quarter of the campaigns would show one. At a true
    # level of 5 %, more than 20 of 200 have a probability below 0.003.
    assert shown <= 20


def test_paired_p_values_agree_with_a_permutation_test() -> None:
    rng = np.random.default_rng(3)
    first = rng.lognormal(0.2, 0.4, size=(25, 1))
    second = first * rng.lognormal(-0.08, 0.2, size=(25, 1))
    (found,) = own.compare({"a": first, "b": second})
    logs = np.log(first / second).ravel()
    theirs = stats.permutation_test(
        (logs,), np.mean, permutation_type="samples", vectorized=True, n_resamples=20_000, rng=rng
    )
    assert found.p == pytest.approx(theirs.pvalue, abs=0.03)


def test_four_problems_never_show_a_difference() -> None:
    (found,) = own.compare({"a": array([[4.0]] * 4), "b": array([[1.0]] * 4)})
    assert found.p == 0.125
    assert found.words == "No difference shown."


def test_only_problems_that_count_for_both_are_compared() -> None:
    first = array([[2.0], [2.0], [NAN], [0.0]])
    second = array([[1.0], [NAN], [1.0], [2.0]])
    (found,) = own.compare({"a": first, "b": second})
    assert found.problems == 2
    assert found.ratio is not None
    # The failure counts as 1, because people then keep the baseline: ratios 2 and 1/2.
    assert found.ratio.value == pytest.approx(1.0)


def test_the_order_of_names_only_inverts_the_ratio() -> None:
    rng = np.random.default_rng(4)
    scores = {"a": rng.lognormal(0.5, 0.2, (20, 2)), "b": rng.lognormal(0.0, 0.2, (20, 2))}
    (one,) = own.compare(scores)
    (other,) = own.compare(dict(reversed(scores.items())))
    assert one.ratio is not None
    assert other.ratio is not None
    assert one.ratio.value == pytest.approx(1 / other.ratio.value)
    assert one.shows == other.shows == "a"


def test_cost_to_reach_counts_runs_that_never_did_as_infinite() -> None:
    found = own.median_cost([1.0, 2.0, None, 3.0, 4.0])
    assert found is not None
    assert found.value == 3.0
    lost = own.median_cost([1.0, None, None])
    assert lost is not None
    assert lost.value == math.inf


def test_band_is_the_range_of_seeds_around_their_geometric_mean() -> None:
    # Seed 0: problem A reaches 4 at 2, problem B never anything: √(4·1) = 2. Seed 1: 1 throughout.
    found = own.band([[[(2, 4.0)], []], [[], []]], at=[1, 2])
    assert found.low == (1.0, 1.0)
    assert found.high == pytest.approx((1.0, 2.0))
    assert found.middle == pytest.approx((1.0, math.sqrt(2)))


def test_statistics_never_fail_on_hostile_shapes() -> None:
    rng = random.Random(0)
    for _ in range(100):
        shape = rng.randint(0, 4), rng.randint(1, 3)
        scores = np.array([[rng.choice([0.0, NAN, 0.5, 2.0]) for _ in range(shape[1])] for _ in range(shape[0])])
        scores = scores.reshape(shape)
        own.success(scores)
        own.geometric_mean(scores, 1.0)
        own.compare({"a": scores, "b": scores})
