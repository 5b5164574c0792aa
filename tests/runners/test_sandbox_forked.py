"""Test programs that are forked from a process that has imported their modules, against the same ones executed."""

from __future__ import annotations

import ast
import errno
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from runners.sandbox import (
    Completed,
    KillReason,
    ResourceLimits,
    SandboxError,
    SandboxLevel,
    SandboxPolicy,
    confine,
    fork_server,
    python_paths,
    run,
    spawn,
    why_not_forked,
)
from runners.sandbox.fork_server import server_for
from runners.sandbox.probe import why_not

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("servers_of_the_test_alone")]

KINDS = ("cgroup", "ipc", "mnt", "net", "pid", "uts")
OURS = json.dumps({kind: str(Path(f"/proc/self/ns/{kind}").readlink()) for kind in KINDS})
POLICY = SandboxPolicy(python_paths(), env={"NAMESPACES": OURS})
# A module that no interpreter imports by itself.
MODULES = ("wave",)


@pytest.fixture(params=[SandboxLevel.BUBBLEWRAP, SandboxLevel.LANDLOCK], ids=str)
def level(request: pytest.FixtureRequest) -> SandboxLevel:
    found: SandboxLevel = request.param
    if reason := why_not(found):
        pytest.skip(f"this machine lacks {found}: {reason}")
    assert why_not_forked(found) is None
    return found


def python(code: str, *arguments: str) -> list[str]:
    return [sys.executable, "-I", "-c", code, *arguments]


def forked(
    code: str, *arguments: str, level: SandboxLevel | None = None, policy: SandboxPolicy = POLICY
) -> Completed:
    return run(python(code, *arguments), policy, level=level, preloaded=MODULES)


def is_forked(completed: Completed) -> bool:
    return completed.stdout.strip() == "True"


HAS_IMPORTED = "import sys; print('wave' in sys.modules)"


def test_a_program_finds_imported_what_was_asked_for(level: SandboxLevel) -> None:
    assert is_forked(forked(HAS_IMPORTED, level=level))
    assert not is_forked(run(python(HAS_IMPORTED), POLICY, level=level))


def test_arguments_streams_and_exit_code_are_those_of_an_executed_program(level: SandboxLevel) -> None:
    code = "import sys; print(sys.argv, sys.stdin.read()); print('err', file=sys.stderr); sys.exit(7)"
    ran = [run(python(code, "a", "b c"), POLICY, b"given", level=level, preloaded=names) for names in ((), MODULES)]
    told = [(done.stdout, done.stderr, done.exit_code, done.signal) for done in ran]
    assert told == [("['-c', 'a', 'b c'] given\n", "err\n", 7, None)] * 2


def test_a_script_is_run_as_the_main_program_with_its_arguments(level: SandboxLevel, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import sys\nif __name__ == '__main__':\n    print(sys.argv[1:], __file__)\n")
    policy = SandboxPolicy((*python_paths(), script))
    done = run([sys.executable, "-I", str(script), "x"], policy, level=level, preloaded=MODULES)
    assert done.stdout == f"['x'] {script}\n", done.stderr


def test_an_exception_and_a_signal_end_it_as_they_end_an_executed_program(level: SandboxLevel) -> None:
    raised = forked("raise ValueError('no')", level=level)
    assert raised.exit_code == 1 and raised.stderr.endswith("ValueError: no\n")
    killed = forked("import os; os.abort()", level=level)
    assert (killed.exit_code, killed.signal, killed.killed_reason) == (None, signal.SIGABRT, None)


CONFINEMENT = """
import json, os, resource, tempfile
def filters():
    try:
        pids = [name for name in os.listdir("/proc") if name.isdigit()]
    except PermissionError:
        return {"hidden"}
    return {line for pid in pids for line in open(f"/proc/{pid}/status") if line.startswith("Seccomp:")}
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
same = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "SigBlk", "SigIgn", "Groups",
        "Cpus_allowed_list")
names = [name for name in dir(resource) if name.startswith("RLIMIT_")]
print(json.dumps({
    **{name: status[name].strip() for name in same},
    "limits": {name: resource.getrlimit(getattr(resource, name)) for name in names},
    "environment": sorted({*os.environ} - {"PWD"}),
    "descriptors": sorted(os.listdir("/proc/self/fd")),
    "session": os.getsid(0) > 0,
    "places": [os.getcwd() == os.environ["HOME"] == os.environ["TMPDIR"], tempfile.gettempdir() == os.getcwd()],
    "temporary": os.listdir(os.getcwd()),
    "host": os.uname().nodename,
    "filters": sorted(filters()),
    "namespaces": {kind: os.readlink(f"/proc/self/ns/{kind}") == theirs
                   for kind, theirs in json.loads(os.environ["NAMESPACES"]).items()},
}))
"""


def test_it_is_confined_exactly_as_an_executed_program_is(level: SandboxLevel) -> None:
    executed, started = (
        json.loads(run(python(CONFINEMENT), POLICY, level=level, preloaded=names).stdout) for names in ((), MODULES)
    )
    assert started == executed
    assert started["places"] == [True, True]
    within = level is SandboxLevel.BUBBLEWRAP
    assert set(started["namespaces"].values()) == {not within}


def test_it_has_the_descriptors_that_it_was_given_under_their_numbers_and_no_other(level: SandboxLevel) -> None:
    reading, writing = os.pipe()
    code = f"import os; os.write({writing}, b'through'); print(os.listdir('/proc/self/fd'))"
    done = spawn(python(code), POLICY, (writing,), level=level, preloaded=MODULES).outcome()
    os.close(writing)
    assert os.read(reading, 100) == b"through" and os.read(reading, 100) == b""
    os.close(reading)
    held = [int(number) for number in ast.literal_eval(done.stdout)]
    # The listing has one of its own.
    assert {0, 1, 2, writing} < set(held) and len(held) == 5


def test_the_far_end_of_a_channel_closes_when_the_program_closes_it(level: SandboxLevel) -> None:
    """Show that no launcher keeps it open, which would hide that a candidate has hung up."""
    reading, writing = os.pipe()
    code = f"import os, time; os.close({writing}); time.sleep(60)"
    process = spawn(python(code), POLICY, (writing,), level=level, preloaded=MODULES)
    os.close(writing)
    assert os.read(reading, 1) == b""
    assert process.alive
    os.close(reading)
    process.kill()
    process.outcome()


def test_limits_of_time_and_memory_hold_and_no_launcher_counts(level: SandboxLevel) -> None:
    assert is_forked(forked(HAS_IMPORTED, level=level))  # from now on a start takes no time
    policy = SandboxPolicy(python_paths(), env=POLICY.env, limits=ResourceLimits(wall_s=3))
    endless = forked("print(1, flush=True)\nwhile True: pass", level=level, policy=policy)
    assert (endless.killed_reason, endless.stdout) == (KillReason.TIMEOUT, "1\n")
    policy = SandboxPolicy(python_paths(), limits=ResourceLimits(memory_bytes=64 << 20))
    hungry = "held = []\nwhile True: held.append(bytearray(1 << 20))"
    assert forked(hungry, level=level, policy=policy).killed_reason is KillReason.MEMORY
    process = spawn(python("import time; time.sleep(60)"), POLICY, level=level, preloaded=MODULES)
    # The program itself, and under bubblewrap what holds the namespaces.
    expected = 1 if level is SandboxLevel.LANDLOCK else 4
    assert eventually(lambda: process.usage().processes == expected), process.usage()
    process.kill()
    assert process.outcome().killed_reason is KillReason.CANCELLED


def test_programs_of_one_kind_share_a_server_and_those_of_another_environment_do_not() -> None:
    cpus = frozenset({0})
    first = server_for(MODULES, {"OMP_NUM_THREADS": "1", "TMPDIR": "/tmp", "KERNELSCI_DEVICE": "cuda"}, cpus)
    assert first is server_for(MODULES, {"OMP_NUM_THREADS": "1", "TMPDIR": "/elsewhere"}, cpus)
    assert first is not server_for(MODULES, {"OMP_NUM_THREADS": "2", "TMPDIR": "/tmp"}, cpus)
    assert first is not server_for(("json",), {"OMP_NUM_THREADS": "1", "TMPDIR": "/tmp"}, cpus)
    assert first is not server_for(MODULES, {"OMP_NUM_THREADS": "1", "TMPDIR": "/tmp"}, frozenset({0, 1}))


def test_a_server_that_was_killed_is_started_again_and_its_programs_end_with_it() -> None:
    process = spawn(python("import time; print('up', flush=True); time.sleep(60)"), POLICY, preloaded=MODULES)
    assert eventually(lambda: process.usage().output_bytes > 0)
    os.kill(parent_of(process.pid), signal.SIGKILL)
    with pytest.raises(SandboxError, match="the sandbox was ended from outside"):
        process.wait(20)
    assert is_forked(forked(HAS_IMPORTED))


def test_an_idle_server_ends_once_nothing_lives_that_was_forked_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_server, "IDLE_S", 0.05)
    process = spawn(python("import time; time.sleep(0.5); print('done')"), POLICY, preloaded=MODULES)
    server = parent_of(process.pid)
    assert process.outcome().stdout == "done\n"
    assert eventually(lambda: not Path(f"/proc/{server}").exists())
    assert is_forked(forked(HAS_IMPORTED))


def test_a_program_is_executed_where_there_are_as_many_servers_as_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_server, "MOST_SERVERS", 0)
    assert forked("import sys; print('wave' in sys.modules)").stdout == "False\n"


def test_a_program_is_executed_once_its_server_has_failed_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise OSError("no more processes")

    with monkeypatch.context() as patch:
        patch.setattr(fork_server, "_popen", fails)
        for _ in range(fork_server.MOST_FAILURES):
            with pytest.raises(SandboxError, match="cannot be started: no more processes"):
                forked("print(1)")
        assert forked("import sys; print('wave' in sys.modules)").stdout == "False\n"


def test_descriptors_of_any_number_are_handed_over_and_too_many_for_a_message_are_inherited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    reading, writing = os.pipe()
    high = min(hard, 4096) - 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    try:
        os.dup2(writing, high)
        process = spawn(python(f"import os; os.write({high}, b'high')"), POLICY, (high,), preloaded=MODULES)
        assert process.outcome().ok
        assert os.read(reading, 10) == b"high"
        monkeypatch.setattr("runners.sandbox.launch.MOST_PASSED", 0)
        assert not is_forked(spawn(python(HAS_IMPORTED), POLICY, (high,), preloaded=MODULES).outcome())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in (reading, writing, high):
            os.close(descriptor)


def test_no_server_is_started_with_what_a_dynamic_linker_would_load() -> None:
    assert server_for(MODULES, {"LD_PRELOAD": "/tmp/anything.so"}, frozenset({0})) is None


def test_nobody_is_killed_by_a_user_that_could_not_give_up_its_capabilities(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Fail to give them up; kill(-1) would otherwise reach every process of the machine."""
    done: list[str] = []

    def refuses(_: int | None) -> None:
        raise OSError(errno.EPERM, "not permitted")

    def ends(_: int) -> None:
        done.append("ended")

    with monkeypatch.context() as patch:
        patch.setattr(confine, "keep_only", refuses)
        patch.setattr(os, "fork", lambda: 0)
        patch.setattr(os, "setresuid", lambda *_: done.append("changed"))
        patch.setattr(os, "kill", lambda *_: done.append("killed"))
        patch.setattr(os, "_exit", ends)
        with pytest.raises(OSError, match="not permitted"):
            confine.kill_user(12345)
    assert done == ["changed", "ended"]


def test_a_launcher_outlives_a_supervisor_that_does_not_read_its_reports_any_more() -> None:
    """Show that it goes on, since otherwise what the job has started would be left behind."""
    reading, writing = os.pipe()
    os.close(reading)
    confine.report(writing, "child-pid", 1)
    os.close(writing)


def test_a_module_that_cannot_be_imported_is_met_again_by_the_program(level: SandboxLevel) -> None:
    done = run(python("import nowhere_to_be_found"), POLICY, level=level, preloaded=("nowhere_to_be_found",))
    assert done.exit_code == 1 and "ModuleNotFoundError" in done.stderr


def test_a_sandbox_that_cannot_be_set_up_is_an_error_with_its_reason_and_no_outcome(
    level: SandboxLevel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runners.sandbox.landlock.filter_program", lambda *_, **__: b"no filter")
    with pytest.raises(SandboxError, match=r"could not be set up: (confine|bwrap): "):
        forked("print(1)", level=level)


def test_a_request_that_cannot_be_sent_ends_no_other_program_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    process = spawn(python("import time; time.sleep(60)"), POLICY, preloaded=MODULES)

    def refuses(*_: object) -> None:
        raise OSError(errno.EMFILE, "too many open files")

    with monkeypatch.context() as patch:
        patch.setattr("socket.send_fds", refuses)
        with pytest.raises(SandboxError, match="too many open files"):
            forked("print(1)")
    assert is_forked(forked(HAS_IMPORTED))
    assert process.alive
    process.kill()
    process.outcome()


def test_what_a_program_took_of_the_processor_is_known_however_short_it_was() -> None:
    done = forked("import time\nwhile time.process_time() < 0.03: pass")
    assert done.cpu_s >= 0.03


def test_a_failed_program_prints_its_own_lines_and_none_of_ours() -> None:
    assert "forking" not in forked("def f():\n    raise KeyError(1)\nf()").stderr


def test_a_caller_who_is_not_root_gets_the_same_confinement(level: SandboxLevel) -> None:
    """Join a namespace of users, in which a process has all capabilities at first.

    This caller ignores a signal, as whoever is started in the background does.
    """
    if os.geteuid() != 0 or not Path("/usr/bin/python3").exists():
        pytest.skip("starts the sandbox as another user")
    driver = (
        "import signal, sys; sys.path.insert(0, sys.argv[1]); from runners.sandbox import *;"
        "signal.signal(signal.SIGINT, signal.SIG_IGN);"
        "policy, level = SandboxPolicy(python_paths(), env={'NAMESPACES': sys.argv[4]}), SandboxLevel(sys.argv[2]);"
        "command = [sys.executable, '-I', '-c', sys.argv[3]];"
        "assert why_not_forked(level) is None;"
        "print(*[run(command, policy, level=level, preloaded=names).stdout.strip() for names in ((), ('wave',))],"
        " sep=chr(10))"
    )
    as_nobody = [
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "--",
        "/usr/bin/python3",
        "-B",
        "-I",
    ]
    done = subprocess.run(
        [*as_nobody, "-c", driver, str(Path(__file__).parents[2]), level.value, CONFINEMENT, OURS],
        env={"PATH": "/usr/bin:/bin"},
        cwd="/tmp",
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    executed, started = map(json.loads, done.stdout.splitlines())
    assert all(int(started[name], 16) == 0 for name in ("CapInh", "CapPrm", "CapEff", "CapAmb"))
    for limits in (executed["limits"], started["limits"]):
        del limits["RLIMIT_NPROC"]  # under Landlock it is counted from what nobody happens to run
    assert started == executed


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def eventually(condition: Callable[[], bool], seconds: float = 10) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()
