"""Measure how the time of reading a text grows with the text's length."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable
from contextlib import suppress

# Linear algorithms with hash tables and sorting stay below this exponent, quadratic ones are near 2.
MOST_GROWTH = 1.2
FACTOR = 8
# Faster than this is fast enough, and too fast to be measured.
NEGLIGIBLE_S = 0.02
ATTEMPTS = 4
# A neighbour that fills the caches makes the longer text slower than its length does.
MEASUREMENTS = 8
# No neighbour makes a linear reading grow like this twice in a row for seconds.
CLEAR_GROWTH, CLEAR_AFTER_S = 1.6, 2.0
# A longer reading is not disturbed enough to be worth a repetition.
LONG_S = 1.0
# In a shorter reading what outgrows the processor's caches weighs: parsing 32 kB takes twelve times as long as 4 kB.
SHORT_S = 0.1

Reader = Callable[[str], object]
AT_ONCE = 0.0
"""For controls: they are clear however little time was spent."""


def growth(
    read: Reader, text_of: Callable[[int], str], characters: int, clear_after_s: float = CLEAR_AFTER_S
) -> float:
    """Return the exponent of time over length, from `characters` to FACTOR times as many; 0 where neither takes time.

    Refused texts count: a refusal may cost as much as an answer. Processor time is measured, since a busy machine
    makes everything wait, and measured again where it seems to grow too fast, with texts twice as long if these are
    read quickly. The smallest exponent counts. A control, which is to be found, is clear after two measurements.
    """
    found, started, least_s = math.inf, time.process_time(), 0.0
    for number in range(MEASUREMENTS):
        exponent, long_s = exponent_of(read, text_of, characters)
        if long_s < least_s:
            break  # the longer text was refused for its length, which says nothing about shorter ones
        found = min(found, exponent)
        is_clear = bool(number) and found > CLEAR_GROWTH and time.process_time() - started > clear_after_s
        if found <= MOST_GROWTH or is_clear:
            break
        if long_s < SHORT_S:
            characters, least_s = 2 * characters, long_s
    return found


def exponent_of(read: Reader, text_of: Callable[[int], str], characters: int) -> tuple[float, float]:
    """Return the exponent, and the processor seconds of the longer text."""
    long = fastest(read, text_of(FACTOR * characters))
    if long < NEGLIGIBLE_S:
        return 0.0, long
    return math.log(long / max(fastest(read, text_of(characters)), 1e-6), FACTOR), long


def fastest(read: Reader, text: str) -> float:
    """Return the processor seconds of the fastest of a few attempts."""
    taken: list[float] = []
    while len(taken) < ATTEMPTS and sum(taken) < LONG_S:
        taken.append(seconds(read, text))
    return min(taken)


def seconds(read: Reader, text: str) -> float:
    """Return the processor seconds that one reading takes, without the search for garbage.

    That search looks at everything the process holds, which in a process of thousands of tests takes longer than a
    reading of 20 ms, and only longer texts make so many objects that it begins.
    """
    collected = gc.isenabled()
    gc.disable()
    started = time.process_time()
    try:
        with suppress(ValueError, RecursionError, SyntaxError, MemoryError):
            read(text)
        return time.process_time() - started
    finally:
        if collected:
            gc.enable()


def repeated(unit: str, before: str = "", after: str = "") -> Callable[[int], str]:
    """Return a function from a number of characters to a text of that length."""
    return lambda characters: before + unit * (characters // len(unit)) + after
