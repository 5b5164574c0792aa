"""Assemble the system-call filter: a classic BPF program for x86-64 and aarch64.

It is a deny list: what a compute kernel, a compiler or torch never needs fails with EPERM; everything else passes.
Calls of another architecture (32-bit x86, x32) end the process, because their numbers mean other calls. `clone3`
answers ENOSYS, since a filter can't read flags behind a pointer; the C library then falls back to `clone`. `socket`
is refused (NVIDIA's driver needs UNIX sockets, which can't connect unless the policy lets them); `socketpair` is
limited to UNIX streams, because a datagram pair can send to any name.

Sources: seccomp(2); struct seccomp_data and the BPF opcodes of linux/seccomp.h, linux/bpf_common.h.
"""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from runners.sandbox import syscalls
from runners.sandbox.base import Devices, SandboxError

# BPF_LD|BPF_W|BPF_ABS, BPF_JMP|BPF_JEQ|BPF_K, BPF_JMP|BPF_JGE|BPF_K, BPF_JMP|BPF_JSET|BPF_K, BPF_ALU|BPF_AND|BPF_K,
# BPF_RET|BPF_K.
LOAD_WORD, JUMP_EQUAL, JUMP_GREATER_EQUAL, JUMP_SET, AND, RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
# Of struct seccomp_data: the number, the architecture, and six arguments of 64 bits.
OFFSET_NUMBER, OFFSET_ARCH, OFFSET_ARGUMENTS = 0, 4, 16
# SECCOMP_RET_ALLOW, SECCOMP_RET_KILL_PROCESS, SECCOMP_RET_ERRNO; the low half of the last is the error number.
ALLOW, KILL_PROCESS, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
X32_BIT = 0x40000000

AF_UNIX, SOCK_STREAM, SOCK_SEQPACKET, SOCK_TYPE_MASK = 1, 1, 5, 0xF
NEW_NAMESPACE_FLAGS = 0x7E020080  # CLONE_NEW{USER,PID,NET,IPC,UTS,CGROUP,NS,TIME}
SOL_SOCKET = 1
# SO_SNDBUF, SO_RCVBUF, SO_SNDBUFFORCE, SO_RCVBUFFORCE: larger queues are memory that no process's size shows.
BUFFER_SIZES = (7, 8, 32, 33)
TERMINAL_INJECTION = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX


@dataclass(frozen=True)
class Architecture:
    """Hold one row of the table: AUDIT_ARCH_* and the column of `syscalls`."""

    audit: int
    column: int


ARCHITECTURES = {"x86_64": Architecture(0xC000003E, 0), "aarch64": Architecture(0xC00000B7, 1)}


@dataclass(frozen=True)
class Instruction:
    """Represent one struct sock_filter; `yes` and `no` count the instructions to skip."""

    code: int
    value: int
    yes: int = 0
    no: int = 0

    def pack(self) -> bytes:
        return struct.pack("=HBBI", self.code, self.yes, self.no, self.value)


@cache
def filter_program(
    devices: Devices = Devices.NONE, machine: str = platform.machine(), *, local_sockets: bool = False
) -> bytes:
    """Return the filter as an array of struct sock_filter. Raises SandboxError on an architecture without a table."""
    architecture = ARCHITECTURES.get(machine)
    if architecture is None:
        raise SandboxError(f"no system-call table for {machine}: only {', '.join(ARCHITECTURES)} are known")
    needed = (
        tuple(syscalls.SOCKETS) if local_sockets else syscalls.CUDA_SOCKETS if devices is Devices.NVIDIA else ()
    )
    # The architecture comes first: a number means nothing before it is known to be of this table.
    instructions = [
        *_check_architecture(architecture),
        *(i for number in _denied(devices, architecture.column, needed) for i in _deny(number)),
        *_special(architecture.column),
        *(_local_sockets(architecture.column) if needed else ()),
        Instruction(RETURN, ALLOW),
    ]
    return b"".join(instruction.pack() for instruction in instructions)


def _check_architecture(architecture: Architecture) -> list[Instruction]:
    checks = [
        Instruction(LOAD_WORD, OFFSET_ARCH),
        Instruction(JUMP_EQUAL, architecture.audit, yes=1),
        Instruction(RETURN, KILL_PROCESS),
        Instruction(LOAD_WORD, OFFSET_NUMBER),
    ]
    # x32 shares AUDIT_ARCH_X86_64 and marks its calls by a bit in the number.
    if architecture.column == 0:
        checks += [Instruction(JUMP_GREATER_EQUAL, X32_BIT, no=1), Instruction(RETURN, KILL_PROCESS)]
    return checks


def _denied(devices: Devices, column: int, needed: tuple[str, ...]) -> Iterable[int]:
    groups = syscalls.NEVER if devices is not Devices.NONE else (*syscalls.NEVER, syscalls.MEMORY_FILES)
    for group in groups:
        for name, numbers in group.items():
            if name not in needed and (number := numbers[column]) is not None:
                yield number


def _deny(number: int, error: int = errno.EPERM) -> list[Instruction]:
    return [Instruction(JUMP_EQUAL, number, no=1), Instruction(RETURN, ERRNO | error)]


def _special(column: int) -> list[Instruction]:
    # Threads and processes need `clone`; only its flags for new namespaces are refused.
    clone = [_argument(0), Instruction(JUMP_SET, NEW_NAMESPACE_FLAGS, no=1), _refuse()]
    # TIOCSTI and TIOCLINUX put characters into a terminal as if its user had typed them.
    inject = [_argument(1), *(i for request in TERMINAL_INJECTION for i in _deny(request))]
    enlarge = [
        _argument(1),
        Instruction(JUMP_EQUAL, SOL_SOCKET, no=1 + 2 * len(BUFFER_SIZES)),
        _argument(2),
        *(i for option in BUFFER_SIZES for i in _deny(option)),
    ]
    return [
        *_deny(syscalls.CLONE3[column], errno.ENOSYS),
        *_when(syscalls.CLONE[column], clone),
        *_when(syscalls.SOCKETPAIR[column], _only_streams()),
        *_when(syscalls.IOCTL[column], inject),
        *_when(syscalls.SETSOCKOPT[column], enlarge),
    ]


def _local_sockets(column: int) -> list[Instruction]:
    """Refuse every socket family but UNIX.

    NVIDIA's driver binds such a socket when it starts and fails without it. Connecting is refused unless the policy
    allows it.
    """
    # Every architecture has this call; the table's type allows for others.
    number = syscalls.SOCKETS["socket"][column] or 0
    return _when(number, [_argument(0), Instruction(JUMP_EQUAL, AF_UNIX, yes=1), _refuse()])


def _only_streams() -> list[Instruction]:
    allow = Instruction(RETURN, ALLOW)
    return [
        _argument(0),
        Instruction(JUMP_EQUAL, AF_UNIX, no=5),
        _argument(1),
        Instruction(AND, SOCK_TYPE_MASK),
        Instruction(JUMP_EQUAL, SOCK_STREAM, yes=1),
        Instruction(JUMP_EQUAL, SOCK_SEQPACKET, no=1),
        allow,
        _refuse(),
    ]


def _when(number: int, body: list[Instruction]) -> list[Instruction]:
    """Apply `body` to that call only; whatever falls through its end is allowed."""
    body = [*body, Instruction(RETURN, ALLOW)]
    return [Instruction(JUMP_EQUAL, number, no=len(body)), *body]


def _argument(index: int) -> Instruction:
    """Load the low half of an argument; the flags that are examined here are all 32 bits wide."""
    return Instruction(LOAD_WORD, OFFSET_ARGUMENTS + 8 * index)


def _refuse() -> Instruction:
    return Instruction(RETURN, ERRNO | errno.EPERM)
