"""Confine a process, with Landlock or within bubblewrap's namespaces. Run as a script,
`python -I -S confine.py CONFIG_FD`, for a command at the Landlock level; `forking` loads it for programs that it forks.

It imports nothing of this package, so that a launch stays cheap, and does two things. The *child* gives up privileges
in this order: limits → user id and capabilities → Landlock → system-call filter → exec. The *parent* stays outside as
the child's subreaper: it adopts every orphan, kills all of them when the child ends or when it receives SIGTERM
(which the kernel also sends when the supervisor dies), and reports the exit code.

The descriptor CONFIG_FD holds a JSON object; `landlock.Config` describes it. Sources: landlock(7), linux/landlock.h,
capabilities(7), seccomp(2), prctl(2).
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

LANDLOCK_CREATE_RULESET, LANDLOCK_ADD_RULE, LANDLOCK_RESTRICT_SELF = 444, 445, 446
LANDLOCK_VERSION_FLAG, LANDLOCK_PATH_BENEATH = 1, 1
FS_EXECUTE, FS_WRITE_FILE, FS_READ_FILE, FS_READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
FS_MAKE_CHAR, FS_MAKE_SOCK, FS_MAKE_BLOCK = 1 << 6, 1 << 9, 1 << 11
FS_TRUNCATE, FS_IOCTL_DEV = 1 << 14, 1 << 15
# From linux/landlock.h. Asking for a right that the kernel does not know makes the whole ruleset fail.
FS_RIGHTS_BY_ABI = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}  # how many of the rights an ABI knows
FS_OF_FILES = FS_EXECUTE | FS_WRITE_FILE | FS_READ_FILE | FS_TRUNCATE | FS_IOCTL_DEV
NET_BIND_AND_CONNECT_TCP, SCOPE_ABSTRACT_UNIX_AND_SIGNALS = 3, 3
ABI_WITH_NET, ABI_WITH_SCOPE = 4, 6

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_CAPBSET_DROP, PR_SET_KEEPCAPS = 1, 4, 22, 24, 8
PR_SET_NO_NEW_PRIVS, PR_SET_CHILD_SUBREAPER = 38, 36
PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, PR_CAP_AMBIENT_CLEAR_ALL = 47, 2, 4
SECCOMP_MODE_FILTER, CAPABILITY_VERSION_3, LAST_POSSIBLE_CAPABILITY = 2, 0x20080522, 63
CAP_DAC_READ_SEARCH = 2

libc = ctypes.CDLL(None, use_errno=True)


class RulesetAttributes(ctypes.Structure):
    """Mirror struct landlock_ruleset_attr."""

    _fields_ = (("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class PathBeneath(ctypes.Structure):
    """Mirror struct landlock_path_beneath_attr, which is packed."""

    # The kernel's structure is packed: 12 bytes, not 16.
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


class FilterProgram(ctypes.Structure):
    """Mirror struct sock_fprog."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def checked(result: int, what: str) -> int:
    """Return the result of a C call. Raises OSError with its errno and `what` if it is negative."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def prctl(option: int, *values: int) -> int:
    arguments = [ctypes.c_ulong(value) for value in (*values, 0, 0, 0, 0)[:4]]
    return checked(libc.prctl(option, *arguments), f"prctl({option})")


def landlock_abi() -> int:
    """Return the kernel's Landlock version, or 0 if it has none."""
    return max(int(libc.syscall(LANDLOCK_CREATE_RULESET, None, 0, LANDLOCK_VERSION_FLAG)), 0)


def set_limits(config: dict[str, Any]) -> None:
    for name, value in config["rlimits"].items():
        # RLIMIT_NPROC counts all tasks of the user, not those of the job. Without a user of its own, or a namespace of
        # users, the job gets its number on top of what the user already runs.
        if name == "nproc" and config["uid"] is None and not config.get("bubblewrap"):
            value += tasks_of(os.getuid())
        number = getattr(resource, f"RLIMIT_{name.upper()}")
        hard = resource.getrlimit(number)[1]
        # Small machines and containers allow a user fewer tasks than that, and nobody may raise what he is allowed.
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(number, (value, value))


def tasks_of(uid: int) -> int:
    """Return how many tasks a user already runs, because the kernel's limit counts them too."""
    count = 0
    for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208 - pathlib would cost a launch 5 ms
        try:
            if os.stat(f"/proc/{name}").st_uid == uid:  # noqa: PTH116
                count += len(os.listdir(f"/proc/{name}/task"))  # noqa: PTH208
        except OSError:
            continue
    return count


def become(config: dict[str, Any]) -> None:
    """Change to the job's user with no capability but, where asked for, the right to pass closed directories."""
    # Required for Landlock and seccomp without privileges, and makes setuid programs harmless.
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    kept = CAP_DAC_READ_SEARCH if config["keep_search"] else None
    # The result is ignored because the kernel rejects numbers above the last capability that it knows, and any number
    # from a process without capabilities.
    for capability in set(range(LAST_POSSIBLE_CAPABILITY + 1)) - {kept}:
        libc.prctl(PR_CAPBSET_DROP, ctypes.c_ulong(capability), 0, 0, 0)
    if config["uid"] is not None:
        # A change of user clears all capabilities unless KEEPCAPS is set first.
        prctl(PR_SET_KEEPCAPS, int(config["keep_search"]))
        # Groups first, the user last: without root, neither setgroups(2) nor setresgid(2) would be permitted.
        os.setgroups(config["groups"])
        os.setresgid(config["uid"], config["uid"], config["uid"])
        os.setresuid(config["uid"], config["uid"], config["uid"])
    # Also of a process that stays the caller's user: one that has joined a namespace of users has all capabilities
    # there, and nothing is executed that would lose them.
    keep_only(kept)


def keep_only(capability: int | None) -> None:
    """Give up all capabilities but one, or all of them."""
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    low = 0 if capability is None else 1 << capability
    sets = (ctypes.c_uint32 * 6)(low, low, low, 0, 0, 0)  # effective, permitted, inheritable; low and high
    checked(libc.capset(header, sets), "capset")
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    if capability is not None:
        # Only an ambient capability survives exec of a program without file capabilities.
        prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, capability)


def restrict_files(config: dict[str, Any]) -> None:
    """Close every file but the listed paths with Landlock, and TCP, abstract sockets and signals if the kernel can."""
    abi = landlock_abi()
    handled = (1 << FS_RIGHTS_BY_ABI.get(abi, 16)) - 1
    net = NET_BIND_AND_CONNECT_TCP if abi >= ABI_WITH_NET else 0
    scoped = SCOPE_ABSTRACT_UNIX_AND_SIGNALS if abi >= ABI_WITH_SCOPE else 0
    # The structure grew with the ABI, and a kernel rejects one that is longer than it knows with bits set.
    size = 24 if abi >= ABI_WITH_SCOPE else 16 if abi >= ABI_WITH_NET else 8
    attributes = RulesetAttributes(handled, net, scoped)
    create = libc.syscall(LANDLOCK_CREATE_RULESET, ctypes.byref(attributes), size, 0)
    ruleset = checked(create, "landlock_create_ruleset")
    reading = FS_EXECUTE | FS_READ_FILE | FS_READ_DIR
    # Device nodes and sockets are not created even in writable paths: a device node would open the host's devices, a
    # socket would reach processes outside.
    writing = handled & ~(FS_MAKE_CHAR | FS_MAKE_SOCK | FS_MAKE_BLOCK | FS_IOCTL_DEV)
    nodes = handled & (FS_READ_FILE | FS_READ_DIR | FS_WRITE_FILE | FS_IOCTL_DEV | FS_TRUNCATE)
    add_rules(ruleset, config["read_only"], reading)
    add_rules(ruleset, config["writable"], writing)
    add_rules(ruleset, config["nodes"], nodes)
    checked(libc.syscall(LANDLOCK_RESTRICT_SELF, ruleset, 0), "landlock_restrict_self")
    os.close(ruleset)


def add_rules(ruleset: int, paths: Iterable[str], rights: int) -> None:
    for path in paths:
        try:
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        # The kernel rejects a rule that grants directory rights on a file.
        allowed = rights if os.path.isdir(path) else rights & FS_OF_FILES  # noqa: PTH112
        rule = PathBeneath(allowed, fd)
        add = libc.syscall(LANDLOCK_ADD_RULE, ruleset, LANDLOCK_PATH_BENEATH, ctypes.byref(rule), 0)
        checked(add, f"landlock_add_rule {path}")
        os.close(fd)


def filter_calls(program: bytes) -> None:
    prog = FilterProgram(len(program) // 8, program)
    checked(libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(prog), 0, 0), "seccomp")


def confine(config: dict[str, Any], parent: int) -> None:
    """Take every step in an order in which each is still permitted.

    `parent` is the process at whose end this one must end; 0 if that lies outside this process namespace.
    """
    os.chdir(config["scratch"])
    # A session of its own: no controlling terminal, and signals of the caller's group do not arrive.
    os.setsid()
    set_limits(config)
    become(config)
    # A change of user closes a process to itself in /proc, until it executes something.
    prctl(PR_SET_DUMPABLE, 1)
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # after the change of user, which clears it
    # The parent may have died before the death signal was requested, in which case it never arrives.
    if os.getppid() != parent:
        os._exit(1)
    if config["landlock"]:
        restrict_files(config)
    # The filter comes last, because it forbids calls that the steps above need.
    filter_calls(bytes.fromhex(config["filter"]))
    # The job must not hold the status pipe, or it could report an exit code of its own.
    os.close(config["status_fd"])
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def fork_child(prepare: Callable[[], None]) -> int:
    """Fork a child that calls `prepare`, and return its process id; return 0 in the child.

    If `prepare` fails, print why and end both. The child closes a pipe once `prepare` has returned; an error is written
    to it.
    """
    told, tell = os.pipe()
    if pid := os.fork():
        os.close(tell)
        with os.fdopen(told, "rb") as failure:
            if message := failure.read():
                os.waitpid(pid, 0)
                sys.exit(message.decode("utf-8", "replace"))
        return pid
    os.close(told)
    try:
        prepare()
    except (OSError, ValueError) as error:
        os.write(tell, f"confine: {error}".encode())
        os._exit(1)
    os.close(tell)
    return 0


def execute(config: dict[str, Any]) -> NoReturn:
    """Become the job's command."""
    # Python ignores these, which a program would inherit. What our caller ignores, the program does too, as under
    # bubblewrap.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(config["argv"][0], config["argv"], os.environ)  # noqa: S606 - the sandbox's purpose
    except OSError as error:
        os.write(2, f"{config['argv'][0]}: {error.strerror}\n".encode())
        os._exit(127)


def supervise(child_pid: int, status_fd: int, reported: int, end: Callable[[], None]) -> None:
    """Reap children until the child ends or a stop is requested, then call `end` and report the exit code.

    `reported` is the process that the supervisor is told of, the child or that with which everything ends. `end` ends
    all that is left, and returns when it is gone.
    """
    report(status_fd, "child-pid", reported)
    code = None
    while code is None:
        # Waiting for both signals at once leaves no moment in which one could be missed.
        number = signal.sigwait({signal.SIGCHLD, signal.SIGTERM})
        if number == signal.SIGTERM:
            break
        code = reap(child_pid)
    end()
    taken = resource.getrusage(resource.RUSAGE_CHILDREN)
    report(status_fd, "cpu-ms", round(1000 * (taken.ru_utime + taken.ru_stime)))
    if code is not None:
        report(status_fd, "exit-code", code)


def report(status_fd: int, name: str, value: int) -> None:
    """Tell the supervisor. If it is dead, a signal is about to say so, and the job must be ended then."""
    try:
        os.write(status_fd, json.dumps({name: value}).encode() + b"\n")
    except BrokenPipeError:
        return


def reap(child_pid: int) -> int | None:
    """Collect every dead child; the exit code of the one that counts, 128 + n for signal n."""
    code = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return code
        if pid == 0:
            return code
        if pid == child_pid:
            number = os.waitstatus_to_exitcode(status)
            code = number if number >= 0 else 128 - number


def end_all(uid: int | None) -> None:
    """Kill until nobody is left: orphans come to us, the subreaper, and the processes of a user id of its own
    can be killed in one call that no fork escapes."""
    while True:
        # kill(-1) signals every process of the user in one pass inside the kernel, so no fork can outrun it.
        if uid is not None:
            kill_user(uid)
        for pid in descendants():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        # A killed process may need time to die; wait for its signal or look again soon.
        signal.sigtimedwait({signal.SIGCHLD}, 0.005)


def kill_user(uid: int) -> None:
    if pid := os.fork():
        os.waitpid(pid, 0)
        return
    # As root, kill(-1) would hit every process on the machine, so become the job's user first. Where the securebits
    # forbid that to clear capabilities (SECBIT_NO_SETUID_FIXUP), CAP_KILL would remain.
    try:
        os.setresuid(uid, uid, uid)
        keep_only(None)
        os.kill(-1, signal.SIGKILL)
    finally:
        os._exit(0)


def descendants() -> list[int]:
    found = [os.getpid()]
    for pid in found:
        try:
            for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208
                with open(f"/proc/{pid}/task/{thread}/children") as file:  # noqa: PTH123
                    found += map(int, file.read().split())
        except OSError:
            continue
    return found[1:]


def become_launcher(supervisor: int) -> None:
    """Adopt the job's orphans, and ask for SIGTERM when the supervisor dies. Exits if it is gone."""
    # Blocked signals stay pending until sigwait takes them.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, signal.SIGTERM})
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != supervisor:
        sys.exit("confine: the supervisor is gone")


def main() -> None:
    with os.fdopen(int(sys.argv[1]), "rb") as file:
        config = json.load(file)
    become_launcher(config["supervisor"])
    launcher = os.getpid()
    if child := fork_child(lambda: confine(config, launcher)):
        supervise(child, config["status_fd"], child, lambda: end_all(config["uid"]))
    else:
        execute(config)


if __name__ == "__main__":
    main()
