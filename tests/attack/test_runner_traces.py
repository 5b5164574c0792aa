"""Look at what an evaluation leaves: the level of a kernel that crashes while it is loaded, and the files of locks."""

from __future__ import annotations

from pathlib import Path

import pytest

from runners.harness import evaluate
from runners.harness.devices.device import LOCK_MODE, Device
from runners.job import Effort, JobSpec, Language, Limits, Source, Status
from runners.problems import load
from runners.sandbox import probe
from tests.runners import kernels

CRASHES = "#include <cstdlib>\nstruct Early { Early() { std::abort(); } } early;\n" + kernels.HONEST


@pytest.mark.processes
def test_a_kernel_that_crashes_while_it_is_loaded_says_how_it_was_confined() -> None:
    limits = Limits(call_s=3.0, total_s=120.0, memory_bytes=1 << 30)
    source = Source(Language.CPP, CRASHES)
    result = evaluate(JobSpec("job", load("softmax_rows"), "cpu", source, effort=Effort.QUICK, limits=limits))
    assert result.status is Status.CRASHED, result.reasons
    assert result.sandbox == probe().value


def test_lock_files_cannot_be_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELSCI_LOCKS", str(tmp_path))
    old = tmp_path / "kernelsci-cpu-0.lock"
    old.touch(mode=0o666)
    old.chmod(0o666)
    with Device("cpu").exclusively():
        pass
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {LOCK_MODE}
