"""Fork sandboxed Python programs from an interpreter that has imported what they need. Run as a script:
`python -I forking.py SOCKET_FD IDLE_S MODULES`.

Importing torch takes a second or more of processor time, a fork some milliseconds. This process imports MODULES
(names with commas between them; absolute paths name files of ours that prepare something) and runs nothing else. It
has no secret and no variable but those of the sandbox, so a program that was forked from it finds nothing in its memory
that it must not know. All programs of a server share what is chosen when a process starts: the addresses of libraries,
the stack protector's value and Python's hash seed.

A request is one byte with descriptors: a sealed file with the configuration (`fork_server.ForkConfig`), and one for
each number in its `descriptors`. The answer is the launcher's process id with a descriptor of it. A launcher is forked
from here, does what `confine` does, and forks the program, which becomes what `python -I` with the rest of the
configuration's `argv` would be. With bubblewrap, the launcher first has it start a process that only waits, and the
program then joins that process's namespaces. Sources: setns(2), pidfd_open(2), pid_namespaces(7), user_namespaces(7).
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import importlib
import json
import os
import resource
import runpy
import select
import signal
import socket
import sys
import tempfile
import types
from pathlib import Path
from typing import Any, NoReturn

CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x02000000, 0x04000000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
ALWAYS_JOINED = CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNET
CGROUP_NAMESPACE = Path("/proc/self/ns/cgroup")
# Waits until its input ends, and repeats what it is told, which shows that everything is mounted.
WAITING = "/bin/cat"
MOST_DESCRIPTORS = 253  # SCM_MAX_FD, the kernel's limit for one message


def _confine() -> Any:
    """Load confine.py alone: importing its package would put other modules into every program's memory."""
    path = Path(__file__).with_name("confine.py")
    module = types.ModuleType("_confine")
    exec(compile(path.read_bytes(), str(path), "exec"), vars(module))  # noqa: S102 - a file of ours
    return module


confine = _confine()


def main() -> None:
    """Import, serve forks until the socket closes, and run the program in the process that a fork leads to."""
    requests = socket.socket(fileno=int(sys.argv[1]))
    confine.prctl(confine.PR_SET_PDEATHSIG, signal.SIGKILL)
    gc.disable()  # nothing that an import makes is garbage
    # Nobody else can have made a folder of that name, from which an import might load something.
    with tempfile.TemporaryDirectory() as home:
        os.environ.update(HOME=home, TMPDIR=home)
        for name in filter(None, sys.argv[3].split(",")):
            preload(name)
    gc.enable()
    # What exists before a fork stays out of garbage collection, which would otherwise write to it and copy its pages.
    gc.freeze()
    run(serve(requests, float(sys.argv[2])))


def preload(name: str) -> None:
    """Import a module or run a file. Failures are ignored: a program that needs the module fails on it itself."""
    with contextlib.suppress(Exception):
        if name.startswith("/"):
            runpy.run_path(name)
        else:
            importlib.import_module(name)


def serve(requests: socket.socket, idle_s: float) -> dict[str, Any]:
    """Answer requests; return only in a forked process that is to become the program, with its configuration.

    End when the socket closes, and when nothing was asked for `idle_s` and no launcher lives.
    """
    server, ended = os.getpid(), ChildSignals()
    while descriptors := requested(requests, ended, idle_s):
        pid = forked()
        if pid == 0:
            requests.detach()
            ended.forget()
            return launched(descriptors, server)
        for descriptor in descriptors:
            os.close(descriptor)
        answer(requests, pid)
    os._exit(0)


def requested(requests: socket.socket, ended: ChildSignals, idle_s: float) -> list[int]:
    """Wait for a request and return its descriptors, or none if the server is to end. Reap launchers meanwhile."""
    waiting = select.poll()  # `select` knows no descriptors above 1,023
    for descriptor in (requests.fileno(), ended.reading):
        waiting.register(descriptor, select.POLLIN)
    while True:
        ready = [descriptor for descriptor, _ in waiting.poll(idle_s * 1000)]
        if not ended.reap() and not ready:
            return []
        if requests.fileno() in ready:
            try:
                return socket.recv_fds(requests, 1, MOST_DESCRIPTORS)[1]
            except OSError:
                return []


class ChildSignals:
    """Wake up the server when a launcher has ended, and reap it once whoever asked for it has its descriptor."""

    def __init__(self) -> None:
        self.reading, self._writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)

    def reap(self) -> bool:
        """Reap all that have ended, and return whether others live."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.reading, 4096)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return False
        return True

    def forget(self) -> None:
        """Leave the signal as a fresh process finds it."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def forked() -> int:
    """Fork, and return what fork(2) returns; -1 where the machine has no room for another process."""
    try:
        return os.fork()
    except OSError:
        return -1


def answer(requests: socket.socket, pid: int) -> None:
    """Send the launcher's process id and a descriptor of it, or neither if there is none."""
    descriptors = []
    if pid > 0:
        with contextlib.suppress(OSError):
            descriptors.append(os.pidfd_open(pid))
    socket.send_fds(requests, [max(pid, 0).to_bytes(8, "little")], descriptors)
    for descriptor in descriptors:
        os.close(descriptor)


def launched(descriptors: list[int], server: int) -> dict[str, Any]:
    """Become the launcher, and return in the program. What goes wrong is printed, and ends the process."""
    try:
        with os.fdopen(descriptors.pop(0), "rb") as file:
            file.seek(0)  # an earlier server may have read it
            config: dict[str, Any] = json.load(file)
        lay_out(descriptors, config["descriptors"])
        join_group(config["group"])
        os.setsid()
        os.sched_setaffinity(0, config["cpus"])
        launch(config, server)
    except (OSError, ValueError) as error:
        end(f"forking: {error}", 1)
    except SystemExit as ended:
        end("" if ended.code is None else str(ended.code), int(ended.code is not None))
    return config


def lay_out(descriptors: list[int], numbers: list[int]) -> None:
    """Give every descriptor the number that it has in the supervisor, and close all others."""
    # The supervisor may have more than this process; the program's own limit is set later.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    above = max(numbers) + 1
    moved = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, above) for descriptor in descriptors]
    close_all_but(moved)
    for descriptor, number in zip(moved, numbers, strict=True):
        os.dup2(descriptor, number, inheritable=number <= 2)
        os.close(descriptor)


def close_all_but(kept: list[int]) -> None:
    for descriptor in map(int, os.listdir("/proc/self/fd")):  # noqa: PTH208
        if descriptor not in kept:
            with contextlib.suppress(OSError):  # the listing's own descriptor is closed already
                os.close(descriptor)


def join_group(procs: str) -> None:
    """Join a control group, given its file of process ids; everything that is forked from now on is in it."""
    if procs:
        with open(procs, "w") as file:  # noqa: PTH123
            file.write("0")


def launch(config: dict[str, Any], server: int) -> None:
    """Supervise the program and end with it; return in the confined program."""
    confine.become_launcher(server)
    launcher = os.getpid()
    spaces = Namespaces(config) if config["bubblewrap"] else None
    if not (child := confine.fork_child(lambda: enter(config, launcher, spaces))):
        return
    # The far end would not see the program close its channel while anybody else holds it open.
    for descriptor in config["own"]:
        os.close(descriptor)
    if spaces is None:
        confine.supervise(child, config["status_fd"], child, lambda: confine.end_all(config["uid"]))
    else:
        confine.supervise(child, config["status_fd"], spaces.init, spaces.end)
    end("", 0)


def enter(config: dict[str, Any], launcher: int, spaces: Namespaces | None) -> None:
    """Confine this process and return; within namespaces, do so in a child, while this process waits for it."""
    if spaces is None:
        confine.confine(config, launcher)
        return
    confine.prctl(confine.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != launcher:
        os._exit(1)
    confine.report(config["status_fd"], "waiting-pid", os.getpid())
    spaces.join()
    # Only children are born into a process namespace that was joined.
    if child := os.fork():
        # The launcher reads the pipe of `fork_child` until every process has closed it.
        os.closerange(0, os.sysconf("SC_OPEN_MAX"))
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        os._exit(code if code >= 0 else 128 - code)
    spaces.close()
    confine.confine(config, 0)


class Namespaces:
    """Hold namespaces that bubblewrap has made, with everything mounted, for as long as this process lives.

    `init` is the process id of their first process, seen from outside.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        status, report = os.pipe()
        waiting, self._held = os.pipe()
        answer, repeated = os.pipe()
        # A caller's own processes in the namespaces are within reach of a job that runs as the same user, so they have
        # its limits and its filter too.
        allowed = os.memfd_create("filter", 0)
        os.write(allowed, bytes.fromhex(config["filter"]))
        os.lseek(allowed, 0, os.SEEK_SET)
        os.set_inheritable(report, True)
        options = ["--seccomp", str(allowed), "--json-status-fd", str(report), "--"]
        os.posix_spawn(
            config["bubblewrap"][0],
            [*config["bubblewrap"], *options, *config["limiting"], WAITING],
            config["env"],
            file_actions=[(os.POSIX_SPAWN_DUP2, waiting, 0), (os.POSIX_SPAWN_DUP2, repeated, 1)],
            setsigmask=(),
        )
        for descriptor in (allowed, report, waiting, repeated):
            os.close(descriptor)
        os.write(self._held, b"0")
        if not os.read(answer, 1):
            sys.exit("")  # bubblewrap has printed why
        with os.fdopen(status) as lines:
            self.init = int(json.loads(lines.readline())["child-pid"])
        os.close(answer)
        self._pidfd = os.pidfd_open(self.init)

    def join(self) -> None:
        """Join all namespaces; that of processes is joined by children of this process.

        All at once: after joining a namespace of users, the others may be out of reach, which are owned by its parent.
        """
        # As root, bubblewrap makes no namespace of users, and the kernel refuses to join one's own.
        user = 0 if os.geteuid() == 0 else CLONE_NEWUSER
        cgroup = CLONE_NEWCGROUP if CGROUP_NAMESPACE.exists() else 0
        confine.checked(confine.libc.setns(self._pidfd, ALWAYS_JOINED | user | cgroup), "setns")

    def end(self) -> None:
        """End what is in the namespaces, and return when it is gone with bubblewrap and the process that waits."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while True:
                os.wait()

    def close(self) -> None:
        """Leave the namespaces to the launcher alone."""
        os.close(self._pidfd)
        os.close(self._held)


def run(config: dict[str, Any]) -> None:
    """Run what `python -I` would run with the rest of the command line."""
    os.environ.clear()
    os.environ.update(config["env"])
    tempfile.tempdir = None  # where imports found it may not be where this program's is
    for descriptor in config["own"]:
        os.set_inheritable(descriptor, True)
    sys.excepthook = print_own_frames
    first, *rest = config["argv"]
    if first != "-c":
        sys.argv = [first, *rest]
        runpy.run_path(first, run_name="__main__")
        return
    sys.argv = ["-c", *rest[1:]]
    program = sys.modules["__main__"] = types.ModuleType("__main__")
    exec(compile(rest[0], "<string>", "exec"), vars(program))  # noqa: S102 - the supervisor's command line


def print_own_frames(kind: type[BaseException], error: BaseException, trace: types.TracebackType | None) -> None:
    """Print an exception that ends the program, from the program's first frame on."""
    while trace is not None and trace.tb_frame.f_code.co_filename in (__file__, runpy.__file__):
        trace = trace.tb_next
    sys.__excepthook__(kind, error.with_traceback(trace), trace)


def end(message: str, code: int) -> NoReturn:
    """End this process without what an interpreter does at its end, which is the program's to do."""
    os.write(2, message.encode("utf-8", "replace"))
    os._exit(code)


if __name__ == "__main__":
    main()
