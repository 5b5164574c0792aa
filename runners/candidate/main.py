"""Run the candidate's process: `main.py CHANNEL_FD PRELOAD`.

PRELOAD names modules to import before anything else. Then comes the referee's hello (see `greeting`): the artefact's
kind, path and symbol, the device (null for the CPU, else the driver's kind, the arena's size and how much to
overwrite between calls), the folder of what Python candidates are given once and the packed caches of a module's
build ("" if there are none), whether this is the process that builds, and after it the arena's descriptor and, for a
GPU, the gate's.

The process answers until the channel closes. Each answer repeats the question's nonce. Its reports (its own clock,
its own word that a call finished) are claims: the referee checks outputs and keeps its own time.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from . import caches
from .calls import Callee, Caller
from .channel import Channel, ChannelClosed
from .driver import DriverError
from .mapping import mapped

if TYPE_CHECKING:
    from .native import NativeCallee

# Where the code of this program lies, and the name of a candidate's module (`runners.backends.python`).
OWN, CANDIDATE_FILE = str(Path(__file__).parent), "kernel.py"
# A message must stay far below the channel's limit; the whole text goes to standard error.
ERROR_CHARS = 4000
MESSAGE_CHARS = 1000


def main(channel_fd: str, preload: str = "") -> None:
    """Serve until the referee closes the channel."""
    channel = Channel(int(channel_fd))
    caches.name_folders()
    with without_garbage_collection():
        for name in filter(None, preload.split(",")):
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
    try:
        hello = greeting(channel)
    except ChannelClosed:
        return
    try:
        descriptors = [channel.take_descriptor() for _ in range(1 if hello["device"] is None else 2)]
        caller = Caller(open_callee(hello, *descriptors))
    # Candidates may raise SystemExit or KeyboardInterrupt at import.
    except BaseException as error:
        channel.send(failure(hello, error))
        return
    channel.send({"nonce": hello["nonce"], "ok": True})
    serve(channel, caller)


@contextlib.contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Import our own modules and torch in this block, none of the candidate's.

    Nothing that an import makes is garbage, and looking for some is a tenth of the processor time of importing torch.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def greeting(channel: Channel) -> dict[str, Any]:
    """Return the referee's hello.

    Before it, a process that was started ahead may be asked to open a device (`warm`).
    """
    while (question := channel.receive())["op"] != "hello":
        channel.send(warmed(question))
    return question


def warmed(question: dict[str, Any]) -> dict[str, Any]:
    """Open the device that a question before the hello names, and return the answer."""
    try:
        from . import warm

        warm.open_device(question["device"])
    except BaseException as error:
        return failure(question, error)
    return {"nonce": question["nonce"], "ok": True}


def open_callee(hello: dict[str, Any], arena_fd: int, gate_fd: int = -1) -> Callee:
    """Load the artefact: kind `native` or `module`. Only a GPU has a gate."""
    caches.lay_out(hello["caches"], building=hello["building"])
    kind, path, symbol, setups, device = (hello[name] for name in ("kind", "path", "symbol", "setups", "device"))
    if device is not None:
        from . import gpu

        callee: Callee = gpu.open_callee(kind, path, symbol, setups, device, arena_fd, gate_fd)
        return callee
    arena = mapped(arena_fd)
    if kind in ("native", "emulated"):
        base = ctypes.addressof(ctypes.c_char.from_buffer(arena))
        return _open_library(kind)(path, symbol, base, arena, setups)
    with without_garbage_collection():
        from .module import ModuleCallee
        from .tensors import HostArena

    return ModuleCallee(path, HostArena(arena), setups)


def _open_library(kind: str) -> type[NativeCallee]:
    """Return the class that calls a library of that kind."""
    if kind == "emulated":
        from .emulated import EmulatedCallee

        return EmulatedCallee
    from .native import NativeCallee

    return NativeCallee


def serve(channel: Channel, caller: Caller) -> None:
    """Answer questions one at a time."""
    while True:
        try:
            question = channel.receive()
            channel.send(packed(channel, question) if question["op"] == "pack" else guarded(caller, question))
        except ChannelClosed:
            return


def guarded(caller: Caller, question: dict[str, Any]) -> dict[str, Any]:
    """Return the answer, or the exception as a message."""
    try:
        return {"nonce": question["nonce"], "ok": True, **caller.answer(question)}
    except BaseException as error:
        return failure(question, error)


def packed(channel: Channel, question: dict[str, Any]) -> dict[str, Any]:
    """Write what compilers have left in the temporary directory to the descriptor that follows the question."""
    try:
        caches.pack(channel.take_descriptor(), question["most_bytes"])
    except BaseException as error:
        return failure(question, error)
    return {"nonce": question["nonce"], "ok": True}


def failure(question: dict[str, Any], error: BaseException) -> dict[str, Any]:
    """Return an exception as a message, with its class's name as `kind`. A text that is too long is printed whole.

    Its text leaves out what this program and torch called before the candidate (`trace_of`).
    """
    text = "".join(traceback.format_exception(type(error), error, trace_of(error)))
    if len(text) > ERROR_CHARS:
        print(text, file=sys.stderr, flush=True)
    said = {"kind": type(error).__name__, "message": _message_of(error), "text": text[-ERROR_CHARS:]}
    return {"nonce": question["nonce"], "ok": False, **said}


def _message_of(error: BaseException) -> str:
    """Return what an exception says, or that it cannot be shown: its class may be the candidate's."""
    try:
        return str(error)[:MESSAGE_CHARS]
    except BaseException:
        return "<exception str() failed>"  # as in the text, which `traceback` makes


def trace_of(error: BaseException) -> TracebackType | None:
    """Return the trace of an exception from the candidate's module on, or else from the first code of others on.

    An error of this program keeps all of its trace. A fault of the device has none, since the driver reports it from a
    later, unrelated call.
    """
    whole, one = [], error.__traceback__
    while one is not None:
        whole.append(one)
        one = one.tb_next
    files = [one.tb_frame.f_code.co_filename for one in whole]
    places = [at for at, file in enumerate(files) if Path(file).name == CANDIDATE_FILE]
    places += [at for at, file in enumerate(files) if not file.startswith(OWN)]
    if places:
        return whole[places[0]]
    return None if isinstance(error, DriverError) else error.__traceback__


if __name__ == "__main__":
    main(*sys.argv[1:3])
