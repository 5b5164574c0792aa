"""Make the first call of each side, in which it loads libraries, compiles and allocates: seconds with torch.

Sides make it at the same time if their arenas have room. Nothing of these calls is timed or judged.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from runners.errors import CandidateFailure
from runners.harness.memory.arena import Arena
from runners.harness.memory.contents import Content
from runners.harness.memory.staging import arena_bytes, case_layout, stage
from runners.harness.processes.participant import CandidateProcess
from runners.job import Status
from runners.problems.base import Case, Problem

SideContent = tuple[CandidateProcess, Content]
# A side and the message of its call.
FirstCall = tuple[CandidateProcess, dict[str, Any]]


def make_first_calls(
    problem: Problem,
    sides: Sequence[CandidateProcess],
    contents: Sequence[Content],
    call_s: float,
    rng: random.Random,
    *,
    at_once: bool,
) -> None:
    """Have each side take the contents' case and make one call of it, each with a content of its own.

    With `at_once` they do so at the same time, as far as their arenas have room: sides that share an arena which holds
    one call at a time take turns. Raises CandidateFailure with the case's name.
    """
    case, layout = contents[0].case, case_layout(problem, contents[0])
    mine = list(zip(sides, contents, strict=True))
    if at_once:
        for together in _rounds(mine):
            _make_together(_staged(together, rng), layout, case, call_s)
        return
    for side, content in mine:
        (call,) = stage(side.arena, [content], rng)
        _first_call(side, call.message, layout, case, call_s)
        if side.arena.frugal:
            side.release()  # the other side's results take as much memory


def _rounds(sides: Sequence[SideContent]) -> list[list[SideContent]]:
    """Return who calls at the same time: everybody, or one side of each arena if one lacks room for all its sides."""
    users = _by_arena(sides)
    if all(arena_bytes(alike[0][1], len(alike)) <= arena.size_bytes for arena, alike in users):
        return [list(sides)]
    most = max(len(alike) for _, alike in users)
    return [[alike[turn] for _, alike in users if turn < len(alike)] for turn in range(most)]


def _by_arena(sides: Sequence[SideContent]) -> list[tuple[Arena, list[SideContent]]]:
    """Return each arena with the sides that compute in it."""
    found: dict[int, tuple[Arena, list[SideContent]]] = {}
    for one in sides:
        found.setdefault(id(one[0].arena), (one[0].arena, []))[1].append(one)
    return list(found.values())


def _staged(sides: Sequence[SideContent], rng: random.Random) -> list[FirstCall]:
    """Lay the calls out. Sides that share an arena get places beside each other."""
    staged: list[FirstCall] = []
    for arena, alike in _by_arena(sides):
        calls = stage(arena, [content for _, content in alike], rng)
        staged += [(side, call.message) for (side, _), call in zip(alike, calls, strict=True)]
    return staged


def _make_together(calls: list[FirstCall], layout: dict[str, Any], case: Case, call_s: float) -> None:
    """Make calls at the same time. Running out of memory then proves nothing and is ignored."""
    with ThreadPoolExecutor(len(calls)) as threads:
        made = [
            threads.submit(_first_call, side, message, layout, case, call_s * len(calls)) for side, message in calls
        ]
    for one in made:
        failure = one.exception()
        if failure is not None and not (
            isinstance(failure, CandidateFailure) and failure.status is Status.OUT_OF_MEMORY
        ):
            raise failure


def _first_call(
    side: CandidateProcess, message: dict[str, Any], layout: dict[str, Any], case: Case, timeout_s: float
) -> None:
    try:
        side.set_case(layout, case)
        side.run([message], timeout_s)
    except CandidateFailure as failure:
        failure.case = failure.case or case.name
        raise
