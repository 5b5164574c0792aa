"""Ask the oracle for contents of calls and for judgements on outputs.

Seeds come from the operating system's entropy and are told to the oracle alone.
"""

from __future__ import annotations

import secrets
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from runners.candidate.channel import ChannelError
from runners.errors import CandidateFailure, InfraFailure, TooLarge
from runners.harness.memory.arena import Arena, DeviceArena, SharedArena
from runners.harness.memory.contents import Buffer, Content, Plain, Setups, poison_of
from runners.harness.memory.shared_memory import Bump, SharedMemory
from runners.harness.oracle.parcel import unpack
from runners.harness.oracle.zygote import Zygote
from runners.harness.processes.peer import Peer, Refused
from runners.job import ProblemBundle, Status
from runners.problems.base import Case, Footprint
from runners.problems.dtypes import ELEMENT_TYPES
from runners.sandbox.paths import share
from runners.wire import from_plain, to_plain

# Address space only: pages that are never touched take no memory.
REFERENCE_BYTES = 32 << 30
# Pages up to here stay mapped between evaluations, which spares their page faults.
KEPT_BYTES = 256 << 20
# A reference in float64 may take minutes on a CPU.
ANSWER_S = 300.0


@dataclass(frozen=True)
class Judgement:
    """Judge one call's outputs. `error` is None if they are right."""

    error: str | None
    max_abs_error: float
    max_rel_error: float


class OracleClient:
    """Talk to one oracle for one problem, which may live through many evaluations (`reset` in between).

    Questions may come from several threads; contents are made and forgotten by one. An oracle that was started ahead
    learns its problem by `open`.
    """

    on_gpu = False

    def __init__(self, zygote: Zygote, reference_bytes: int = REFERENCE_BYTES, *, is_alone: bool = False) -> None:
        # A process that forks for this oracle alone ends with it.
        self._zygote, self._is_alone = zygote, is_alone
        self.reference_buffers = SharedMemory("reference-buffers", reference_bytes)
        self._peer = Peer()
        self._lock = threading.RLock()
        try:
            zygote.fork(self._peer.far_socket.fileno(), self.reference_buffers.descriptor)
        except BaseException:
            self.close()  # whoever asked has no client to close
            raise
        self._peer.started()
        self._bump = Bump(reference_bytes)
        self._count = 0
        self._opening: dict[str, Any] | None = None

    def open(self, bundle: ProblemBundle) -> Self:
        """Set the problem. It is sent with the first question, since the process may still be starting."""
        self._opening = {"op": "open", "bundle": to_plain(bundle)}
        return self

    def pause(self) -> None:
        """Pause the process, even while it opens its device. Only for one that is alone."""
        self._zygote.pause()

    def resume(self) -> None:
        """Resume the paused process."""
        self._zygote.resume()

    @property
    def alive(self) -> bool:
        """Return whether the oracle still waits for questions."""
        return self._zygote.alive and self._peer.silent

    def listen(self, cancel: Callable[[], bool] | None) -> None:
        """Stop waiting for answers once `cancel` returns True."""
        self._peer.cancel = cancel

    def make(self, case: Case, distribution: str, count: int = 1) -> list[Content]:
        """Make fresh inputs for `count` calls, each from a fresh secret seed."""
        first, self._count = self._count + 1, self._count + count
        # From the system's entropy, and never sent to a participant: a candidate can't make the expected output from a
        # seed.
        seeds = [secrets.randbits(62) for _ in range(count)]
        question = {"op": "inputs", "first": first, "case": to_plain(case), "distribution": distribution}
        answer = self.ask({**question, "seeds": seeds, "offset": self._bump.next_offset})
        self._bump.next_offset = int(answer["end"])
        outputs = [_output(spec) for spec in answer["outputs"]]
        made = [{value["name"]: _input(value) for value in values} for values in answer["contents"]]
        common = (outputs, answer["structure"], frozenset(answer["written"]))
        return [Content(first + n, case, distribution, inputs, *common) for n, inputs in enumerate(made)]

    def distributions(self, case: Case) -> list[str]:
        """Return the input distributions with which a case is checked, the timed one first."""
        names: list[str] = self.ask({"op": "distributions", "case": to_plain(case)})["distributions"]
        return names

    def footprint(self, case: Case) -> Footprint | None:
        """Return the bytes of a case's inputs, weights and outputs, or None if only running it tells."""
        plain = self.ask({"op": "footprint", "case": to_plain(case)})["footprint"]
        return None if plain is None else from_plain(Footprint, plain)

    def set_up(self, cases: list[Case], folder: Path) -> Setups:
        """Have the oracle write what Python candidates are given once for these cases, and make a folder of it."""
        folder.mkdir(mode=0o755)
        with tempfile.TemporaryFile(dir=folder.parent) as parcel:
            question = {"op": "setup", "cases": to_plain(cases), "descriptor": True}
            answer = self.ask(question, (parcel.fileno(),))
            unpack(parcel.fileno(), answer["entries"], folder)
        names = answer["names"]
        return Setups(share(folder), names) if names else Setups(None, {})

    def arena(self, name: str, size_bytes: int) -> Arena:
        """Allocate memory for a participant, to be laid out from this oracle's contents."""
        return SharedArena(name, size_bytes, self.reference_buffers)

    def keep(self, arena: Arena, content: Content, offsets: list[int]) -> list[int]:
        """Snapshot a call's outputs from an arena into the reference buffers, and return their offsets there."""
        if not isinstance(arena, SharedArena):
            raise TypeError("this oracle's arenas are shared memory")
        kept = []
        for output, offset in zip(content.outputs, offsets, strict=True):
            place = self._bump.allocate(output.size_bytes)
            self.reference_buffers.copy_from(place, arena.memory, offset, output.size_bytes)
            kept.append(place)
        return kept

    def drop(self, places: list[int]) -> None:
        """Forget a snapshot before the next `reset`; one in the reference buffers stays until then."""

    def judge(self, content: Content, kept: list[int], *, timed: bool = False) -> Judgement:
        """Compare a snapshot with what is expected for that content, more cheaply if it is that of a `timed` call."""
        pairs = zip(content.outputs, kept, strict=True)
        outputs = [{**output.spec, "offset": offset} for output, offset in pairs]
        answer = self.ask({"op": "judge", "content": content.number, "outputs": outputs, "timed": timed})
        return Judgement(answer["error"], answer["max_abs_error"], answer["max_rel_error"])

    def reset(self) -> None:
        """Forget every content. Memory is kept for the next ones, except beyond KEPT_BYTES."""
        self.reference_buffers.discard(KEPT_BYTES, max(0, self._bump.next_offset - KEPT_BYTES))
        self._bump.next_offset = 0
        self.ask({"op": "forget"})

    def rest(self) -> None:
        """Forget every content until the next evaluation."""
        self.reset()

    def close(self) -> None:
        """Close the connection; the child ends by itself, and so does a process that only it was forked from."""
        self._peer.close()
        self.reference_buffers.close()
        if self._is_alone:
            self._zygote.close()

    def ask(self, question: dict[str, Any], descriptors: Sequence[int] = ()) -> dict[str, Any]:
        """Ask the oracle's process one question, with descriptors after it. Raises InfraFailure."""
        opening, self._opening = self._opening, None
        if opening is not None:
            self.ask(opening)
        try:
            with self._lock:
                return self._peer.ask(question, ANSWER_S, descriptors)
        except Refused as refused:
            if refused.kind == "OutOfMemoryError":
                raise TooLarge(refused.message) from refused
            if refused.kind == "StructureError":
                raise CandidateFailure(Status.REJECTED, f"not evaluated here: input {refused.message}") from refused
            raise InfraFailure(f"the problem's reference failed: {refused.kind}: {refused.message}") from refused
        except ChannelError as error:
            reasons = filter(None, [str(error), self._zygote.why_ended()])
            raise InfraFailure(f"the oracle gave no answer: {'; '.join(reasons)}") from error


class GpuOracleClient(OracleClient):
    """Talk to an oracle whose contents, arenas and kept outputs are in device memory.

    `kind` is the driver's, `cuda` or `hip`.
    """

    on_gpu = True

    def __init__(self, zygote: Zygote, kind: str, flush_bytes: int, *, is_alone: bool = False) -> None:
        super().__init__(zygote, reference_bytes=1, is_alone=is_alone)
        self._kind, self._flush_bytes = kind, flush_bytes

    def rest(self) -> None:
        """Forget every content, and give back the device memory that torch would keep for later."""
        self.reset()
        self.ask({"op": "rest"})

    def held_bytes(self) -> int:
        """Return the most device memory that the oracle's own tensors have taken so far, arenas left out."""
        return int(self.ask({"op": "held"})["bytes"])

    def arena(self, name: str, size_bytes: int) -> Arena:
        """Allocate device memory for a participant."""
        with self._lock:
            answer = self.ask({"op": "arena", "size_bytes": size_bytes})
            descriptor = self._peer.take_descriptor()
        device = {"kind": self._kind, "size_bytes": int(answer["size_bytes"]), "flush_bytes": self._flush_bytes}
        return DeviceArena(self.ask, int(answer["arena"]), descriptor, device)

    def keep(self, arena: Arena, content: Content, offsets: list[int]) -> list[int]:
        """Snapshot a call's outputs, and return the numbers under which the oracle keeps them."""
        if not isinstance(arena, DeviceArena):
            raise TypeError("this oracle's arenas are in device memory")
        outputs = [output.spec for output in content.outputs]
        places: list[int] = self.ask({"op": "keep", "arena": arena.number, "outputs": outputs, "offsets": offsets})[
            "places"
        ]
        return places

    def drop(self, places: list[int]) -> None:
        """Forget a snapshot."""
        self.ask({"op": "drop", "places": places})


def _input(value: dict[str, Any]) -> Buffer | Plain:
    if "scalar" in value:
        scalar: Plain = value["scalar"]
        return scalar
    spec = {key: value[key] for key in ("name", "dtype", "shape", "strides")}
    return Buffer(spec, value["offset"], value["size_bytes"], poison_of(value["dtype"]))


def _output(spec: dict[str, Any]) -> Buffer:
    extent = 1 + sum((n - 1) * s for n, s in zip(spec["shape"], spec["strides"], strict=True))
    size = 0 if 0 in spec["shape"] else extent * ELEMENT_TYPES[spec["dtype"]].size_bytes
    return Buffer(spec, -1, size, poison_of(spec["dtype"]))
