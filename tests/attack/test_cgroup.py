"""Check that jobs join the group that was delegated, and that results say so.

A folder stands in for the group; tests/attack/test_cgroup_kernel.py shows what the kernel enforces in a real one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from runners.sandbox import (
    ResourceLimits,
    SandboxLevel,
    SandboxPolicy,
    cgroup,
    spawn,
)
from runners.sandbox.cgroup import Group, delegation, own_group, sweep_groups
from runners.sandbox.probe import confinement_here, why_not
from runners.sandbox.supervisor import supervisor_name

LIMITS = ResourceLimits(wall_s=30, memory_bytes=64 << 20, scratch_bytes=1 << 20, processes=10)


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Provide a folder that looks like a delegated group."""
    monkeypatch.setattr(cgroup, "GONE_WITHIN_S", 0.05)
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    monkeypatch.setenv(cgroup.NAMED, str(tmp_path))
    delegation.cache_clear()
    yield tmp_path
    delegation.cache_clear()


def test_group_gets_the_limits_of_the_job(base: Path) -> None:
    assert delegation().base == base
    assert (base / "cgroup.subtree_control").read_text() == "+memory +pids"
    with ExitStack() as undo:
        group = own_group(LIMITS, undo)
        assert group is not None
        read = {path.name: path.read_text() for path in group.path.iterdir()}
        assert read["memory.max"] == str((64 << 20) + (1 << 20) + cgroup.OVERHEAD_BYTES)
        assert (read["memory.swap.max"], read["pids.max"]) == ("0", str(10 + cgroup.OVERHEAD_PROCESSES))


@pytest.mark.processes
@pytest.mark.parametrize("level", [SandboxLevel.BUBBLEWRAP, SandboxLevel.LANDLOCK], ids=str)
def test_job_joins_its_group_before_it_begins_and_the_level_says_so(base: Path, level: SandboxLevel) -> None:
    if reason := why_not(level):
        pytest.skip(reason)
    process = spawn(["/bin/sh", "-c", "echo begun"], SandboxPolicy(), level=level)
    done = process.outcome()
    assert done.ok and done.stdout == "begun\n"
    assert process.confinement == f"{level}+cgroup"
    joined = [path.read_text() for path in base.glob("ks-*/cgroup.procs")]
    assert "0\n" in joined
    assert confinement_here().endswith("+cgroup")


def test_kernels_own_verdict_on_memory_is_read(base: Path) -> None:
    group = Group(base, LIMITS)
    assert not group.ran_out_of_memory
    (group.path / "memory.events").write_text("low 0\nhigh 0\nmax 7\noom 1\noom_kill 1\n")
    assert group.ran_out_of_memory


@pytest.mark.parametrize("fault", ["no controllers", "not there", "memory is missing"])
def test_group_that_cannot_be_used_leaves_the_job_to_the_sampler(
    base: Path, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fault == "not there":
        monkeypatch.setenv(cgroup.NAMED, str(base / "absent"))
    elif fault == "no controllers":
        (base / "cgroup.controllers").unlink()
    else:
        (base / "cgroup.controllers").write_text("pids\n")
    with ExitStack() as undo:
        assert own_group(LIMITS, undo) is None
    assert delegation().reason


def test_groups_of_dead_supervisors_are_swept_and_those_of_the_living_stay(base: Path) -> None:
    dead, alive = base / f"{supervisor_name()}0-abcd", base / f"{supervisor_name()}-abcd"
    dead.mkdir()
    alive.mkdir()
    sweep_groups()
    assert (dead.exists(), alive.exists()) == (True, True), "a stand-in keeps its files, unlike a real group"
    assert (dead / "cgroup.kill").read_text() == "1" and not (alive / "cgroup.kill").exists()
