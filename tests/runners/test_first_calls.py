"""Test who makes first calls at the same time, and what is done once, or for memory's sake, around timing."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from runners.candidate import module, setups
from runners.candidate.entry import Setup
from runners.candidate.module import ModuleCallee
from runners.errors import CandidateFailure
from runners.harness.profiling import launches
from runners.harness.timing import first_calls
from runners.harness.verdict import checks as checks_module
from runners.harness.verdict.checks import CaseOutcome, Checks
from runners.job import Limits, Status
from runners.problems.base import Case, Purpose

ROOM = 100


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Record the names of sides by round of calls. One call takes ROOM bytes of an arena."""
    rounds: list[list[str]] = []

    def together(calls: list[Any], *_: Any) -> None:
        rounds.append([side.name for side, _ in calls])

    staged = SimpleNamespace(message={})
    monkeypatch.setattr(first_calls, "arena_bytes", lambda content, calls: ROOM * calls)
    monkeypatch.setattr(first_calls, "case_layout", lambda problem, content: {})
    monkeypatch.setattr(first_calls, "stage", lambda arena, contents, rng: [staged] * len(contents))
    monkeypatch.setattr(first_calls, "_make_together", together)
    monkeypatch.setattr(first_calls, "_first_call", lambda side, *_: rounds.append([side.name]))
    return rounds


def sides(room_bytes: int, *, shared: bool) -> list[Any]:
    """Return the sides of two sessions, which share an arena within each or have one each."""
    found = []
    for session in "12":
        of_session = SimpleNamespace(size_bytes=room_bytes, frugal=False)
        for name in ("candidate", "baseline"):
            arena = of_session if shared else SimpleNamespace(size_bytes=room_bytes, frugal=False)
            found.append(SimpleNamespace(name=f"{name} {session}", arena=arena))
    return found


def make(of: list[Any], *, at_once: bool) -> None:
    problem: Any = None
    contents: Any = [SimpleNamespace(case=SimpleNamespace(name="small")) for _ in of]
    first_calls.make_first_calls(problem, of, contents, 1.0, random.Random(1), at_once=at_once)


EVERYBODY = ["candidate 1", "baseline 1", "candidate 2", "baseline 2"]


@pytest.mark.parametrize(
    ("room_bytes", "shared", "at_once", "rounds"),
    [
        (ROOM, False, True, [EVERYBODY]),
        (2 * ROOM, True, True, [EVERYBODY]),
        (ROOM, True, True, [["candidate 1", "candidate 2"], ["baseline 1", "baseline 2"]]),
        (2 * ROOM, True, False, [[name] for name in EVERYBODY]),
    ],
)
def test_sides_call_at_the_same_time_as_far_as_their_arenas_have_room(
    room_bytes: int, shared: bool, at_once: bool, rounds: list[list[str]], called: list[list[str]]
) -> None:
    make(sides(room_bytes, shared=shared), at_once=at_once)
    assert [sorted(one) for one in called] == [sorted(one) for one in rounds]


def test_what_the_smallest_case_showed_is_not_checked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, list[int]]] = []

    def check(checks: Checks, process: Any, outcome: Any, contents: Any) -> None:
        checks.outcomes += [] if outcome in checks.outcomes else [outcome]
        seen.append((outcome.case.name, contents))

    monkeypatch.setattr(Checks, "_check", check)
    nobody: Any = None
    checks = Checks(nobody, nobody, "cpu", 1, Limits(), random.Random(1))
    small, large = (SimpleNamespace(case=SimpleNamespace(name=name)) for name in ("small", "large"))
    contents: Any = [(small, [1, 2, 3]), (large, [4, 5])]
    checks.contents = contents
    checks.smallest(nobody)
    checks.all(nobody, lambda text: None)
    assert seen == [("small", [1]), ("small", [2, 3]), ("large", [4, 5])]


@pytest.mark.parametrize(
    ("on_gpu", "held_bytes", "given_back"), [(True, 1 << 30, 3), (True, 1 << 20, 1), (False, 1 << 30, 0)]
)
def test_large_calls_leave_the_device_to_the_oracle_that_judges_them(
    on_gpu: bool, held_bytes: int, given_back: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    story: list[str] = []

    def told(word: str, answer: Any) -> Any:
        story.append(word)
        return answer

    judgement = SimpleNamespace(error="", max_abs_error=0.0, max_rel_error=0.0)
    oracle: Any = SimpleNamespace(on_gpu=on_gpu, keep=lambda *_: [], judge=lambda *_: told("judge", judgement))
    process: Any = SimpleNamespace(
        arena=SimpleNamespace(same=lambda _: True),
        set_case=lambda *_: None,
        run=lambda *_: None,
        store=lambda *_: None,
        release=lambda: told("release", held_bytes),
    )
    call = SimpleNamespace(message={}, outputs=[], content=SimpleNamespace(outputs=[]))
    monkeypatch.setattr(checks_module, "stage", lambda arena, contents, rng: [call] * len(contents))
    monkeypatch.setattr(checks_module, "check_untouched", lambda *_: None)
    monkeypatch.setattr(checks_module, "case_layout", lambda *_: {})
    nobody: Any = None
    checks = Checks(nobody, oracle, "sm_90", 1, Limits(), random.Random(1))
    content: Any = SimpleNamespace(buffer_sizes=[4], distribution="normal")
    outcome = CaseOutcome(Case("case", {}, Purpose.TEST), hidden=False)
    checks.contents = [(outcome, [content] * 3)]
    checks.all(process, lambda text: None)
    assert (story.count("judge"), story.count("release")) == (3, given_back)
    assert not on_gpu or story[:2] == ["release", "judge"]


def test_a_side_that_answers_no_more_takes_no_other_sides_replay_away(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def side(name: str, *, hangs: bool) -> Any:
        def release() -> int:
            asked.append(name)
            if hangs:
                raise CandidateFailure(Status.TIMEOUT, "no answer")
            return 0

        return SimpleNamespace(name=name, release=release, replies=lambda op, details, timeout_s: [2.0, 4.0])

    monkeypatch.setattr(launches, "laid", lambda *_: {})
    oracle = SimpleNamespace(reset=lambda: None)
    cases = [SimpleNamespace(name=name) for name in ("small", "large")]
    bench: Any = SimpleNamespace(cases=cases, oracle=oracle, limits=Limits())
    sides = [side("candidate", hangs=True), side("baseline", hangs=False), side("parent", hangs=False)]
    found = launches.launches(bench, sides)["graph_us"]
    assert found == {name: {"baseline": 3.0, "parent": 3.0} for name in ("small", "large")}
    assert asked.count("candidate") == 1 and len(sides) == 3


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[ModuleCallee, list[str]]:
    """Return a callee whose setups hold 40 bytes of weights each, and the setups whose models it has built."""
    names: list[str] = []

    def entry(namespace: Any, setup: Setup, device: str) -> str:
        names.append(setup.wanted)
        return f"model of {setup.wanted}"

    monkeypatch.setattr(setups, "read", lambda folder, name: Setup(name, state={"w": torch.zeros(10)}))
    monkeypatch.setattr(module, "entry_of", entry)
    path, arena = tmp_path / "kernel.py", SimpleNamespace(device="cpu")
    path.write_text("")
    given: Any = arena
    return ModuleCallee(str(path), given, ""), names


@pytest.mark.parametrize(("kept_bytes", "models"), [(80, ["a", "b"]), (79, ["a", "b", "a", "b"])])
def test_models_of_other_cases_are_kept_while_their_weights_are_small(
    kept_bytes: int, models: list[str], built: tuple[ModuleCallee, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    callee, names = built
    monkeypatch.setattr(module, "KEPT_STATE_BYTES", kept_bytes)
    for name in "abab":
        callee.set_case({"setup": name})
        assert callee._function == f"model of {name}"
    assert names == models
