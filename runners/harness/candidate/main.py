"""The candidate's process: `main.py CHANNEL_FD ARENA_FD KIND PATH SYMBOL DEVICE SETUPS`.

DEVICE is JSON: null for the CPU, else the driver's kind, the arena's size and how much to overwrite between calls.
SETUPS is the folder of what Python candidates are given once; "" where there is none.

Says hello, then answers until the channel closes. Each answer repeats the question's nonce. What it reports (its own
clock, its own word that a call finished) is a claim: the referee checks outputs and keeps its own time.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import sys
import traceback
from typing import Any

from .calls import Callee, Caller
from .channel import Channel, ChannelClosed

ERROR_CHARS = 4000
MESSAGE_CHARS = 1000


def main(channel_fd: str, arena_fd: str, kind: str, path: str, symbol: str, device: str, setups: str) -> None:
    """Serve until the referee hangs up."""
    channel = Channel(int(channel_fd))
    hello = channel.receive()
    try:
        caller = Caller(open_callee(kind, path, symbol, setups, int(arena_fd), json.loads(device)))
    except BaseException as error:
        channel.send(failure(hello, error))
        return
    channel.send({"nonce": hello["nonce"], "ok": True})
    serve(channel, caller)


def open_callee(
    kind: str, path: str, symbol: str, setups: str, arena_fd: int, device: dict[str, Any] | None
) -> Callee:
    """Load the artefact: kind `native` or `module`."""
    if device is not None:
        from . import gpu

        callee: Callee = gpu.open_callee(kind, path, symbol, setups, device, arena_fd)
        return callee
    arena = mmap.mmap(arena_fd, 0, flags=mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0))
    if kind == "native":
        from .native import NativeCallee

        return NativeCallee(path, symbol, ctypes.addressof(ctypes.c_char.from_buffer(arena)), arena)
    from .module import ModuleCallee
    from .tensors import HostArena

    return ModuleCallee(path, HostArena(arena), setups)


def serve(channel: Channel, caller: Caller) -> None:
    """Answer questions one at a time."""
    while True:
        try:
            question = channel.receive()
            channel.send(guarded(caller, question))
        except ChannelClosed:
            return


def guarded(caller: Caller, question: dict[str, Any]) -> dict[str, Any]:
    """The answer, or the exception as a message."""
    try:
        return {"nonce": question["nonce"], "ok": True, **caller.answer(question)}
    except BaseException as error:
        return failure(question, error)


def failure(question: dict[str, Any], error: BaseException) -> dict[str, Any]:
    """An exception as a message; `kind` is its class's name."""
    text = "".join(traceback.format_exception(error))[-ERROR_CHARS:]
    message = str(error)[:MESSAGE_CHARS]
    return {"nonce": question["nonce"], "ok": False, "kind": type(error).__name__, "message": message, "text": text}


if __name__ == "__main__":
    main(*sys.argv[1:8])
