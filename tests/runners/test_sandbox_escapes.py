"""Every way out of the sandbox that we know, tried at both levels, each with a control: the same attack
outside the sandbox must print ESCAPED, or the test proves nothing."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest

from runners.sandbox import (
    Completed,
    Devices,
    KillReason,
    ResourceLimits,
    ResultFileError,
    SandboxLevel,
    SandboxPolicy,
    python_paths,
    read_result_file,
    run,
    share,
    spawn,
    sweep_orphans,
)
from runners.sandbox.probe import why_not
from runners.sandbox.supervisor import supervisor_name
from runners.sandbox.workspace import work_root

pytestmark = pytest.mark.processes

T = TypeVar("T")
INTERPRETER = [str(Path(sys.executable).resolve()), "-I", "-S", "-c"]
ROOT = os.geteuid() == 0
CANARY = "canary-5f1c0a77"
AS_NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"]
REPOSITORY = Path(__file__).parents[2]

PRELUDE = """
import ctypes, errno, json, mmap, os, signal, socket, struct, sys, time
given = json.loads(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
def syscall(number, *arguments):
    arguments = [a if isinstance(a, (bytes, type(None))) or not isinstance(a, int) else ctypes.c_long(a)
                 for a in arguments]
    result = libc.syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
ARM = os.uname().machine == "aarch64"
def escaped(what=""):
    print("ESCAPED", what, flush=True)
    sys.exit(0)
def wait_to_be_ended():
    time.sleep(4 if given.get('watched', True) else 0)
try:
    attack = sys.argv[2]
    exec(attack)
except Exception as error:
    print("held:", type(error).__name__, error, flush=True)
else:
    print("held: nothing came of it", flush=True)
"""


@dataclass(frozen=True)
class Attack:
    """`code` calls `escaped()` when it gets out. `needs_root`: the control succeeds only as root.
    `may_lack`: a kernel feature without which there is nothing to escape through. `left_behind`: the file
    name the attack leaves in the writable directory."""

    code: str
    needs_root: bool = False
    may_lack: str = ""
    limits: ResourceLimits = field(default_factory=lambda: ResourceLimits(wall_s=10))


NETWORK = {
    "connects to a TCP port of the host": Attack(
        "socket.create_connection(('127.0.0.1', given['port']), 1); escaped()"
    ),
    "sends a UDP datagram": Attack(
        "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', 9)); escaped()"
    ),
    "connects to a UNIX socket of the host": Attack(
        "socket.socket(socket.AF_UNIX).connect(given['unix_stream']); escaped()"
    ),
    "connects to an abstract UNIX socket": Attack(
        "socket.socket(socket.AF_UNIX).connect(chr(0) + given['abstract']); escaped()"
    ),
    "sends to a UNIX name from a datagram pair": Attack(
        "a, b = socket.socketpair(type=socket.SOCK_DGRAM); a.sendto(b'x', given['unix_datagram']); escaped()"
    ),
    "opens a virtual-machine socket": Attack(
        "socket.socket(40, socket.SOCK_STREAM); escaped()", may_lack="AF_VSOCK"
    ),
    "opens a netlink socket": Attack("socket.socket(socket.AF_NETLINK, socket.SOCK_RAW); escaped()"),
}

FILES = {
    "reads /etc/shadow": Attack("open('/etc/shadow').read(); escaped()", needs_root=True),
    "has the compiler read /etc/shadow": Attack(
        """
import subprocess
command = ['g++', '-E', '-x', 'c++', '-include', '/etc/shadow', '/dev/null']
'root:' in subprocess.run(command, capture_output=True, text=True).stdout and escaped()""",
        needs_root=True,
    ),
    "reads a file of another job": Attack("open(given['other_job']).read(); escaped()"),
    "reads the repository": Attack("open(given['repository'] + '/pyproject.toml').read(); escaped()"),
    "reads the configuration of the host": Attack("open('/etc/passwd').read(); escaped()"),
    "writes a file it may read": Attack("open(given['readable'], 'a'); escaped()"),
    "truncates a file it may read": Attack("os.truncate(given['readable'], 3); escaped()"),
    "changes the mode of a file it may read": Attack("os.chmod(given['readable'], 0o666); escaped()"),
    "removes a file it may read": Attack("os.unlink(given['readable']); escaped()"),
    "writes into the interpreter's library": Attack("open(given['library'], 'ab'); escaped()", needs_root=True),
    "writes into /usr": Attack("open('/usr/' + given['name'], 'w'); escaped()", needs_root=True),
    "writes into /": Attack("open('/' + given['name'], 'w'); escaped()", needs_root=True),
    "writes into /dev": Attack("open('/dev/' + given['name'], 'w'); escaped()", needs_root=True),
    "makes a device node": Attack("os.mknod(given['writable'] + '/node', 0o600 | 0o020000, 259); escaped()", True),
    "links a foreign file into its own directory": Attack(
        "os.link(given['other_job'], given['writable'] + '/link'); escaped()"
    ),
    "reads through an inherited descriptor": Attack("os.pread(given['fd'], 10, 0); escaped()"),
    "opens a file by its handle": Attack(
        """
number = (264, 265) if ARM else (303, 304)
handle, mount_id = ctypes.create_string_buffer(struct.pack('Ii', 128, 0), 136), ctypes.c_int()
here = given['other_job'].encode() if os.path.exists(given['other_job']) else b'/usr'
syscall(number[0], -100, here, handle, ctypes.byref(mount_id), 0)
syscall(number[1], os.open('/usr', os.O_RDONLY), handle, os.O_RDONLY); escaped()""",
        needs_root=True,
    ),
}

PROCESSES = {
    "reads secrets from its environment": Attack("os.environ['KS_CANARY'] == given['canary'] and escaped()"),
    "reads secrets from the environment of others": Attack(
        """
for pid in filter(str.isdigit, os.listdir('/proc')):
    try:
        found = given['canary'].encode() in open(f'/proc/{pid}/environ', 'rb').read()
    except OSError:
        continue
    found and escaped()"""
    ),
    "reads the environment of one process": Attack("open(f'/proc/{given[\"victim\"]}/environ').read(); escaped()"),
    "reads the environment of its supervisor": Attack(
        "open(f'/proc/{os.getppid()}/environ', 'rb').read().hex() == given['supervisor_environment'] and escaped()"
    ),
    "sees the command line of another process": Attack(
        "open(f'/proc/{given[\"victim\"]}/cmdline').read(); escaped()"
    ),
    "traces another process": Attack("syscall(117 if ARM else 101, 16, given['victim'], 0, 0); escaped()"),
    "lets itself be traced": Attack("syscall(117 if ARM else 101, 0, 0, 0, 0); escaped()"),
    "reads the memory of another process": Attack(
        """
first = open(f'/proc/{given["victim"]}/maps').readline().split('-')[0]
os.pread(os.open(f'/proc/{given["victim"]}/mem', os.O_RDONLY), 8, int(first, 16)); escaped()"""
    ),
    "copies the memory of a process": Attack(
        """
class Vector(ctypes.Structure): _fields_ = [('base', ctypes.c_void_p), ('size', ctypes.c_size_t)]
text, copy = ctypes.create_string_buffer(b'x'), ctypes.create_string_buffer(1)
here, there = Vector(ctypes.addressof(copy), 1), Vector(ctypes.addressof(text), 1)
syscall(270 if ARM else 310, os.getpid(), ctypes.byref(here), 1, ctypes.byref(there), 1, 0); escaped()"""
    ),
    "signals another process": Attack("os.kill(given['victim'], 0); escaped()"),
    "stops another process": Attack("os.kill(given['victim'], signal.SIGCONT); escaped()"),
    "takes a descriptor from another process": Attack(
        "syscall(438, os.pidfd_open(given['victim']), 0, 0); escaped()"
    ),
}

KERNEL = {
    "makes a user namespace": Attack("syscall(97 if ARM else 272, 0x10000000); escaped()"),
    "makes a user namespace by clone": Attack(
        """
pid = syscall(220 if ARM else 56, 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0)
if pid == 0: os._exit(0)
escaped()"""
    ),
    "makes a user namespace by clone3": Attack(
        """
arguments = ctypes.create_string_buffer(struct.pack('8Q', 0x10000000, 0, 0, 0, signal.SIGCHLD, 0, 0, 0))
pid = syscall(435, arguments, 64)
if pid == 0: os._exit(0)
escaped()"""
    ),
    "mounts": Attack(
        """
target = given['writable'].encode()
syscall(40 if ARM else 165, b'x', target, b'tmpfs', 0, None); syscall(39 if ARM else 166, target, 0); escaped()""",
        needs_root=True,
    ),
    "changes its root": Attack("os.chroot('/usr'); escaped()", needs_root=True),
    "becomes root": Attack("os.setuid(0); escaped()", needs_root=True),
    "runs a set-user-id program": Attack(
        """
import subprocess
command = [given['setuid'], '-I', '-S', '-c', 'import os; print(os.geteuid())']
if os.geteuid() == 0: command = ['/usr/bin/setpriv', '--reuid=65534', '--clear-groups', *command]
'0' == subprocess.run(command, capture_output=True, text=True).stdout.strip() and escaped()""",
        needs_root=True,
    ),
    "makes a memory file": Attack("os.memfd_create('x'); escaped()"),
    "makes System V shared memory": Attack(
        "number = syscall(194 if ARM else 29, 0, 4096, 0o600); libc.shmctl(number, 0, None); escaped()"
    ),
    "makes a System V message queue": Attack(
        "number = syscall(186 if ARM else 68, 0, 0o600); libc.msgctl(number, 0, None); escaped()"
    ),
    "makes a POSIX message queue": Attack(
        """
name = given['name'].encode()
syscall(180 if ARM else 240, name, 0o102, 0o600, None); syscall(181 if ARM else 241, name); escaped()""",
        may_lack="mqueue",
    ),
    "makes an io_uring": Attack(
        "syscall(425, 4, ctypes.create_string_buffer(120)); escaped()", may_lack="io_uring"
    ),
    "adds a key to a keyring": Attack(
        "syscall(217 if ARM else 248, b'user', b'kernelsci', b'x', 1, -1); escaped()", may_lack="keyrings"
    ),
    "reads a keyring": Attack("syscall(219 if ARM else 250, 0, -3, 1); escaped()", may_lack="keyrings"),
    "handles page faults": Attack("syscall(282 if ARM else 323, 1); escaped()", may_lack="userfaultfd"),
    "makes a BPF map": Attack(
        "syscall(280 if ARM else 321, 0, ctypes.create_string_buffer(struct.pack('IIIII', 2, 4, 4, 1, 0), 72), 72);"
        "escaped()",
        needs_root=True,
        may_lack="bpf",
    ),
    "counts performance events": Attack(
        "syscall(241 if ARM else 298, ctypes.create_string_buffer(struct.pack('IIQ', 1, 112, 0), 112), 0, -1, -1, 0);"
        "escaped()",
        may_lack="perf events",
    ),
    "changes its personality": Attack("syscall(92 if ARM else 135, 0x0040000); escaped()"),
    "calls through the 32-bit interface": Attack(
        """
code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
code.write(bytes.fromhex('53b814000000cd805bc3'))  # push rbx; mov eax, 20 (getpid); int 0x80; pop rbx; ret
address = ctypes.addressof(ctypes.c_char.from_buffer(code))
ctypes.CFUNCTYPE(ctypes.c_int)(address)() > 0 and escaped()""",
        may_lack="32-bit x86",
    ),
}

RESOURCES = {
    "forks without end": Attack(
        """
children = []
try:
    while len(children) < 300:
        pid = os.fork()
        if pid == 0:
            time.sleep(20); os._exit(0)
        children.append(pid)
    escaped(len(children))
finally:
    for pid in children: os.kill(pid, signal.SIGKILL)""",
        limits=ResourceLimits(wall_s=10, processes=64),
    ),
    "takes memory at one go": Attack(
        "block = bytearray(700 << 20); block[::4096] = b'x' * len(block[::4096]); escaped()",
        limits=ResourceLimits(wall_s=10, memory_bytes=128 << 20),
    ),
    "takes memory through many processes": Attack(
        """
children, (taken, told) = [], os.pipe()
for _ in range(4):
    pid = os.fork()
    if pid == 0:
        block = bytearray(100 << 20); block[::4096] = b'x' * len(block[::4096])
        os.write(told, b'x'); time.sleep(60); os._exit(0)
    children.append(pid)
for _ in children: os.read(taken, 1)
time.sleep(1)
for pid in children: os.kill(pid, signal.SIGKILL)
escaped()""",
        limits=ResourceLimits(wall_s=40, memory_bytes=200 << 20),
    ),
    "takes memory through its scratch directory": Attack(
        """
for number in range(200):
    with open(os.environ['TMPDIR'] + f'/{number}', 'wb') as file: file.write(bytes(1 << 20))
    time.sleep(0.003)
escaped()""",
        limits=ResourceLimits(wall_s=10, scratch_bytes=32 << 20),
    ),
    "fills the disk through its writable directory": Attack(
        """
for number in range(200):
    with open(given['writable'] + f'/{number}', 'wb') as file: file.write(bytes(1 << 20))
    time.sleep(0.003)
escaped()""",
        limits=ResourceLimits(wall_s=10, scratch_bytes=32 << 20),
    ),
    "takes memory through page tables": Attack(
        """
import mmap
area = mmap.mmap(-1, 64 << 30, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000, mmap.PROT_READ)
area.madvise(15)  # MADV_NOHUGEPAGE
for place in range(0, 64 << 30, 2 << 20): area[place]
wait_to_be_ended()
escaped()""",
        limits=ResourceLimits(wall_s=30, memory_bytes=64 << 20),
    ),
    "takes memory through sockets": Attack(
        """
pairs = []
for _ in range(400):
    a, b = socket.socketpair()
    a.setblocking(False)
    pairs.append((a, b))
    try:
        while True: a.send(bytes(65536))
    except BlockingIOError: pass
wait_to_be_ended()
escaped()""",
        limits=ResourceLimits(wall_s=30, memory_bytes=64 << 20),
    ),
    "enlarges the buffer of a socket": Attack(
        "a, b = socket.socketpair(); a.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20); escaped()"
    ),
    "fills the disk below a path that is too long": Attack(
        """
own = given['writable'] + '/' + str(time.monotonic_ns())
os.mkdir(own)
here = os.open(own, os.O_RDONLY)
for _ in range(40):
    os.mkdir('d' * 250, dir_fd=here)
    here = os.open('d' * 250, os.O_RDONLY, dir_fd=here)
for number in range(64):
    file = os.open(str(number), os.O_CREAT | os.O_WRONLY, dir_fd=here)
    os.write(file, bytes(1 << 20))
    os.close(file)
wait_to_be_ended()
escaped()""",
        limits=ResourceLimits(wall_s=30, scratch_bytes=32 << 20),
    ),
    "fills the disk with files that have no name": Attack(
        """
files = []
for number in range(64):
    name = given['writable'] + '/unnamed'
    files.append(os.open(name, os.O_CREAT | os.O_WRONLY))
    os.unlink(name)
    os.write(files[-1], bytes(1 << 20))
wait_to_be_ended()
escaped()""",
        limits=ResourceLimits(wall_s=30, scratch_bytes=32 << 20),
    ),
    "fills the disk below many folders": Attack(
        """
own = given['writable'] + '/' + str(time.monotonic_ns())
os.mkdir(own)
for number in range(700):
    os.mkdir(own + f'/{number}')
with open(own + '/350/data', 'wb') as file: file.write(bytes(64 << 20))
wait_to_be_ended()
escaped()""",
        limits=ResourceLimits(wall_s=30, scratch_bytes=32 << 20),
    ),
    "writes one huge file": Attack(
        """
with open(given['writable'] + '/huge', 'wb') as file:
    for _ in range(80): file.write(bytes(1 << 20)); file.flush()
escaped()""",
        limits=ResourceLimits(wall_s=10, file_bytes=16 << 20),
    ),
    "opens files without end": Attack(
        "files = [os.open('/dev/null', os.O_RDONLY) for _ in range(700)]; escaped()",
        limits=ResourceLimits(wall_s=10, open_files=256),
    ),
    "burns processor time": Attack(
        """
end = time.process_time() + 1.4
while time.process_time() < end: pass
escaped()""",
        limits=ResourceLimits(wall_s=60, cpu_s=1),
    ),
    "prints without end": Attack(
        """
for _ in range(40): os.write(2, b'x' * (1 << 20))
escaped()""",
        limits=ResourceLimits(wall_s=10, output_bytes=4 << 20),
    ),
}

ATTACKS = {**NETWORK, **FILES, **PROCESSES, **KERNEL, **RESOURCES}


@pytest.fixture(scope="module", params=[SandboxLevel.BUBBLEWRAP, SandboxLevel.LANDLOCK], ids=str)
def level(request: pytest.FixtureRequest) -> SandboxLevel:
    found: SandboxLevel = request.param
    if reason := why_not(found):
        pytest.skip(f"this machine lacks {found}: {reason}")
    return found


@pytest.fixture(scope="module")
def controls() -> dict[str, str]:
    """Return what each attack printed outside the sandbox; the same for both levels."""
    return {}


@pytest.fixture
def playground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Provide what the attacks are after: sockets, files, a victim process and an inherited descriptor."""
    monkeypatch.setenv("KS_CANARY", CANARY)
    with contextlib.ExitStack() as stack:
        yield {
            **_sockets(tmp_path, stack),
            **_files(tmp_path, stack),
            "victim": _victim(stack).pid,
            "supervisor_environment": Path("/proc/self/environ").read_bytes().hex(),
            "canary": CANARY,
            "name": f"ks-escape-{os.getpid()}",
        }
    _remove_what_controls_left(f"ks-escape-{os.getpid()}")


def _sockets(folder: Path, stack: contextlib.ExitStack) -> dict[str, Any]:
    tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    abstract = f"ks-escape-{os.getpid()}-{time.monotonic_ns()}"
    for kind, name in ((socket.SOCK_STREAM, "stream"), (socket.SOCK_DGRAM, "datagram"), (socket.SOCK_STREAM, None)):
        server = stack.enter_context(socket.socket(socket.AF_UNIX, kind))
        server.bind(str(folder / name) if name else f"\0{abstract}")
        if kind == socket.SOCK_STREAM:
            server.listen(8)
    return {
        "port": tcp.getsockname()[1],
        "abstract": abstract,
        "unix_stream": str(folder / "stream"),
        "unix_datagram": str(folder / "datagram"),
    }


def _files(folder: Path, stack: contextlib.ExitStack) -> dict[str, Any]:
    names = ("shown", "other", "out")
    shown, other, out = (folder / name for name in names)
    for path in (shown, other, out):
        path.mkdir()
    (shown / "readable").write_text("0123456789")
    (other / "secret").write_text("secret")
    setuid = shown / "setuid"
    setuid.write_bytes(Path("/usr/bin/python3").resolve().read_bytes() if ROOT else b"")
    setuid.chmod(0o4755)
    library = Path(os.__file__)
    descriptor = os.open(other / "secret", os.O_RDONLY)
    stack.callback(os.close, descriptor)
    os.set_inheritable(descriptor, True)
    _open_the_way_to(folder)
    return {
        "shown": str(share(shown)),
        "readable": str(shown / "readable"),
        "other_job": str(other / "secret"),
        "writable": str(out),
        "setuid": str(setuid),
        "library": str(library),
        "repository": str(REPOSITORY),
        "fd": descriptor,
    }


def _open_the_way_to(folder: Path) -> None:
    """Open pytest's directories, which are closed to others; a job's directories are not."""
    for parent in (folder, *folder.parents):
        if parent.owner() == Path(folder).owner() and str(parent).startswith("/tmp/pytest"):
            parent.chmod(parent.stat().st_mode | stat.S_IXOTH | stat.S_IROTH)


def _victim(stack: contextlib.ExitStack) -> subprocess.Popen[bytes]:
    victim = subprocess.Popen(["/bin/sleep", "60"], env={"KS_CANARY": CANARY})
    stack.callback(victim.wait)
    stack.callback(victim.kill)
    return victim


def _remove_what_controls_left(name: str) -> None:
    for folder in ("/usr", "/", "/dev"):
        with contextlib.suppress(OSError):
            (Path(folder) / name).unlink()


# A forked program has imported modules, and Python's site packages are there.
STARTS = {"executed": (INTERPRETER, ()), "forked": ([sys.executable, "-I", "-c"], ("json",))}


@pytest.fixture(scope="module", params=STARTS)
def start(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


def attack_inside(
    attack: Attack, given: dict[str, Any], level: SandboxLevel, start: str = "executed", **policy_extra: Any
) -> Completed:
    interpreter, preloaded = STARTS[start]
    policy = SandboxPolicy(
        read_only=(*python_paths(), Path(given["shown"])),
        writable=(Path(given["writable"]),),
        limits=attack.limits,
        **policy_extra,
    )
    return run([*interpreter, PRELUDE, json.dumps(given), attack.code], policy, level=level, preloaded=preloaded)


def attack_outside(attack: Attack, given: dict[str, Any], scratch: Path) -> str:
    # Nobody counts what it takes, so it need not wait until somebody has.
    done = subprocess.run(
        [*INTERPRETER, PRELUDE, json.dumps({**given, "watched": False}), attack.code],
        env={**os.environ, "TMPDIR": str(scratch)},
        capture_output=True,
        close_fds=False,
        timeout=120,
        cwd=scratch,
    )
    return done.stdout.decode() + done.stderr.decode()[-500:]


@pytest.mark.parametrize("name", ATTACKS)
def test_escape_succeeds_outside_and_is_held_inside(
    name: str,
    level: SandboxLevel,
    start: str,
    playground: dict[str, Any],
    tmp_path: Path,
    controls: dict[str, str],
) -> None:
    attack = ATTACKS[name]
    if attack.needs_root and not ROOT:
        pytest.skip("the control needs root")
    inside = attack_inside(attack, playground, level, start)
    outside = controls.get(name) or attack_outside(attack, playground, tmp_path)
    controls[name] = outside
    if "ESCAPED" not in outside and attack.may_lack:
        pytest.skip(f"this machine lacks {attack.may_lack}: {outside.strip()}")
    assert "ESCAPED" in outside, outside
    assert "ESCAPED" not in inside.stdout
    assert "held:" in inside.stdout or inside.signal is not None, inside


GPU = Path("/dev/nvidiactl").exists()
ALLOWED_TO_ACCELERATORS = {"makes a memory file"}


@pytest.mark.parametrize("devices", [Devices.NONE, pytest.param(Devices.NVIDIA, marks=pytest.mark.gpu)], ids=str)
@pytest.mark.parametrize("name", [*NETWORK, *FILES, *PROCESSES, *KERNEL])
def test_escape_is_held_inside_a_profiled_process_too(
    name: str,
    devices: Devices,
    start: str,
    playground: dict[str, Any],
    tmp_path: Path,
    controls: dict[str, str],
) -> None:
    """A profiler's process may connect sockets of its own, and one on a GPU has the device besides."""
    if reason := why_not(SandboxLevel.BUBBLEWRAP) or (devices is Devices.NVIDIA and not GPU and "an NVIDIA GPU"):
        pytest.skip(f"this machine lacks {reason}")
    if devices is Devices.NVIDIA and name in ALLOWED_TO_ACCELERATORS:
        pytest.skip("drivers need it")
    attack = ATTACKS[name]
    outside = controls.get(name) or attack_outside(attack, playground, tmp_path)
    controls[name] = outside
    if "ESCAPED" not in outside and (attack.may_lack or (attack.needs_root and not ROOT)):
        pytest.skip(f"the control does not succeed here: {outside.strip()}")
    assert "ESCAPED" in outside, outside
    inside = attack_inside(attack, playground, SandboxLevel.BUBBLEWRAP, start, devices=devices, local_sockets=True)
    assert "ESCAPED" not in inside.stdout
    assert "held:" in inside.stdout or inside.signal is not None, inside


RESULT_TRICKS = {
    "symbolic link": "os.symlink('/etc/shadow', 'result')",
    "FIFO": "os.mkfifo('result')",
    "directory": "os.mkdir('result')",
    "second hard link": "open('other', 'w').write('x'); os.link('other', 'result')",
    "huge file": "open('result', 'wb').truncate(200 << 20)",
}


@pytest.mark.parametrize("trick", RESULT_TRICKS)
def test_result_file_that_is_a_trick_is_refused(trick: str, level: SandboxLevel, tmp_path: Path) -> None:
    uid = make_result(tmp_path, level, RESULT_TRICKS[trick])
    assert os.path.lexists(tmp_path / "result"), "the control: the trick was played"
    with pytest.raises(ResultFileError):
        read_result_file(tmp_path, "result", 1 << 20, uid)


def test_naive_reading_would_follow_the_link_out_of_the_sandbox(level: SandboxLevel, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    out = tmp_path / "out"
    out.mkdir()
    uid = make_result(out, level, f"os.symlink({str(secret)!r}, 'result')")
    assert (out / "result").read_text() == "secret"
    with pytest.raises(ResultFileError):
        read_result_file(out, "result", 1 << 20, uid)


def test_honest_result_file_is_read(level: SandboxLevel, tmp_path: Path) -> None:
    uid = make_result(tmp_path, level, "open('result', 'w').write('42')")
    assert read_result_file(tmp_path, "result", 1 << 20, uid) == b"42"


def make_result(out: Path, level: SandboxLevel, code: str) -> int:
    """Run `code` in `out` as a job; the user id that owned the job."""
    policy = SandboxPolicy(read_only=python_paths(), writable=(out,))
    command = f"import os; os.chdir({str(out)!r}); {code}"
    process = spawn([*INTERPRETER, command], policy, level=level)
    assert process.outcome().ok, process.outcome()
    return os.geteuid() if process.uid is None else process.uid


@pytest.mark.parametrize("folder", ["/dev/shm", "/tmp", "TMPDIR"])
def test_nothing_persists_from_one_launch_to_the_next(level: SandboxLevel, folder: str) -> None:
    name = f"ks-persists-{os.getpid()}"
    code = f"import os; path = os.environ.get({folder!r}, {folder!r}) + '/{name}'; "
    write, look = code + "open(path, 'w').write('x')", code + "print(os.path.exists(path))"
    policy = SandboxPolicy(read_only=python_paths())
    run([*INTERPRETER, write], policy, level=level)
    inside = run([*INTERPRETER, look], policy, level=level)
    shared = {"PATH": "/usr/bin:/bin", "TMPDIR": "/tmp"}
    subprocess.run([*INTERPRETER, write], env=shared, check=True)
    outside = subprocess.run([*INTERPRETER, look], env=shared, check=True, capture_output=True)
    Path("/tmp" if folder == "TMPDIR" else folder, name).unlink()
    assert (inside.stdout.strip(), outside.stdout.strip()) == ("False", b"True")


DAEMON = "setsid -f sleep 31.{marker} </dev/null >/dev/null 2>&1"


def test_daemon_left_behind_dies_with_its_job(level: SandboxLevel) -> None:
    marker = str(time.monotonic_ns())
    command = ["/bin/sh", "-c", DAEMON.format(marker=marker)]
    completed = run(command, SandboxPolicy(), level=level)
    assert completed.ok, completed
    assert running(marker) == []
    subprocess.run(command, check=True)
    left = eventually(lambda: running(marker))
    assert left, "the control leaves a daemon"
    os.kill(left[0], signal.SIGKILL)


def test_daemons_die_when_the_job_is_killed(level: SandboxLevel) -> None:
    marker = str(time.monotonic_ns())
    process = spawn(["/bin/sh", "-c", DAEMON.format(marker=marker) + "; sleep 30"], SandboxPolicy(), level=level)
    assert eventually(lambda: running(marker))
    process.kill()
    assert process.outcome().killed_reason is KillReason.CANCELLED
    assert running(marker) == []


def supervised(shell: str, level: SandboxLevel, start: str) -> str:
    """Return the code of a supervisor whose job runs a shell command."""
    if start == "executed":
        argv = "['/bin/sh', '-c', command]"
    else:
        call = "import subprocess, sys; subprocess.run(['/bin/sh', '-c', sys.argv[1]])"
        argv = f"[sys.executable, '-I', '-c', {call!r}, command]"
    return (
        "import sys; from runners.sandbox import *; print('ready', flush=True); "
        f"command = {shell!r}; run({argv}, SandboxPolicy(python_paths()), level=SandboxLevel({level.value!r}),"
        f" preloaded={STARTS[start][1]!r})"
    )


def test_job_dies_with_its_supervisor(level: SandboxLevel, start: str) -> None:
    marker = str(time.monotonic_ns())
    code = supervised(DAEMON.format(marker=marker) + "; sleep 30." + marker, level, start)
    supervisor = subprocess.Popen([sys.executable, "-c", code], cwd=REPOSITORY)
    assert eventually(lambda: len(running(marker)) == 2)
    supervisor.kill()
    supervisor.wait()
    assert eventually(lambda: running(marker) == [])


@pytest.mark.parametrize("delay_ms", range(0, 12, 2))
def test_job_of_a_supervisor_killed_during_the_launch_is_swept_away(
    delay_ms: int, level: SandboxLevel, start: str
) -> None:
    marker = str(time.monotonic_ns())
    code = supervised(f"sleep 30.{marker}; true", level, start)
    supervisor = subprocess.Popen([sys.executable, "-c", code], cwd=REPOSITORY, stdout=subprocess.PIPE)
    assert supervisor.stdout is not None
    with supervisor.stdout as ready:
        ready.readline()
    # A forked launch comes after a trial and the start of a server.
    time.sleep((delay_ms if start == "executed" else 25 * delay_ms) / 1000)
    supervisor.kill()
    supervisor.wait()
    time.sleep(0.05)
    sweep_orphans()
    assert eventually(lambda: processes(marker) == [])


def test_scratch_directory_of_a_dead_supervisor_is_swept_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    name = supervisor_name()
    names = (f"{name}0-job-abc", f"{name}-job-abc", "ks-of-some-body-else")
    dead, alive, foreign = (work_root() / text for text in names)
    for path in (dead, alive, foreign):
        (path / "closed").mkdir(parents=True, mode=0o000)
    sweep_orphans()
    assert (dead.exists(), alive.exists(), foreign.exists()) == (False, True, True)


def test_sweep_spares_the_jobs_of_the_living(level: SandboxLevel) -> None:
    process = spawn(["/bin/sleep", "20"], SandboxPolicy(), level=level)
    assert eventually(lambda: process.usage().processes >= 2)
    assert sweep_orphans() == []
    assert process.alive
    process.kill()
    assert process.outcome().killed_reason is KillReason.CANCELLED


def running(marker: str) -> list[int]:
    """Return the live `sleep`s of that marker."""
    return [pid for pid, words in processes(marker) if words[0] == b"sleep"]


def processes(marker: str) -> list[tuple[int, list[bytes]]]:
    """Return live processes with `marker` in their arguments, and those arguments."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if marker.encode() in (words := path.read_bytes()):
                found.append((int(path.parent.name), words.split(b"\0")))
    return found


def eventually(condition: Callable[[], T], seconds: float = 10) -> T:
    """Return the first true answer, or the last one."""
    deadline = time.monotonic() + seconds
    while not (answer := condition()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return answer


def test_environment_of_the_first_process_shows_the_policy_only(
    level: SandboxLevel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KS_CANARY", CANARY)
    policy = SandboxPolicy(read_only=python_paths(), env={"SHOWN": "yes"})
    code = "import os; print(sorted(os.environ)); print(open('/proc/self/environ').read())"
    completed = run([*INTERPRETER, code], policy, level=level)
    names = ["HOME", "LANG", "LOGNAME", "PATH", "SHOWN", "TMPDIR", "USER"]
    assert set(ast.literal_eval(completed.stdout.splitlines()[0])) - {"PWD"} == set(names)
    assert CANARY not in completed.stdout


@pytest.mark.skipif(not ROOT, reason="starts the sandbox as another user")
@pytest.mark.skipif(not Path("/usr/bin/python3").exists(), reason="needs an interpreter that nobody can run")
def test_escapes_are_held_for_a_caller_who_is_not_root(
    level: SandboxLevel, start: str, playground: dict[str, Any]
) -> None:
    names = [*PROCESSES, "connects to a TCP port of the host", "makes a user namespace", "forks without end"]
    given = {**playground, "victim": os.getpid()}
    attacks = {name: ATTACKS[name].code for name in names}
    driver = (
        "import json, sys; sys.path.insert(0, sys.argv[1]); from runners.sandbox import *;"
        "limits = ResourceLimits(wall_s=10, processes=64); given, attacks = json.loads(sys.argv[3]), sys.argv[4];"
        "policy = SandboxPolicy(limits=limits, read_only=python_paths());"
        "preloaded = json.loads(sys.argv[6]); isolated = ['-I'] if preloaded else ['-I', '-S'];"
        "command = [sys.executable, *isolated, '-c', sys.argv[5], json.dumps(given)];"
        "done = {n: run([*command, code], policy, level=SandboxLevel(sys.argv[2]), preloaded=preloaded)"
        " for n, code in json.loads(attacks).items()};"
        "assert not preloaded or why_not_forked(SandboxLevel(sys.argv[2])) is None;"
        "print(json.dumps({n: [d.stdout, d.signal] for n, d in done.items()}))"
    )
    arguments = [str(REPOSITORY), level.value, json.dumps(given), json.dumps(attacks), PRELUDE]
    arguments.append(json.dumps(STARTS[start][1]))
    done = subprocess.run(
        [*AS_NOBODY, "/usr/bin/python3", "-B", "-I", "-c", driver, *arguments],
        env={"KS_CANARY": CANARY, "PATH": "/usr/bin:/bin"},
        cwd="/tmp",
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    outcomes = json.loads(done.stdout)
    assert set(outcomes) == set(names)
    assert [name for name, (text, number) in outcomes.items() if "held:" not in text and number is None] == []
