"""Test that times which the process alone has seen are not ranked, with requests as they were measured on an H100.

`04_slower_clock.cu` divides its process's clocks by fifty. Quick timing has two units in one session, so that the
referee's interval reaches from nothing to two hundred and refutes no claim.
"""

from __future__ import annotations

import random

import pytest

from runners.errors import BASELINE, CANDIDATE, PARENT
from runners.harness.timing.measurements import CaseSession, Series, SideTimes
from runners.harness.timing.sessions import Timings
from runners.harness.timing.statistics import TimedRequest
from runners.harness.verdict.plausibility import claims_far_more
from runners.harness.verdict.report import speedup_of
from runners.problems.base import Case, Purpose

CASE = Case("128x2048", {}, Purpose.BENCHMARK)
# Calls, the process's time and the referee's time of each request, in µs.
Requests = list[tuple[int, float, float]]
SLOWED: Requests = [(5, 87.4, 6431.9), (5, 88.0, 6512.6), (10, 176.0, 12368.7), (10, 175.5, 12340.9)]
HONEST: Requests = [(5, 4373.3, 6387.4), (5, 4399.9, 6418.0), (10, 8796.8, 12442.8), (10, 8781.3, 12257.1)]
REFERENCE: Requests = [(5, 50.8, 2002.0), (5, 51.2, 2195.0), (10, 101.6, 3557.2), (10, 101.4, 3911.9)]
# An honest kernel that takes as long as the reference, beside other load.
LOADED: Requests = [(5, 50.8, 5002.0), (5, 51.2, 2195.0), (10, 101.6, 9557.2), (10, 101.4, 3911.9)]


def series(requests: Requests) -> Series:
    """Return the times of one side, two requests a unit."""
    each = [inside / calls for calls, inside, _ in requests]
    units = [each[n : n + 2] for n in range(0, len(each), 2)]
    return Series(each, units, [TimedRequest(*request) for request in requests])


def far_more_than_seen(opponent: str, **sides: Requests) -> bool:
    timings = Timings({CASE.name: [CaseSession(CASE, {name: SideTimes(series(of)) for name, of in sides.items()})]})
    rng = random.Random(1)
    return claims_far_more(timings, opponent, speedup_of(timings, opponent, opponent, 1.01, rng), rng)


@pytest.mark.parametrize("opponent", [BASELINE, PARENT])
def test_a_slowed_clock_is_not_believed_though_the_claim_is_below_the_baseline(opponent: str) -> None:
    assert far_more_than_seen(opponent, **{CANDIDATE: SLOWED, BASELINE: REFERENCE, PARENT: HONEST})


@pytest.mark.parametrize("candidate", [HONEST, REFERENCE, LOADED], ids=["slow", "like the reference", "under load"])
@pytest.mark.parametrize("opponent", [BASELINE, PARENT])
def test_an_honest_kernel_is_believed(candidate: Requests, opponent: str) -> None:
    assert not far_more_than_seen(opponent, **{CANDIDATE: candidate, BASELINE: REFERENCE, PARENT: HONEST})
