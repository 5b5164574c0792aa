"""Attack what a real control group bounds: memory that no process's size shows, processes, and what is left behind.

As root the tests make a group of their own where controllers of version 2 are free. Elsewhere the last test runs the
others under a kernel of their own (tests/attack/user_mode_linux.py).
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from runners.sandbox import Completed, KillReason, ResourceLimits, SandboxPolicy, cgroup, python_paths, run, spawn
from runners.sandbox.cgroup import NEEDED, Group, delegation, own_group, sweep_groups
from runners.sandbox.supervisor import supervisor_name
from tests.attack import user_mode_linux

pytestmark = pytest.mark.processes

ROOT = Path(__file__).resolve().parents[2]
# A pipe of 1 MiB is one page of a process's size. Nobody without privileges may have more than 64 MiB of them.
PIPES = (
    "import fcntl, os, time\n"
    "for _ in range(56):\n"
    "    reading, writing = os.pipe()\n"
    "    fcntl.fcntl(writing, 1031, 1 << 20)\n"
    "    os.set_blocking(writing, False)\n"
    "    try:\n        while os.write(writing, bytes(65536)): pass\n"
    "    except BlockingIOError: pass\n"
    "print('all pipes are full')"
)
FORKS = (
    "import os, time\nstarted = 0\n"
    "try:\n"
    "    for _ in range(200):\n"
    "        if os.fork() == 0: time.sleep(20); os._exit(0)\n"
    "        started += 1\n"
    "except OSError: pass\n"
    "print(started)"
)


def free_root() -> Path | str:
    """Return the root of a hierarchy in which we may make groups with the controllers that jobs need, or why not."""
    if os.geteuid() != 0:
        return "only root makes groups"
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    for place in [Path(words[1]) for words in mounts if words[2] == "cgroup2"]:
        with suppress(OSError):
            if not set(NEEDED) <= set((place / "cgroup.controllers").read_text().split()):
                continue
            if not set(NEEDED) <= set((place / "cgroup.subtree_control").read_text().split()):
                (place / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in NEEDED))
            return place
    return "no hierarchy of version 2 has the controllers memory and pids for us"


@pytest.fixture
def base(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Provide a group that is delegated to us: the one that somebody named, or one that we make."""
    if delegation().base is not None:
        yield delegation().base  # type: ignore[misc]
        return
    root = free_root()
    if isinstance(root, str):
        pytest.skip(root)
    made = root / f"kernelsci-attack-{os.getpid()}"
    made.mkdir()
    monkeypatch.setenv(cgroup.NAMED, str(made))
    delegation.cache_clear()
    assert delegation().base == made, delegation().reason
    yield made
    delegation.cache_clear()
    for left in [*made.glob("ks-*"), made]:
        left.rmdir()


def members(group: Path) -> list[str]:
    return (group / "cgroup.procs").read_text().split()


def wait_for(is_so: Callable[[], object]) -> None:
    ends = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < ends
        time.sleep(0.02)


def run_python(code: str, **limits: int) -> Completed:
    policy = SandboxPolicy(python_paths(), limits=ResourceLimits(wall_s=60, scratch_bytes=1 << 20, **limits))
    return run([sys.executable, "-I", "-S", "-c", code], policy)


def test_job_whose_memory_is_in_pipes_is_ended_by_the_kernel(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = run_python(PIPES, memory_bytes=8 << 20)
    assert done.killed_reason is KillReason.MEMORY and "full" not in done.stdout
    # The control: without a group nothing notices the 56 MiB.
    monkeypatch.setattr("runners.sandbox.cgroup.delegation", lambda: cgroup.Delegation(None, "the control"))
    done = run_python(PIPES, memory_bytes=32 << 20)
    assert done.killed_reason is None and "full" in done.stdout


def test_job_that_forks_without_end_is_held_by_the_group(base: Path) -> None:
    done = run_python(FORKS, memory_bytes=256 << 20, processes=10)
    assert 0 < int(done.stdout) <= 10 + cgroup.OVERHEAD_PROCESSES


def test_group_holds_every_process_of_the_job_and_goes_with_it(base: Path) -> None:
    policy = SandboxPolicy(python_paths(), limits=ResourceLimits(wall_s=60, memory_bytes=256 << 20))
    process = spawn(["/bin/sh", "-c", "sleep 30 & echo started; wait"], policy)
    try:
        groups = list(base.glob("ks-*"))
        assert len(groups) == 1 and process.confinement.endswith("+cgroup")
        # The launcher, the shell and `sleep` join one after the other.
        wait_for(lambda: len(members(groups[0])) >= 3)
    finally:
        process.kill()
        process.outcome()
    assert list(base.glob("ks-*")) == []


def test_group_bounds_what_the_sampler_would_only_see_later(base: Path) -> None:
    with ExitStack() as undo:
        group = own_group(ResourceLimits(memory_bytes=8 << 20, scratch_bytes=1 << 20, processes=10), undo)
        assert group is not None
        eater = "held = [bytearray(b'x' * (1 << 20)) for _ in range(200)]"
        ended = subprocess.run(group.joining([sys.executable, "-I", "-S", "-c", eater]), check=False)
        assert ended.returncode < 0 and group.ran_out_of_memory
    # The control: the same program outside the group.
    assert subprocess.run([sys.executable, "-I", "-S", "-c", eater], check=False).returncode == 0


def test_what_a_dead_supervisor_left_running_is_ended_and_its_group_removed(base: Path) -> None:
    limits = ResourceLimits(memory_bytes=64 << 20)
    kept = Group(base, limits)
    dead = base / f"{supervisor_name()}0-abcd"
    dead.mkdir()
    sleepers = [subprocess.Popen(["/bin/sh", "-c", f"echo 0 > {path}/cgroup.procs && exec sleep 60"])
                for path in (dead, kept.path)]  # fmt: skip
    try:
        for path in (dead, kept.path):
            wait_for(lambda path=path: members(path))  # type: ignore[misc]
        sweep_groups()
        assert sleepers[0].wait(10) < 0 and not dead.exists()
        assert sleepers[1].poll() is None and kept.path.exists(), "the control: the group of a living one"
    finally:
        kept.close()
        for sleeper in sleepers:
            sleeper.kill()
            sleeper.wait()


@pytest.mark.long
@pytest.mark.uml
def test_attacks_on_a_real_group_under_a_kernel_of_their_own(tmp_path: Path) -> None:
    if not isinstance(free_root(), str) or delegation().base is not None:
        pytest.skip("the tests above had a real group")
    words = "-m pytest -q --color=no -p no:cacheprovider -rs tests/attack/test_cgroup_kernel.py"
    command = [sys.executable, *words.split()]
    variables = {"KERNELSCI_TEST_VAR": "/tmp/var", "PYTHONDONTWRITEBYTECODE": "1"}
    status, said = user_mode_linux.run_under_own_kernel(command, ROOT, tmp_path, variables, timeout_s=1200)
    assert status == 0, said[-4000:]
    assert " passed" in said and "no hierarchy of version 2" not in said
