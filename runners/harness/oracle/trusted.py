"""Run oracles with torch, in a sandbox. `main` is given the descriptor of a socket.

This process is forked with torch imported, or imports it where programs are executed. It stays single-threaded, and
forks a clean child for every oracle, in milliseconds. None ever sees candidate code, which is what it is trusted in;
the machine trusts it no more than a candidate (see `confinement`). A child serves one channel and ends when that
closes.

A request is one byte with two descriptors attached: the channel and the shared memory.
"""

from __future__ import annotations

import gc
import mmap
import os
import signal
import socket
import sys
import traceback
from typing import Any

from runners.candidate.channel import Channel, ChannelClosed
from runners.harness.oracle.protocol import DEVICE_VARIABLE, Answer


def main(descriptor: str) -> None:
    """Serve fork requests until the socket closes."""
    gc.disable()  # nothing that an import makes is garbage
    import torch

    gc.enable()
    torch.set_grad_enabled(False)
    # Problems' code may print anything, and nobody reads it.
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.close(silent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The kernel then reaps the children, so none is left as a zombie.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    # Objects that exist before a fork stay out of garbage collection, which would otherwise write to their pages and
    # copy them in every child.
    gc.freeze()
    requests = socket.socket(fileno=int(descriptor))
    while True:
        try:
            request, descriptors, _, _ = socket.recv_fds(requests, 1, 2)
        except OSError:
            return
        if not request:
            return
        if os.fork() == 0:
            requests.close()
            _child(*descriptors)
        for inherited in descriptors:
            os.close(inherited)


def _child(channel_fd: int, memory_fd: int) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    code = 1
    try:
        serve(Channel(channel_fd), _role(memory_fd))
        code = 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # Without os._exit the child would run the parent's exit handlers.
        os._exit(code)


def _role(memory_fd: int) -> Answer:
    """Return an oracle for the device that the environment names."""
    if DEVICE_VARIABLE in os.environ:
        from runners.harness.oracle import gpu_oracle

        return gpu_oracle.oracle(os.environ[DEVICE_VARIABLE], memory_fd)
    from runners.candidate.tensors import HostArena
    from runners.harness.oracle.oracle import Oracle

    # The mapping is far larger than what is ever used; untouched pages of it take no memory.
    return Oracle(HostArena(mmap.mmap(memory_fd, 0))).answer


def serve(channel: Channel, answer: Answer) -> None:
    """Answer questions until the channel closes. An exception becomes an answer with `ok` false.

    A `descriptor` in an answer follows it over the channel, and is closed here; one after a question replaces its
    mark there.
    """
    while True:
        try:
            question = channel.receive()
            if question.get("descriptor") is True:
                question["descriptor"] = channel.take_descriptor()
            reply = _guarded(answer, question)
            channel.send(reply)
            if "descriptor" in reply:
                _hand_over(channel.descriptor, reply["descriptor"])
        except ChannelClosed:
            return


def _hand_over(channel_fd: int, descriptor: int) -> None:
    with socket.socket(fileno=os.dup(channel_fd)) as stream:
        socket.send_fds(stream, [b"d"], [descriptor])
    os.close(descriptor)


def _guarded(answer: Answer, question: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"nonce": question["nonce"], "ok": True, **answer(question)}
    except Exception as error:
        text = traceback.format_exc(limit=-8)
        return {
            "nonce": question["nonce"],
            "ok": False,
            "kind": type(error).__name__,
            "message": str(error),
            "text": text,
        }
