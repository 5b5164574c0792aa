"""Test properties of the statistics that every verdict rests on."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runners.harness.timing.noise import floor_of, resolved
from runners.harness.timing.sessions import Timings
from runners.harness.timing.statistics import (
    Interval,
    TimedRequest,
    clocks_agree,
    expansion,
    hidden_us_per_call,
    median_interval,
    quantile,
    speedup,
    student_t,
    unit_log_ratio,
    usable,
    verdict,
)
from runners.job import Verdict
from runners.targets import target

times = st.floats(0.01, 1e6)
logs = st.floats(-3, 3)
units = st.lists(st.lists(logs, min_size=1, max_size=8), min_size=1, max_size=4)
cases = st.lists(units, min_size=1, max_size=3)


def rng() -> random.Random:
    return random.Random(5)


@settings(max_examples=50, deadline=None)
@given(cases)
def test_interval_holds_its_median(seen: list[list[list[float]]]) -> None:
    found = speedup(seen, rng(), resamples=60)
    assert 0 <= found.low <= found.median <= found.high < math.inf


def test_students_t_is_that_of_the_tables() -> None:
    wanted = {1: 12.706, 2: 4.303, 3: 3.182, 5: 2.571, 10: 2.228, 30: 2.042, math.inf: 1.960}
    for freedom, quantile_of_it in wanted.items():
        assert student_t(freedom) == pytest.approx(quantile_of_it, rel=0.008)


def test_bounds_of_many_alike_sessions_stay_where_the_bootstrap_puts_them() -> None:
    source = random.Random(3)
    assert 1.0 < expansion([[[source.gauss(0, 1) for _ in range(40)] for _ in range(5)]]) < 1.02


def test_where_sessions_differ_they_are_counted_and_not_their_units() -> None:
    apart = [[[shift + 0.001 * n for n in range(8)] for shift in (0.0, 0.1, 0.2)]]
    assert expansion(apart) == pytest.approx(4.303 / 1.960 * math.sqrt(3 / 2), rel=1e-3)


@settings(max_examples=50, deadline=None)
@given(cases)
def test_swapping_the_sides_inverts_the_speedup(seen: list[list[list[float]]]) -> None:
    swapped = [[[-value for value in session] for session in case] for case in seen]
    forwards, backwards = speedup(seen, rng(), 40), speedup(swapped, rng(), 40)
    assert forwards.median == pytest.approx(1 / backwards.median)


@given(times, st.floats(0.5, 2), st.floats(-0.2, 0.2))
def test_linear_drift_of_the_machine_cancels_in_a_palindrome(base: float, ratio: float, drift: float) -> None:
    clock = [math.exp(drift * position) for position in range(4)]
    candidate = [base * clock[0], base * clock[3]]
    opponent = [base * ratio * clock[1], base * ratio * clock[2]]
    assert unit_log_ratio(opponent, candidate) == pytest.approx(math.log(ratio), abs=1e-9)


@given(st.lists(logs, min_size=1, max_size=30), st.floats(0, 1))
def test_quantile_lies_between_the_extremes(values: list[float], share: float) -> None:
    ordered = sorted(values)
    assert ordered[0] <= quantile(ordered, share) <= ordered[-1]


@pytest.mark.parametrize(
    ("interval", "said"),
    [
        (Interval(1.3, 1.06, 1.5), Verdict.FASTER),
        (Interval(1.3, 1.04, 1.5), Verdict.SAME),
        (Interval(0.8, 0.7, 0.94), Verdict.SLOWER),
        (Interval(0.8, 0.7, 0.96), Verdict.SAME),
        (Interval(1.0, 0.5, 2.0), Verdict.SAME),
    ],
)
def test_verdict_needs_the_whole_interval_beyond_the_floor(interval: Interval, said: Verdict) -> None:
    assert verdict(interval, floor=1.05) is said


def test_noise_floor_covers_all_comparisons_but_one_outlier() -> None:
    ratios = [0.998, 1.004, 1.001, 0.995, 1.6, 1.003]
    floor = floor_of(ratios)
    assert 1 / 0.995 < floor < 1.02


def test_noise_floor_is_wide_where_two_comparisons_stray() -> None:
    assert floor_of([1.0, 1.0, 1.0, 1.0, 1.2, 0.8]) > 1.2


def test_noise_floor_of_a_quiet_machine_is_one_percent() -> None:
    assert floor_of([1.0] * 8) == 1.01


@pytest.mark.parametrize(
    ("sizes", "between", "within"),
    [([12] * 3, 0.0, 0.05), ([1] * 3, 0.05, 0.1), ([4, 2, 2], 0.02, 0.01), ([8] * 3, 0.02, 0.01), ([4], 0.0, 0.02)],
)
def test_interval_contains_the_truth_about_as_often_as_it_says(
    sizes: list[int], between: float, within: float
) -> None:
    source, hits = random.Random(11), 0
    for _ in range(150):
        sessions = []
        for size in sizes:
            shift = source.gauss(0.2, between)
            sessions.append([source.gauss(shift, within) for _ in range(size)])
        found = speedup([sessions], source, resamples=200)
        hits += found.low <= math.exp(0.2) <= found.high
    assert hits >= 0.9 * 150


@pytest.mark.parametrize(
    ("sessions", "cases", "of_process", "of_case"),
    [(3, 3, 0.01, 0.0), (3, 5, 0.01, 0.0), (5, 5, 0.01, 0.0), (3, 5, 0.0, 0.01), (3, 5, 0.0, 0.0)],
)
def test_a_process_that_differs_in_all_cases_is_not_averaged_out_by_many_cases(
    sessions: int, cases: int, of_process: float, of_case: float
) -> None:
    source, hits, repeats = random.Random(7), 0, 100
    for _ in range(repeats):
        processes = [source.gauss(0.2, of_process) for _ in range(sessions)]
        shifts = [[source.gauss(shift, of_case) for shift in processes] for _ in range(cases)]
        seen = [[[source.gauss(shift, 0.004) for _ in range(4)] for shift in case] for case in shifts]
        found = speedup(seen, source, resamples=150)
        hits += found.low <= math.exp(0.2) <= found.high
    assert hits >= 0.9 * repeats


def test_more_spread_between_sessions_widens_the_interval() -> None:
    tight = [[0.1 + 0.001 * n for n in range(8)]] * 3
    spread = [[shift + 0.001 * n for n in range(8)] for shift in (0.0, 0.1, 0.2)]
    widths = [found.high / found.low for found in (speedup([u], rng()) for u in (tight, spread))]
    assert widths[1] > widths[0] * 1.05


def test_median_time_has_an_interval_in_its_own_unit() -> None:
    found = median_interval([[100.0, 101.0, 102.0], [99.0, 100.0, 101.0]], rng())
    assert 98 <= found.low <= found.median == 100.5 <= found.high <= 103


@pytest.mark.parametrize("samples", [[], [0.0], [-1.0], [math.nan], [math.inf], [1.0, 0.0]])
def test_times_that_can_not_be_are_not_usable(samples: list[float]) -> None:
    assert not usable(samples)


def requests(inside_us: float, hidden_us: float, overhead_us: float, noise: random.Random) -> list[TimedRequest]:
    made = []
    for calls in (4, 8) * 6:
        late = noise.expovariate(1 / 20) + (2000 if noise.random() < 0.3 else 0)
        made.append(TimedRequest(calls, calls * inside_us, calls * (inside_us + hidden_us) + overhead_us + late))
    return made


@pytest.mark.parametrize("seed", range(20))
def test_honest_clock_is_believed_under_other_load(seed: int) -> None:
    noise = random.Random(seed)
    assert clocks_agree(requests(200, 0, 90, noise), requests(400, 0, 90, noise))


@pytest.mark.parametrize("seed", range(20))
def test_clock_that_shows_a_fraction_of_the_time_is_not_believed(seed: int) -> None:
    noise = random.Random(seed)
    slowed = requests(20, 980, 90, noise)
    assert not clocks_agree(slowed, requests(400, 0, 90, noise))
    assert hidden_us_per_call(slowed) > 500


@pytest.mark.parametrize(
    ("key", "times_us", "floor"),
    [("cpu", (5.0,), 1.1), ("cpu", (10.0, 1e9), 1.05**0.5), ("cpu", (1000.0,), 1.01), ("mi300x", (5.0,), 1.01)],
)
def test_floor_is_no_narrower_than_half_a_microsecond_of_a_call_on_a_cpu(
    key: str, times_us: tuple[float, ...], floor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    timings = Timings({str(time_us): [] for time_us in times_us})
    monkeypatch.setattr(Timings, "samples", lambda _self, case, _side, *_: [float(case)] * 3)
    assert resolved(1.01, timings, target(key)) == pytest.approx(floor, rel=1e-6)


def test_clock_of_single_calls_that_hides_time_is_not_believed() -> None:
    honest = [TimedRequest(1, 5000.0, 5100.0) for _ in range(8)]
    hiding = [TimedRequest(1, 100.0, 5100.0) for _ in range(8)]
    assert clocks_agree(honest, honest)
    assert not clocks_agree(hiding, honest)
