"""Attack the machine from a problem's own code: KernelBench modules come from the internet and run on every machine."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runners.harness import evaluate
from runners.harness.oracle.confinement import shares_process
from runners.harness.oracle.parcel import unpack
from runners.harness.oracle.pool import pool
from runners.job import Effort, JobSpec, Language, ProblemBundle, Source, Status
from runners.problems import load, open_bundle
from runners.problems.base import Case, Purpose
from runners.problems.filters import examine
from runners.sandbox import SandboxLevel
from runners.sandbox.probe import why_not

ATTACK = """
given = {given!r}
escaped = []
for name, attack in given["attacks"].items():
    try:
        exec(attack)
    except Exception:
        continue
    escaped.append(name)
if escaped:
    raise AssertionError("ESCAPED: " + ", ".join(escaped))
"""
MODULE = """
import torch
import torch.nn as nn
{attack}
class Model(nn.Module):
    def forward(self, x, y):
        return x + 2 * y

def get_inputs():
    return [torch.rand(16, 8), torch.rand(16, 8)]

def get_init_inputs():
    return []
"""
ATTACKS = {
    "reads a secret": "open(given['secret']).read()",
    "reads /etc/passwd": "open('/etc/passwd').read()",
    "reads the environment of the worker": "assert given['canary'] in open('/proc/%d/environ' % given['pid']).read()",
    "inherits the worker's environment": "import os; os.environ['KS_CANARY']",
    "connects to the web server": "import socket; socket.create_connection(('127.0.0.1', given['port']), 2)",
    "writes beside itself": "open(given['folder'] + '/left', 'w')",
    "writes into the repository": "import runners; open(runners.__path__[0] + '/left', 'w')",
    "kills the worker": "import os; os.kill(given['pid'], 0)",
}


@pytest.fixture
def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Provide what the module is after, open to nobody else on this machine."""
    secret = tmp_path / "secret"
    secret.write_text("canary-77")
    monkeypatch.setenv("KS_CANARY", "canary-77")
    with (
        contextlib.closing(socket.create_server(("127.0.0.1", 0))) as server,
        subprocess.Popen(["sleep", "900"], env={**os.environ, "KS_CANARY": "canary-77"}) as victim,
    ):
        yield {
            "secret": str(secret), "folder": str(tmp_path), "canary": "canary-77", "pid": victim.pid,
            "port": server.getsockname()[1], "attacks": ATTACKS,
        }  # fmt: skip
        victim.kill()


def module(given: dict[str, Any]) -> Path:
    path = Path(given["folder"]) / "task.py"
    path.write_text(MODULE.format(attack=ATTACK.format(given=given)))
    return path


LEVELS = [SandboxLevel.BUBBLEWRAP, SandboxLevel.LANDLOCK]


@pytest.fixture(params=LEVELS, ids=str)
def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> SandboxLevel:
    found: SandboxLevel = request.param
    if reason := why_not(found):
        pytest.skip(reason)
    monkeypatch.setenv("KERNELSCI_SANDBOX", found.value)
    return found


@pytest.mark.processes
def test_module_that_is_examined_reaches_nothing(level: SandboxLevel, given: dict[str, Any]) -> None:
    found = examine(load(module(given)), timeout_s=300)
    assert found.failure is None, found.failure


@pytest.mark.processes
def test_control_what_the_module_does_reaches_everything_outside_a_sandbox(given: dict[str, Any]) -> None:
    """Run the module's attack alone, which needs no torch."""
    root = Path(__file__).parents[2]
    attack = Path(given["folder"]) / "attack.py"
    attack.write_text(ATTACK.format(given=given))
    control = subprocess.run(
        [sys.executable, str(attack)], cwd=root, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    (root / "runners" / "left").unlink(missing_ok=True)
    assert control.stderr.strip().endswith("ESCAPED: " + ", ".join(ATTACKS)), control.stderr


HONEST = """
import torch
class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        return x + 2 * y
"""


@pytest.mark.evaluates
def test_module_of_an_evaluation_reaches_nothing_and_is_evaluated_and_its_oracle_ends_with_its_process(
    level: SandboxLevel, given: dict[str, Any]
) -> None:
    bundle = load(module(given))
    assert not shares_process(bundle)
    found = evaluate(JobSpec("job", bundle, "cpu", Source(Language.PYTHON, HONEST), Effort.CHECK))
    assert found.status is Status.CORRECT, found.reasons
    oracle = pool().borrow(bundle)  # the evaluation's, which was given back
    assert oracle.alive and oracle.distributions(a_case(bundle))
    oracle.close()
    assert not oracle.alive


def test_problem_that_ships_shares_a_process_and_one_that_was_changed_does_not() -> None:
    bundle = load("softmax_rows")
    assert shares_process(bundle)
    changed = {name: text + "\n" for name, text in bundle.files.items()}
    assert not shares_process(replace(bundle, files=changed))


def a_case(bundle: ProblemBundle) -> Case:
    return open_bundle(bundle).cases("cpu", Purpose.TEST)[0]


@pytest.mark.parametrize(
    "entry",
    [
        ("../escape", 0, 1), ("/etc/cron.d/x", 0, 1), ("modules/../../x", 0, 1), ("a/b", 0, 1), (".", 0, 1), ("", 0, 1),
        ("x\n", 0, 1), ("0.bin", -1, 1), ("0.bin", 0, 5), ("0.bin", 3, 2), ("0.bin", 5, -1), ("modules/.pth", 0, 1),
    ],
)  # fmt: skip
def test_parcel_leads_nowhere_but_into_its_folder(entry: tuple[str, int, int], tmp_path: Path) -> None:
    (tmp_path / "parcel").write_bytes(b"1234")
    folder = tmp_path / "folder"
    folder.mkdir()
    with (tmp_path / "parcel").open("rb") as file:
        unpack(file.fileno(), [("modules/task.py", 0, 4)], folder)
        with pytest.raises(ValueError, match="parcel"):
            unpack(file.fileno(), [entry], folder)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["folder", "modules", "parcel", "task.py"]
