"""Try every regular expression of the product on texts that are made from it."""

from __future__ import annotations

import ast
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attack.pumping import hostile_texts

ROOT = Path(__file__).parents[2]
PACKAGES = ("optimizer", "runners", "kernelsci_site")
CHARACTERS, FACTOR = 6_000, 4
# Twice the growth of a linear search; a quadratic one grows 16 times.
MOST_GROWTH, NEGLIGIBLE_S, MOST_S = 8, 0.02, 1.0
# Expressions that take longer than linear time for some text, and why they never see that text.
BOUNDED = {
    r"([-+]?\d+(?:\.\d+)?)\s*%?\s*(?:to|–|-|…|\.\.)\s*([-+]?\d+(?:\.\d+)?)": "the first 200 characters of a gain",
    r"^(?P<rest>.*?)(?P<last>[A-Za-z0-9]+)$": "a search of 200 characters at most",
    r"(`{3,})suggestion[ \t]*": "matches a whole line",
    r"(?P<queue>[\w.-]{1,60})\s+(?P<digest>[0-9a-f]{64})(?:\s+(?P<name>[\w.@-]{1,100}))?": "matches a whole line",
    r"([a-z]+)(\d+)": "matches a whole word of a key",
    r"\d+_.+\.py": "matches a whole file name",
    r"(?:.*/)?level(\d+)/(\d+)_[^/]*$": "matches from the start of a problem's name",
    r"s_(waitcnt|nop|c?branch|setpc|swappc|getpc|endpgm|sleep|barrier|delay_alu|clause)|.*[@$]": "from the start",
    r"-?(0x[0-9a-f]+|\d+)$": "matches from the start of an operand",
    r"^([\w ]+?)\s*: (.*)$": "reads /proc/cpuinfo",
    r"\d+\.\d+": "reads the version of a compiler",
    r"\d+(?:\.\d+)+": "reads the version of a program",
    r"(\d+)\.": "reads the version of PostgreSQL",
}


class TooLongError(Exception):
    """Report a search that was broken off."""


def patterns() -> Iterator[re.Pattern[str]]:
    """Yield the expressions that are written as one string in the product's code."""
    found: set[tuple[str, int]] = set()
    for path in (path for name in PACKAGES for path in (ROOT / name).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("re.") and node.args:
                given = [*node.args[1:], *(word.value for word in node.keywords)]
                flags = sum(
                    getattr(re, name) for name in re.findall(r"\bre\.([A-Z]+)\b", " ".join(map(ast.unparse, given)))
                )
                if isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str):
                    found.add((node.args[0].value, flags))
    return (re.compile(*one) for one in sorted(found))


def search_s(pattern: re.Pattern[str], text: str) -> float:
    """Return the processor seconds that it takes to find everything, at most MOST_S."""
    started = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, MOST_S)
    try:
        for _ in pattern.finditer(text):
            pass
    except TooLongError:
        return MOST_S
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return time.process_time() - started


def slow_text(pattern: re.Pattern[str]) -> tuple[str, str, str] | None:
    """Return the beginning, unit and end of a text for which a search takes superlinear time, or None."""
    for before, unit, after in dict.fromkeys(hostile_texts(pattern)):
        count = CHARACTERS // len(unit)
        short_s = search_s(pattern, before + unit * count + after)
        if short_s < NEGLIGIBLE_S / MOST_GROWTH:
            continue
        long_s = min(search_s(pattern, before + unit * count * FACTOR + after) for _ in range(2))
        if long_s >= MOST_S or long_s > max(NEGLIGIBLE_S, MOST_GROWTH * short_s):
            return before, unit, after
    return None


@pytest.fixture
def _broken_off() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TooLongError

    previous = signal.signal(signal.SIGPROF, stop)
    yield
    signal.signal(signal.SIGPROF, previous)


@pytest.mark.long
@pytest.mark.usefixtures("_broken_off")
def test_no_expression_takes_superlinear_time_but_those_whose_texts_are_bounded() -> None:
    slow = {one.pattern: found for one in patterns() if (found := slow_text(one)) is not None}
    assert {pattern: found for pattern, found in slow.items() if pattern not in BOUNDED} == {}


@pytest.mark.usefixtures("_broken_off")
def test_control_an_expression_that_searches_to_the_end_again_and_again_is_found() -> None:
    assert slow_text(re.compile(r"\([^)]*x")) is not None
