"""Test `python -m runners mcp` and the verbs behind it, by the official client."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import StdioServerParameters
from mcp.client.client import Client

from runners.job import CaseResult, Effort, JobResult, JobSpec, Speedup, Status, Verdict
from runners.mcp.server import server_of
from runners.problems import load, open_bundle
from runners.verbs import knowledge
from runners.verbs.describing import hidden_cases
from runners.verbs.evaluations import MAX_WAITING
from runners.verbs.service import RECORD, KernelNamed, Service
from runners.verbs.verdicts import verdict_of
from tests.mcp_client import answer, refusal
from tests.runners import kernels
from tests.runners.command_line import command

ROOT = Path(__file__).parents[2]
VERBS = {"list_problems", "read_problem", "search_knowledge", "diff", "build", "evaluate", "profile", "read_verdict",
         "cancel", "submit", "list_kernels", "read_best"}  # fmt: skip


class FakeHarness:
    """Answer at once, or when `gate` opens. A kernel that says `wrong` is incorrect; others get `speeds` in turn."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.speeds = [1.5]
        self.seen: list[JobSpec] = []

    def __call__(self, spec: JobSpec, *, cancel: Any = None, on_progress: Any = None) -> JobResult:
        self.seen.append(spec)
        on_progress("timing", "2 of 5")
        while not self.gate.wait(0.01):
            if cancel():
                return JobResult("job", Status.INFRA_ERROR, reasons=["cancelled"])
        if "wrong" in spec.candidate.text:
            return JobResult("job", Status.INCORRECT, reasons=["element 3 is 1, expected 2"])
        times = self.speeds.pop(0) if len(self.speeds) > 1 else self.speeds[0]
        ratio = Speedup(times, times * 0.99, times * 1.01, "torch_eager", 1.01, Verdict.FASTER)
        case = CaseResult("rows", True, candidate_us=10 / times, samples={"candidate": [1.0] * 5000})
        return JobResult("job", Status.CORRECT, speedup=ratio, verdict=Verdict.FASTER, cases=[case])


@pytest.fixture
def harness() -> FakeHarness:
    return FakeHarness()


@pytest.fixture
def service(tmp_path: Path, harness: FakeHarness) -> Iterator[Service]:
    (tmp_path / "kernel.cpp").write_text("// a kernel\n")
    (tmp_path / "wrong.cpp").write_text("// wrong\n")
    made = Service(tmp_path, evaluate=harness)
    yield made
    harness.gate.set()
    made.close()


@asynccontextmanager
async def client_of(service: Service) -> AsyncIterator[Client]:
    async with Client(server_of(service)) as client:
        yield client


async def test_every_verb_is_a_tool_with_a_description(service: Service) -> None:
    async with client_of(service) as client:
        tools = (await client.list_tools()).tools
    assert {tool.name for tool in tools} == VERBS
    assert all(tool.description for tool in tools)


async def test_agent_reads_the_problem_and_the_notes_on_it(service: Service) -> None:
    async with client_of(service) as client:
        names = {one["name"] for one in await answer(client, "list_problems")}
        problem = await answer(client, "read_problem", problem="softmax_rows")
        notes = await answer(client, "search_knowledge", query="online softmax", limit=2)
    assert "softmax_rows" in names
    assert "softmax_rows(const float* x" in problem["prototypes"]["cpp"]
    assert problem["timed_cases"][0]["roofline_us"] is None or problem["timed_cases"][0]["roofline_us"] > 0
    assert len(notes) == 2


async def test_hidden_cases_are_counted_and_not_shown(service: Service) -> None:
    async with client_of(service) as client:
        problem = await answer(client, "read_problem", problem="softmax_rows")
    assert problem["hidden_cases"] > 0
    hidden = hidden_cases(open_bundle(load("softmax_rows")), "cpu")
    shown = {case["name"] for case in problem["timed_cases"] + problem["tested_cases"]}
    assert hidden.isdisjoint(shown)


def test_hidden_case_is_neither_named_nor_described_where_it_fails() -> None:
    cases = [CaseResult("7x33", True), CaseResult("513x17", False, "element (512, 3) is 0, expected 1")]
    reason = "candidate, tests: 513x17: element (512, 3) is 0, expected 1 (inputs: adversarial)"
    result = JobResult("job", Status.INCORRECT, reasons=[reason], cases=cases)
    problem = open_bundle(load("softmax_rows"))
    told = json.dumps(verdict_of(result, hidden_cases(problem, "cpu")))
    assert "513" not in told and "512" not in told
    assert "not shown" in told and "7x33" in told


async def test_verdict_comes_without_samples(service: Service) -> None:
    async with client_of(service) as client:
        found = await answer(client, "evaluate", problem="softmax_rows", file="kernel.cpp", effort="quick")
    assert (found["state"], found["status"], found["verdict"]) == ("done", "correct", "faster")
    assert len(json.dumps(found)) < 2000


async def test_long_evaluation_returns_a_name_to_ask_again_with(service: Service, harness: FakeHarness) -> None:
    harness.gate.clear()
    async with client_of(service) as client:
        started = await answer(client, "evaluate", problem="softmax_rows", file="kernel.cpp", wait_s=0)
        assert started["state"] == "running"
        harness.gate.set()
        found = await answer(client, "read_verdict", evaluation=started["evaluation"], wait_s=10)
    assert found["status"] == "correct"


async def test_stage_is_told_while_an_evaluation_runs(service: Service, harness: FakeHarness) -> None:
    harness.gate.clear()
    async with client_of(service) as client:
        found = await answer(client, "evaluate", problem="softmax_rows", file="kernel.cpp", wait_s=0.3)
    assert found["stage"] == "timing 2 of 5"


async def test_cancelled_evaluation_ends(service: Service, harness: FakeHarness) -> None:
    harness.gate.clear()
    async with client_of(service) as client:
        name = (await answer(client, "evaluate", problem="softmax_rows", file="kernel.cpp", wait_s=0))["evaluation"]
        await answer(client, "cancel", evaluation=name)
        assert (await answer(client, "read_verdict", evaluation=name, wait_s=10))["reasons"] == ["cancelled"]


async def test_agent_that_floods_the_machine_is_told_to_read_its_verdicts(
    service: Service, harness: FakeHarness
) -> None:
    harness.gate.clear()
    async with client_of(service) as client:
        asked = {"problem": "softmax_rows", "file": "kernel.cpp", "wait_s": 0}
        for _ in range(MAX_WAITING + 1):
            await answer(client, "evaluate", **asked)
        assert "read their verdicts first" in await refusal(client, "evaluate", **asked)
        harness.gate.set()
        await answer(client, "read_verdict", evaluation="e5", wait_s=10)
        await answer(client, "evaluate", **asked)


async def test_submitted_kernels_are_kept_with_parents_verdicts_and_hypotheses(
    service: Service, harness: FakeHarness, tmp_path: Path
) -> None:
    harness.speeds = [1.2, 2.0]
    async with client_of(service) as client:
        given = {"problem": "softmax_rows", "file": "kernel.cpp"}
        first = await answer(client, "submit", **given, title="First")
        second = await answer(client, "submit", **given, title="Wider", parents=[first["kernel"]],
                              expected="Vectors help.", predicted_min=10.0)  # fmt: skip
        wrong = await answer(client, "submit", problem="softmax_rows", file="wrong.cpp", title="Wrong")
        listed = await answer(client, "list_kernels", problem="softmax_rows")
        best = await answer(client, "read_best", problem="softmax_rows")
    assert [one["kernel"] for one in listed] == [first["kernel"], second["kernel"], wrong["kernel"]]
    assert (best["kernel"], best["source"]) == (second["kernel"], "// a kernel\n")
    notes = json.loads((tmp_path / RECORD / "softmax_rows-cpu" / "0002.json").read_text())
    assert (notes["parents"], notes["hypothesis"]["predicted_min"]) == (["0001.cpp"], 10.0)
    assert notes["reported"]["time_us"] == pytest.approx(5.0)
    assert listed[2]["status"] == "incorrect"
    # Timed in turns with its parent, so that the verdict is between the two.
    assert harness.seen[1].parent is not None


async def test_kernel_is_kept_even_if_nobody_asks_for_its_verdict(
    service: Service, harness: FakeHarness, tmp_path: Path
) -> None:
    harness.gate.clear()
    async with client_of(service) as client:
        await answer(client, "submit", problem="softmax_rows", file="kernel.cpp", title="Left alone", wait_s=0)
    harness.gate.set()
    deadline = time.monotonic() + 10
    while not (kept := list((tmp_path / RECORD).rglob("*.cpp"))) and time.monotonic() < deadline:
        await asyncio.sleep(0.01)
    assert [path.name for path in kept] == ["0001.cpp"]


@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        ("evaluate", {"problem": "softmax_rows"}, "one of the two"),
        ("evaluate", {"problem": "softmax_rows", "file": "a.cpp", "source": "b"}, "one of the two"),
        ("evaluate", {"problem": "softmax_rows", "source": "b"}, "Name the language"),
        ("evaluate", {"problem": "softmax_rows", "file": "../../etc/passwd"}, "not below"),
        ("evaluate", {"problem": "softmax_rows", "file": "nowhere.cpp"}, "No such file"),
        ("evaluate", {"problem": "nonsense", "file": "kernel.cpp"}, "neither a shipped problem"),
        ("evaluate", {"problem": "softmax_rows", "file": "kernel.cpp", "effort": "all"}, "There is no effort"),
        ("evaluate", {"problem": "softmax_rows", "file": "kernel.cpp", "wait_s": -1}, "greater than or equal"),
        ("evaluate", {"problem": "softmax_rows", "file": "kernel.cpp", "target": "abacus"}, "abacus"),
        ("read_verdict", {"evaluation": "e99"}, "There is no evaluation"),
        ("read_best", {"problem": "softmax_rows"}, "No correct kernel"),
        ("submit", {"problem": "softmax_rows", "file": "kernel.cpp", "title": "t", "parents": ["x"]}, "no kernel"),
    ],
)
async def test_what_cannot_be_done_is_said_in_words(
    service: Service, tool: str, arguments: dict[str, Any], words: str
) -> None:
    async with client_of(service) as client:
        assert words in await refusal(client, tool, **arguments)


async def test_link_out_of_the_folder_is_not_followed(service: Service, tmp_path: Path) -> None:
    (tmp_path / "link.cpp").symlink_to("/etc/passwd")
    async with client_of(service) as client:
        assert "not below" in await refusal(client, "diff", before="kernel.cpp", after="link.cpp")


async def test_machine_without_the_pages_says_so(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knowledge, "LIBRARY", "no_such_package.knowledge")
    async with client_of(service) as client:
        assert "not installed" in await refusal(client, "search_knowledge", query="softmax")


async def test_diff_shows_what_changed(service: Service, tmp_path: Path) -> None:
    (tmp_path / "new.cpp").write_text("// another kernel\n")
    async with client_of(service) as client:
        assert "+// another kernel" in await answer(client, "diff", before="kernel.cpp", after="new.cpp")


def test_effort_full_is_the_default(service: Service, harness: FakeHarness) -> None:
    service.evaluate(KernelNamed("kernel.cpp"), "softmax_rows")
    assert harness.seen[0].effort is Effort.FULL


@pytest.mark.evaluates
async def test_official_client_gets_a_real_verdict_over_stdio(tmp_path: Path) -> None:
    (tmp_path / "kernel.cpp").write_text(kernels.HONEST)
    command = ["-m", "runners", "mcp", "--folder", str(tmp_path)]
    async with Client(StdioServerParameters(command=sys.executable, args=command, cwd=ROOT)) as client:
        built = await answer(client, "build", file="kernel.cpp", problem="softmax_rows")
        found = await answer(
            client, "evaluate", problem="softmax_rows", file="kernel.cpp", effort="check", wait_s=0
        )
        while found["state"] == "running":
            found = await answer(client, "read_verdict", evaluation=found["evaluation"], wait_s=60)
    assert built["ok"] is True
    assert found["status"] == "correct"


@pytest.mark.processes
def test_same_verbs_work_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.cpp").write_text("one\n")
    (tmp_path / "b.cpp").write_text("two\n")
    monkeypatch.chdir(tmp_path)
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    line = [sys.executable, "-m", "runners", "diff", "a.cpp", "b.cpp"]
    started = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert "+two" in started.stdout
    assert json.loads(command("problem", "softmax_rows").stdout)["name"] == "softmax_rows"
    assert "softmax" in command("knowledge", "online", "softmax").stdout.lower()
    empty = command("best", "--problem", "softmax_rows")
    assert (empty.returncode, "No correct kernel" in empty.stderr) == (2, True)
