"""Test what the sandbox promises those who use it: outcomes as data, limits with names, live processes, probing."""

from __future__ import annotations

import errno
import os
import platform
import re
import resource
import signal
import socket
import stat
import struct
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path

import pytest

from runners.sandbox import (
    Devices,
    KillReason,
    ResourceLimits,
    ResultFileError,
    SandboxError,
    SandboxLevel,
    SandboxPolicy,
    confine,
    probe_report,
    python_paths,
    read_result_file,
    run,
    share,
    spawn,
    syscalls,
)
from runners.sandbox.account import Account
from runners.sandbox.capture import Capture
from runners.sandbox.devices import device_binds
from runners.sandbox.meter import disk_bytes
from runners.sandbox.probe import allowed_level, why_not
from runners.sandbox.scratch import named_path, named_scratch, sweep_named
from runners.sandbox.seccomp import ALLOW, ARCHITECTURES, ERRNO, KILL_PROCESS, filter_program
from runners.sandbox.supervisor import supervisor_name

pytestmark = pytest.mark.processes

SHELL = "/bin/sh"
DENIED = ERRNO | errno.EPERM


@pytest.fixture(scope="module", params=[SandboxLevel.BUBBLEWRAP, SandboxLevel.LANDLOCK], ids=str)
def level(request: pytest.FixtureRequest) -> SandboxLevel:
    found: SandboxLevel = request.param
    if reason := why_not(found):
        pytest.skip(f"this machine lacks {found}: {reason}")
    return found


def test_outcome_carries_code_streams_and_level(level: SandboxLevel) -> None:
    completed = run([SHELL, "-c", "cat; echo err >&2; exit 7"], SandboxPolicy(), b"given", level=level)
    assert (completed.exit_code, completed.signal, completed.killed_reason) == (7, None, None)
    assert (completed.stdout, completed.stderr, completed.level) == ("given", "err\n", level)
    assert completed.output_bytes == 9
    assert not completed.ok


def test_crash_is_told_by_its_signal(level: SandboxLevel) -> None:
    completed = run([SHELL, "-c", "kill -SEGV $$"], SandboxPolicy(), level=level)
    assert (completed.exit_code, completed.signal) == (None, signal.SIGSEGV)


def test_command_that_is_missing_is_an_outcome_not_an_error(level: SandboxLevel) -> None:
    completed = run(["/usr/bin/no-such-program"], SandboxPolicy(), level=level)
    assert completed.exit_code == 127
    assert "No such file" in completed.stderr


def test_path_that_is_missing_is_the_callers_error(level: SandboxLevel) -> None:
    with pytest.raises(SandboxError, match="/nowhere does not exist"):
        run(["/bin/true"], SandboxPolicy(read_only=(Path("/nowhere"),)), level=level)


def test_relative_path_is_refused() -> None:
    with pytest.raises(SandboxError, match="absolute"):
        SandboxPolicy(read_only=(Path("here"),))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root changes the user")
def test_path_closed_to_the_jobs_user_is_named(level: SandboxLevel, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    with pytest.raises(SandboxError, match="closed is not readable by everybody"):
        run(["/bin/true"], SandboxPolicy(read_only=(closed,)), level=level)
    assert run(["/bin/ls", str(closed)], SandboxPolicy(read_only=(share(closed),)), level=level).ok


def test_endless_loop_ends_at_its_wall_clock_limit(level: SandboxLevel) -> None:
    policy = SandboxPolicy(limits=ResourceLimits(wall_s=0.3))
    completed = run([SHELL, "-c", "while :; do :; done"], policy, level=level)
    assert completed.killed_reason is KillReason.TIMEOUT
    assert 0.3 <= completed.wall_s < 2
    assert completed.signal == signal.SIGKILL


def test_process_that_ignores_every_signal_it_can_is_killed(level: SandboxLevel) -> None:
    policy = SandboxPolicy(limits=ResourceLimits(wall_s=0.3))
    completed = run([SHELL, "-c", "trap '' TERM INT HUP QUIT; sleep 20; sleep 20"], policy, level=level)
    assert completed.killed_reason is KillReason.TIMEOUT
    assert completed.wall_s < 3


def test_process_that_stops_itself_is_killed(level: SandboxLevel) -> None:
    policy = SandboxPolicy(limits=ResourceLimits(wall_s=0.3))
    completed = run([SHELL, "-c", "kill -STOP $$"], policy, level=level)
    assert completed.killed_reason is KillReason.TIMEOUT


def test_endless_output_ends_and_keeps_head_and_tail(level: SandboxLevel) -> None:
    policy = SandboxPolicy(limits=ResourceLimits(output_bytes=1 << 20, log_bytes=100))
    completed = run([SHELL, "-c", "echo first; yes"], policy, level=level)
    assert completed.killed_reason is KillReason.OUTPUT
    assert completed.stdout.startswith("first\n")
    assert "bytes left out" in completed.stdout
    assert len(completed.stdout) < 200


def test_output_within_its_limit_is_whole(level: SandboxLevel) -> None:
    completed = run([SHELL, "-c", "yes | head -c 60000"], SandboxPolicy(), level=level)
    assert completed.ok
    assert completed.stdout == "y\n" * 30000


def test_environment_is_what_the_policy_says(level: SandboxLevel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    completed = run(["/usr/bin/env"], SandboxPolicy(env={"OMP_NUM_THREADS": "2"}), level=level)
    assert "OMP_NUM_THREADS=2" in completed.stdout
    assert "OPENAI_API_KEY" not in completed.stdout


def test_scratch_directory_is_writable_and_vanishes(level: SandboxLevel) -> None:
    command = 'test "$PWD" = "$TMPDIR" && echo x > "$HOME/file" && echo "$TMPDIR"'
    completed = run([SHELL, "-c", command], SandboxPolicy(), level=level)
    assert completed.ok, completed
    scratch = Path(completed.stdout.strip())
    assert scratch == Path("/tmp") or not scratch.exists()


def test_writable_path_keeps_what_was_written(level: SandboxLevel, tmp_path: Path) -> None:
    policy = SandboxPolicy(writable=(tmp_path,))
    assert run([SHELL, "-c", f"echo 42 > {tmp_path}/answer"], policy, level=level).ok
    assert (tmp_path / "answer").read_text() == "42\n"


def test_interpreter_and_its_packages_are_readable_inside(level: SandboxLevel) -> None:
    code = "import numpy, sys; print(sys.prefix, numpy.ones(3).sum())"
    completed = run([sys.executable, "-c", code], SandboxPolicy(read_only=python_paths()), level=level)
    assert completed.stdout.split() == [sys.prefix, "3.0"], completed.stderr


def test_compiler_works_inside(level: SandboxLevel) -> None:
    source = "int main() { return 42; }"
    command = "cat > k.cpp && g++ -O2 -fopenmp k.cpp -o k && ./k"
    assert run([SHELL, "-c", command], SandboxPolicy(), source.encode(), level=level).exit_code == 42


def test_live_process_talks_over_a_socket_pair_until_it_is_killed(level: SandboxLevel) -> None:
    ours, theirs = socket.socketpair()
    code = f"import socket; s = socket.socket(fileno={theirs.fileno()})\nwhile d := s.recv(99): s.send(d.upper())"
    with ours, theirs:
        policy = SandboxPolicy(read_only=python_paths())
        process = spawn([sys.executable, "-I", "-S", "-c", code], policy, [theirs.fileno()], level=level)
        theirs.close()
        for word in (b"one", b"two"):
            ours.send(word)
            assert ours.recv(99) == word.upper()
        assert process.alive
        assert process.wait(0.05) is None
        process.kill(KillReason.TIMEOUT)
        assert process.outcome().killed_reason is KillReason.TIMEOUT
        assert ours.recv(1) == b"", "nobody holds the other end"
    assert not process.alive


def test_usage_sees_memory_and_processor_time(level: SandboxLevel) -> None:
    code = "b = bytearray(64 << 20); b[::4096] = b'x' * len(b[::4096])\nwhile True: pass"
    policy = SandboxPolicy(read_only=python_paths())
    process = spawn([sys.executable, "-I", "-S", "-c", code], policy, level=level)
    time.sleep(0.6)
    usage = process.usage()
    process.kill()
    completed = process.outcome()
    assert 64 << 20 <= usage.memory_bytes < 256 << 20
    assert usage.cpu_s > 0.05
    assert usage.processes >= 2
    assert completed.peak_memory_bytes >= usage.memory_bytes


def test_kill_at_once_leaves_nothing(level: SandboxLevel) -> None:
    before = sandboxes()  # oracles of other tests stay warm in theirs
    for _ in range(5):
        process = spawn([SHELL, "-c", "sleep 30"], SandboxPolicy(), level=level)
        process.kill()
        assert process.outcome().killed_reason is KillReason.CANCELLED
        assert sandboxes() <= before


def sandboxes() -> set[Path]:
    """Return the live processes of sandboxes of this very process."""
    return {path for path in Path("/proc").glob("[0-9]*/cmdline") if is_ours(path)}


def is_ours(path: Path) -> bool:
    """Return whether this is a live sandbox of this very process."""
    try:
        return supervisor_name().encode() in path.read_bytes()
    except OSError:
        return False


def test_kill_after_the_end_changes_nothing(level: SandboxLevel) -> None:
    process = spawn(["/bin/true"], SandboxPolicy(), level=level)
    completed = process.outcome()
    process.kill()
    assert process.outcome() is completed
    assert completed.killed_reason is None


def test_many_sandboxes_live_at_the_same_time(level: SandboxLevel) -> None:
    processes = [spawn([SHELL, "-c", f"sleep 0.2; exit {n}"], SandboxPolicy(), level=level) for n in range(8)]
    assert [process.outcome().exit_code for process in processes] == list(range(8))


def test_no_descriptor_or_thread_leaks(level: SandboxLevel) -> None:
    run(["/bin/true"], SandboxPolicy(), b"x", level=level)
    before, threads = open_descriptors(), supervisors()
    for _ in range(5):
        run(["/bin/true"], SandboxPolicy(), b"x", level=level)
    assert open_descriptors() == before
    assert supervisors() <= threads


def supervisors() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "sandbox"}


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_process_is_pinned_to_the_cores_asked_for(level: SandboxLevel) -> None:
    core = max(os.sched_getaffinity(0))
    before = os.sched_getaffinity(0)
    completed = run(["/usr/bin/nproc"], SandboxPolicy(cpus=frozenset({core})), level=level)
    assert completed.stdout.strip() == "1"
    assert os.sched_getaffinity(0) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root changes the user")
def test_root_gives_each_job_a_user_of_its_own(level: SandboxLevel) -> None:
    command = [SHELL, "-c", "id -u; sleep 0.2"]
    jobs = [spawn(command, SandboxPolicy(), level=level) for _ in range(3)]
    uids = [job.outcome().stdout.strip() for job in jobs]
    assert len(set(uids)) == 3
    assert uids == [str(job.uid) for job in jobs]
    assert "0" not in uids


def test_two_accounts_never_share_a_user_id() -> None:
    with Account() as first, Account() as second:
        assert first.uid != second.uid


def test_unsandboxed_run_is_refused_until_it_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KERNELSCI_ALLOW_UNSANDBOXED", raising=False)
    for weak in (SandboxLevel.RLIMITS_ONLY, SandboxLevel.NONE):
        with pytest.raises(SandboxError, match="KERNELSCI_ALLOW_UNSANDBOXED=1"):
            run(["/bin/true"], SandboxPolicy(), level=weak)
        monkeypatch.setenv("KERNELSCI_ALLOW_UNSANDBOXED", "1")
        completed = run([SHELL, "-c", "exit 3"], SandboxPolicy(), level=weak)
        assert (completed.exit_code, completed.level) == (3, weak)
        monkeypatch.delenv("KERNELSCI_ALLOW_UNSANDBOXED")


def test_probe_falls_back_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = {SandboxLevel.BUBBLEWRAP: "bwrap is missing"}
    monkeypatch.setattr(import_module("runners.sandbox.probe"), "why_not", broken.get)
    report = probe_report.__wrapped__()
    assert report.level is SandboxLevel.LANDLOCK
    assert report.lines() == ["bubblewrap: bwrap is missing", "landlock: works"]


def test_forced_level_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELSCI_SANDBOX", "landlock")
    assert allowed_level() is SandboxLevel.LANDLOCK


def test_missing_bubblewrap_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runners.sandbox.bubblewrap.shutil.which", lambda *_, **__: None)
    assert why_not(SandboxLevel.BUBBLEWRAP) == "bwrap is missing: install the package bubblewrap"


def test_sandbox_that_cannot_be_set_up_is_an_error_in_its_own_words(
    level: SandboxLevel, monkeypatch: pytest.MonkeyPatch
) -> None:
    for user in ("launch", "landlock"):
        monkeypatch.setattr(f"runners.sandbox.{user}.filter_program", lambda *_given, **_named: b"no filter")
    with pytest.raises(SandboxError, match=r"could not be set up: (bwrap|confine): .*(seccomp|multiple of 8)"):
        run(["/bin/true"], SandboxPolicy(), level=level)


@pytest.mark.parametrize(("hard", "given"), [(8192, 8192), (resource.RLIM_INFINITY, 8200)])
def test_a_job_without_a_user_of_its_own_asks_for_no_more_tasks_than_the_user_may_have(
    hard: int, given: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[int, tuple[int, int]] = {}
    monkeypatch.setattr(confine, "tasks_of", lambda _uid: 8)
    monkeypatch.setattr(resource, "getrlimit", lambda _number: (1024, hard))
    monkeypatch.setattr(resource, "setrlimit", asked.__setitem__)
    confine.set_limits({"rlimits": {"nproc": 8192}, "uid": None})
    assert asked == {resource.RLIMIT_NPROC: (given, given)}


@pytest.mark.parametrize("name", ["wall_s", "memory_bytes", "processes", "scratch_bytes", "output_bytes"])
def test_limit_that_is_not_positive_is_refused(name: str) -> None:
    with pytest.raises(SandboxError, match=f"{name} must be positive"):
        ResourceLimits(**{name: 0})


@pytest.mark.timing
def test_launch_costs_little() -> None:
    if reason := why_not(SandboxLevel.BUBBLEWRAP):
        pytest.skip(reason)
    held = [timed(lambda: run(["/bin/true"], SandboxPolicy())) for _ in range(20)]
    assert min(held) < 0.05, f"{min(held) * 1000:.1f} ms at best"


def timed(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


# --- the system-call filter ---


def verdict(program: bytes, audit: int, number: int, *arguments: int) -> int:
    """Return what a kernel would answer: a small interpreter of classic BPF."""
    padded = [*arguments, 0, 0, 0, 0, 0, 0][:6]
    data = struct.pack("=IIQ6Q", number, audit, 0, *padded)
    code = [struct.unpack_from("=HBBI", program, at) for at in range(0, len(program), 8)]
    accumulator, at = 0, 0
    while True:
        operation, yes, no, value = code[at]
        at += 1
        match operation:
            case 0x06:
                return int(value)
            case 0x20:
                accumulator = struct.unpack_from("=I", data, value)[0]
            case 0x54:
                accumulator &= value
            case 0x15:
                at += yes if accumulator == value else no
            case 0x35:
                at += yes if accumulator >= value else no
            case 0x45:
                at += yes if accumulator & value else no
            case other:
                raise AssertionError(f"unknown operation {other:#x}")


@pytest.fixture(params=list(ARCHITECTURES))
def machine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def ask(machine: str, numbers: tuple[int | None, int | None], *arguments: int, devices: str = "none") -> int:
    architecture = ARCHITECTURES[machine]
    number = numbers[architecture.column]
    assert number is not None
    return verdict(filter_program(Devices(devices), machine), architecture.audit, number, *arguments)


def test_filter_denies_every_listed_call(machine: str) -> None:
    groups = [value for name, value in vars(syscalls).items() if name.isupper() and isinstance(value, dict)]
    assert len(groups) == 8
    for group in groups:
        for name, numbers in group.items():
            if numbers[ARCHITECTURES[machine].column] is not None:
                assert ask(machine, numbers) == DENIED, name


def test_filter_allows_ordinary_calls(machine: str) -> None:
    ordinary = {"read": (0, 63), "openat": (257, 56), "mmap": (9, 222), "execve": (59, 221), "futex": (202, 98)}
    for name, numbers in ordinary.items():
        assert ask(machine, numbers) == ALLOW, name


def test_filter_tells_namespaces_from_threads(machine: str) -> None:
    pthread_create = 0x3D0F00
    assert ask(machine, syscalls.CLONE, pthread_create) == ALLOW
    for flag in (0x10000000, 0x20000000, 0x40000000, 0x08000000, 0x04000000, 0x02000000, 0x00020000, 0x80):
        assert ask(machine, syscalls.CLONE, pthread_create | flag) == DENIED
    assert ask(machine, syscalls.CLONE3) == ERRNO | errno.ENOSYS


def test_filter_lets_stream_pairs_pass_and_no_other_socket(machine: str) -> None:
    cloexec = 0o2000000
    for kind, expected in ((1, ALLOW), (5, ALLOW), (1 | cloexec, ALLOW), (2, DENIED), (2 | cloexec, DENIED)):
        assert ask(machine, syscalls.SOCKETPAIR, 1, kind) == expected
    assert ask(machine, syscalls.SOCKETPAIR, 2, 1) == DENIED
    for family in (1, 2, 10, 16, 17, 40):
        assert ask(machine, syscalls.SOCKETS["socket"], family, 1) == DENIED


def test_filter_lets_local_sockets_connect_where_the_policy_says_so_and_no_other_family(machine: str) -> None:
    architecture = ARCHITECTURES[machine]
    program = filter_program(Devices.NVIDIA, machine, local_sockets=True)
    calls = {name: numbers[architecture.column] or 0 for name, numbers in syscalls.SOCKETS.items()}
    for name in ("connect", "bind", "listen", "accept", "accept4"):
        assert verdict(program, architecture.audit, calls[name]) == ALLOW, name
    assert verdict(program, architecture.audit, calls["socket"], 1, 1) == ALLOW
    for family in (2, 10, 16, 17, 40):
        assert verdict(program, architecture.audit, calls["socket"], family, 1) == DENIED


def test_local_sockets_need_namespaces() -> None:
    with pytest.raises(SandboxError, match="install bubblewrap"):
        run(["/bin/true"], SandboxPolicy(local_sockets=True), level=SandboxLevel.LANDLOCK)


def test_filter_denies_terminal_injection_only(machine: str) -> None:
    assert ask(machine, syscalls.IOCTL, 0, 0x5412) == DENIED
    assert ask(machine, syscalls.IOCTL, 0, 0x541C) == DENIED
    assert ask(machine, syscalls.IOCTL, 0, 0x5401) == ALLOW


def test_filter_allows_memory_files_to_accelerators_only(machine: str) -> None:
    numbers = syscalls.MEMORY_FILES["memfd_create"]
    assert ask(machine, numbers) == DENIED
    assert ask(machine, numbers, devices="nvidia") == ALLOW


def test_filter_kills_calls_of_a_foreign_architecture(machine: str) -> None:
    program = filter_program(Devices.NONE, machine)
    assert verdict(program, 0x40000003, 20) == KILL_PROCESS
    assert verdict(filter_program(Devices.NONE, "x86_64"), 0xC000003E, 0x40000000 | 39) == KILL_PROCESS


def test_unknown_architecture_is_refused() -> None:
    with pytest.raises(SandboxError, match="riscv64"):
        filter_program(Devices.NONE, "riscv64")


HEADERS = {
    "x86_64": "/usr/include/x86_64-linux-gnu/asm/unistd_64.h",
    "aarch64": "/usr/include/asm-generic/unistd.h",
}


@pytest.mark.skipif(platform.machine() != "x86_64", reason="compares with the headers of x86-64")
def test_call_numbers_are_those_of_the_kernel_headers(machine: str) -> None:
    header = Path(HEADERS[machine])
    if not header.exists():
        pytest.skip(f"{header} is missing: install linux-libc-dev")
    defined = dict(re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", header.read_text()))
    column, compared = ARCHITECTURES[machine].column, 0
    for group in (value for key, value in vars(syscalls).items() if key.isupper()):
        for name, numbers in group.items() if isinstance(group, dict) else ():
            if name in defined:
                assert numbers[column] == int(defined[name]), name
                compared += 1
    assert compared > 60


# --- devices ---


def fake_host(root: Path, names: dict[str, int]) -> Path:
    """Make a tree with these files (name → mode), as a stand-in for /dev, /sys and /opt."""
    for name, mode in names.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        path.chmod(mode)
    return root


def test_nvidia_nodes_and_driver_paths_are_bound(tmp_path: Path) -> None:
    names = ["dev/nvidia0", "dev/nvidia1", "dev/nvidiactl", "dev/nvidia-uvm", "dev/sda", "dev/kfd"]
    root = fake_host(tmp_path, dict.fromkeys([*names, "sys/x", "usr/local/nvidia/lib64/libcuda.so"], 0o666))
    binds = device_binds("nvidia", root)
    assert [str(path.relative_to(root)) for path in binds.nodes] == [
        "dev/nvidia-uvm",
        "dev/nvidia0",
        "dev/nvidia1",
        "dev/nvidiactl",
    ]
    assert [str(path.relative_to(root)) for path in binds.read_only] == ["sys"]
    assert binds.groups == ()


def test_a_process_on_one_gpu_of_several_sees_that_gpu_alone(tmp_path: Path) -> None:
    names = ["nvidia0", "nvidia1", "nvidia11", "nvidiactl", "kfd"]
    root = fake_host(tmp_path, dict.fromkeys([f"dev/{name}" for name in names], 0o666))
    assert [path.name for path in device_binds("nvidia", root, "nvidia1").nodes] == ["nvidia1", "nvidiactl"]


def test_amd_nodes_come_with_the_group_that_owns_them(tmp_path: Path) -> None:
    names = {"dev/kfd": 0o660, "dev/dri/renderD128": 0o660, "dev/dri/card0": 0o660, "opt/rocm-6.4.1/x": 0o644}
    root = fake_host(tmp_path, {**names, "sys/x": 0o644})
    if os.geteuid() == 0:
        os.chown(root / "dev/kfd", 0, 993)
        os.chown(root / "dev/dri/renderD128", 0, 993)
    binds = device_binds("amd", root)
    assert [str(path.relative_to(root)) for path in binds.nodes] == ["dev/dri/renderD128", "dev/kfd"]
    assert [str(path.relative_to(root)) for path in binds.read_only] == ["sys", "opt/rocm-6.4.1"]
    assert binds.groups == ((993,) if os.geteuid() == 0 else (os.getegid(),))


def test_absent_accelerator_binds_nothing(tmp_path: Path) -> None:
    assert device_binds("amd", tmp_path).nodes == ()
    assert device_binds("none", tmp_path) == device_binds(Devices.NONE)


# --- small parts ---


def test_capture_keeps_both_ends() -> None:
    capture = Capture(10)
    for part in (b"abc", b"defgh", b"ijklmnop"):
        capture.add(part)
    assert capture.text() == "abcde\n[… 6 bytes left out …]\nlmnop"
    assert capture.total_bytes == 16


def test_capture_shows_bytes_that_are_no_text() -> None:
    capture = Capture(100)
    capture.add(b"\xff\xfeok")
    assert capture.text().endswith("ok")


def test_disk_use_does_not_follow_links(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/usr")
    (tmp_path / "file").write_bytes(b"x" * 100_000)
    assert 100_000 <= disk_bytes([tmp_path]) < 1_000_000


def test_python_paths_cover_the_interpreter_and_this_environment() -> None:
    shown = (*python_paths(), Path("/usr"))
    for needed in (Path(sys.executable), Path(sys.executable).resolve(), Path(os.__file__), Path(pytest.__file__)):
        assert any(needed.is_relative_to(path) for path in shown), needed


def test_share_opens_a_tree_for_reading_and_leaves_links_alone(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("x")
    target.chmod(0o600)
    tree = tmp_path / "tree"
    tree.mkdir(mode=0o700)
    (tree / "file").write_text("x")
    (tree / "file").chmod(0o600)
    (tree / "link").symlink_to(target)
    share(tree)
    assert stat.S_IMODE((tree / "file").stat().st_mode) == 0o644
    assert stat.S_IMODE(tree.stat().st_mode) == 0o755
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "..", "", "a/b"])
def test_result_name_with_a_path_in_it_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ResultFileError, match="not a file name"):
        read_result_file(tmp_path, name, 100)


def test_result_of_another_owner_is_refused(tmp_path: Path) -> None:
    (tmp_path / "result").write_text("x")
    with pytest.raises(ResultFileError, match="belongs to user"):
        read_result_file(tmp_path, "result", 100, uid=os.geteuid() + 1)


def test_missing_result_is_refused_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(ResultFileError, match="result: No such file"):
        read_result_file(tmp_path, "result", 100)


def test_processes_of_one_scratch_name_work_at_one_path_and_find_nothing_there(level: SandboxLevel) -> None:
    policy = SandboxPolicy(scratch="test-name")
    script = "pwd; ls -A; echo left > file"
    first, second = (run([SHELL, "-c", script], policy, level=level) for _ in range(2))
    assert first.ok and first.stdout == second.stdout and len(first.stdout.splitlines()) == 1
    assert not named_path("test-name").exists()


def test_named_scratch_is_one_processes_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runners.sandbox.scratch.WAIT_S", 0.2)
    with ExitStack() as holder:
        path = named_scratch("test-held", holder)
        (path / "file").touch()
        sweep_named()
        assert (path / "file").exists()
        with pytest.raises(SandboxError, match="is used by another process"):
            named_scratch("test-held", ExitStack())
    assert not path.exists()


def test_named_scratch_of_a_dead_process_is_swept_or_emptied_and_a_link_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runners.sandbox.scratch.WAIT_S", 0.2)
    path = named_path("test-left")
    for clear in (sweep_named, lambda: named_scratch("test-left", ExitStack())):
        path.mkdir()
        (path / "file").touch()
        clear()
        assert not (path / "file").exists()
        if path.exists():
            path.rmdir()
    path.symlink_to(tmp_path)
    try:
        with pytest.raises(SandboxError):
            named_scratch("test-left", ExitStack())
    finally:
        path.unlink()
