"""The trusted processes on a GPU: an oracle that owns all device memory that is shared, and baselines.

The oracle makes inputs on the device, lays them out in arenas that candidates map, and judges there; contents never
travel through the host. What it needs again (an input that it compares after a call) it keeps up to a limit and makes
again from its seed beyond. Kept outputs are copies in its own memory.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from runners.harness.baseline import BaselineCallee, Prepared
from runners.harness.candidate import insight
from runners.harness.candidate.device_bytes import DeviceBytes
from runners.harness.candidate.device_clock import DeviceClock
from runners.harness.candidate.driver import Driver
from runners.harness.candidate.tensors import tensor_at
from runners.harness.oracle import Oracle, spec_of, storage_bytes
from runners.harness.trusted import FLUSH_VARIABLE
from runners.problems.base import CallInputs, Case
from runners.wire import from_plain, to_plain

CACHED_BYTES = 8 << 30
RESERVED_BYTES = 3 << 30
"""What an oracle may keep from case to case of the memory that contents took; several oracles live side by side."""


def role(kind: bytes, driver_kind: str, memory_fd: int) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """What a trusted child on a GPU answers with."""
    os.close(memory_fd)
    torch.set_default_device("cuda")
    flush_bytes = int(os.environ[FLUSH_VARIABLE])
    if kind == b"o":
        return GpuOracle(opened(driver_kind), flush_bytes).answer
    return GpuBaselineCallee(driver_kind, flush_bytes).answer


def opened(driver_kind: str) -> Driver:
    """The device, ready for torch too."""
    driver = Driver(driver_kind)
    torch.cuda.init()  # type: ignore[no-untyped-call]
    return driver


class GpuOracle(Oracle):
    """Answers, beside what every oracle does, `arena`, `lay`, `differing`, `same`, `keep` and `close`."""

    def __init__(self, driver: Driver, flush_bytes: int) -> None:
        self._driver = driver
        self._arenas: dict[int, tuple[DeviceBytes, int, int]] = {}
        self._seeds: dict[int, tuple[Case, int, str]] = {}
        self._made: OrderedDict[int, CallInputs] = OrderedDict()
        self._made_bytes = 0
        self._kept: dict[int, torch.Tensor] = {}
        self._numbers = 0
        self._flush = torch.zeros(max(flush_bytes, 1 << 20), dtype=torch.uint8)
        super().__init__(DeviceBytes(0))
        self._answers |= {
            "arena": self._arena, "lay": self._lay, "differing": self._differing, "same": self._same,
            "keep": self._keep, "close": self._close,
        }  # fmt: skip

    def _arena(self, question: dict[str, Any]) -> dict[str, Any]:
        address, size_bytes, descriptor = self._driver.share(question["size_bytes"])
        number = self._next_number()
        self._arenas[number] = (DeviceBytes(address), address, size_bytes)
        return {"arena": number, "size_bytes": size_bytes, "descriptor": descriptor}

    def _close(self, question: dict[str, Any]) -> dict[str, Any]:
        _, address, size_bytes = self._arenas.pop(question["arena"])
        torch.cuda.synchronize()
        self._driver.unmap(address, size_bytes)
        return {}

    def _forget(self, question: dict[str, Any]) -> dict[str, Any]:
        self._seeds.clear()
        self._made.clear()
        self._kept.clear()
        self._made_bytes = 0
        answer = super()._forget(question)
        if torch.cuda.memory_reserved() > RESERVED_BYTES:
            torch.cuda.empty_cache()
        return answer

    def _next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _inputs(self, question: dict[str, Any]) -> dict[str, Any]:
        case = from_plain(Case, question["case"])
        contents = []
        for number, seed in enumerate(question["seeds"], start=question["first"]):
            self._seeds[number] = (case, seed, question["distribution"])
            made = self._content(number)
            contents.append([_described(name, value) for name, value in made.values.items()])
            self._check_layout(case, made, contents[-1])
        return {"contents": contents, "end": 0, **self._common(case, question["first"])}

    def _content(self, number: int) -> CallInputs:
        """The inputs of a content: kept, or made again from its seed."""
        if number not in self._made:
            case, seed, distribution = self._seeds[number]
            made = self._problem.make_inputs(case, seed, distribution)
            made = replace(made, values={name: _laid_out(value) for name, value in made.values.items()})
            self._made[number] = made
            self._made_bytes += _size(made)
            while self._made_bytes > CACHED_BYTES and len(self._made) > 1:
                self._made_bytes -= _size(self._made.popitem(last=False)[1])
        return self._made[number]

    def _restored(self, content: int) -> CallInputs:
        made = self._content(content)
        values = {name: v.clone() if isinstance(v, torch.Tensor) else v for name, v in made.values.items()}
        return replace(made, values=values)

    def _case_of(self, content: int) -> Case:
        return self._seeds[content][0]

    def _lay(self, question: dict[str, Any]) -> dict[str, Any]:
        arena = self._arenas[question["arena"]][0]
        for offset, size_bytes, byte, content, name in question["pieces"]:
            if name and size_bytes:
                arena.bytes_at(offset, size_bytes).copy_(self._input_bytes(content, name))
            elif size_bytes:
                self._driver.fill(arena.base + offset, byte, size_bytes)
        self._flush.max()
        torch.cuda.synchronize()
        return {}

    def _input_bytes(self, content: int, name: str) -> torch.Tensor:
        return _as_bytes(self._content(content).values[name])

    def _differing(self, question: dict[str, Any]) -> dict[str, Any]:
        arena = self._arenas[question["arena"]][0]
        pieces = [(n, piece) for n, piece in enumerate(question["pieces"]) if piece[1]]
        differs = []
        for _, (offset, size_bytes, byte, content, name) in pieces:
            wanted = self._input_bytes(content, name) if name else byte
            differs.append((arena.bytes_at(offset, size_bytes) != wanted).any())
        found = torch.stack(differs).nonzero().flatten().tolist() if differs else []
        return {"index": pieces[found[0]][0] if found else None}

    def _same(self, question: dict[str, Any]) -> dict[str, Any]:
        arena = self._arenas[question["arena"]][0]
        pairs = [(arena.bytes_at(a, n), arena.bytes_at(b, n)) for a, b, n in question["pairs"] if n]
        return {"same": all(torch.equal(one, two) for one, two in pairs)}

    def _keep(self, question: dict[str, Any]) -> dict[str, Any]:
        arena = self._arenas[question["arena"]][0]
        places = []
        for spec, offset in zip(question["outputs"], question["offsets"], strict=True):
            number = self._next_number()
            self._kept[number] = tensor_at(arena, spec, offset).clone()
            places.append(number)
        torch.cuda.synchronize()
        return {"places": places}

    def _snapshot(self, spec: dict[str, Any]) -> torch.Tensor:
        return self._kept[spec["offset"]]


class GpuBaselineCallee(BaselineCallee):
    """The reference on the GPU, timed by the device's clock like a candidate. Before `open` it may be asked to `warm`
    up; the descriptor of its memory comes with `open`."""

    def __init__(self, driver_kind: str, flush_bytes: int) -> None:
        self._kind, self._flush_bytes = driver_kind, flush_bytes
        self._mapped: tuple[int, int] | None = None
        self._clock: DeviceClock
        self._opened = False
        super().__init__(DeviceBytes(0))

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        """Dispatch one question by its `op`."""
        own = {"prepare": dict, "warm": self._warm, "release": self._release}.get(question["op"])
        return own() if own else super().answer(question)

    def _warm(self) -> dict[str, Any]:
        opened(self._kind)
        torch.zeros(1).add_(1)
        torch.cuda.synchronize()
        return {}

    def _release(self) -> dict[str, Any]:
        """Give all memory back but what a compiler keeps for its graphs."""
        self._caller.forget()
        torch.cuda.synchronize()
        if self._mapped:
            self._driver.unmap(*self._mapped)
            self._mapped = None
        torch.cuda.empty_cache()
        return {}

    def _open(self, question: dict[str, Any]) -> dict[str, Any]:
        size_bytes = question["device"]["size_bytes"]
        if not self._opened:
            self._driver, self._opened = opened(self._kind), True
            self._clock = DeviceClock(self._driver, self._flush_bytes)
        self._mapped = (self._driver.open_shared(question["descriptor"], size_bytes), size_bytes)
        self._arena = DeviceBytes(self._mapped[0])
        os.close(question["descriptor"])
        answer = super()._open(question)
        if self._mode:  # importing the compiler takes seconds
            torch._dynamo.config.recompile_limit = 64
        return answer

    def run(self, prepared: Prepared) -> int:
        """One call; nanoseconds of device time."""
        elapsed, prepared.result = self._clock.time(prepared.call, ())
        return elapsed

    def finish(self, prepared: Prepared, call: dict[str, Any]) -> None:
        """Copy the results into the arena and wait for that."""
        super().finish(prepared, call)
        self._clock.settle()

    def floor_ns(self) -> list[int]:
        """The least that a launch takes."""
        return self._clock.floor_ns()

    def replays_ns(self, prepared: Prepared) -> list[int]:
        """Device time of replays from a graph."""
        return insight.replays_ns(insight.torch_graph(prepared.call), self._clock)

    def report(self) -> dict[str, Any]:
        """What the device's clock saw beside the times."""
        return self._clock.take()


def _described(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, torch.Tensor):
        return {"name": name, "scalar": value}
    spec = spec_of(value)
    return {"name": name, **to_plain(spec), "offset": 0, "size_bytes": storage_bytes(spec)}


def _laid_out(value: Any) -> Any:
    """On the device, with the layout that `spec_of` will describe; gaps of the strides are zero."""
    if not isinstance(value, torch.Tensor):
        return value
    spec = spec_of(value)
    whole = torch.zeros(storage_bytes(spec), dtype=torch.uint8, device="cuda")
    placed = whole.view(value.dtype).as_strided(spec.shape, spec.strides) if whole.numel() else value.to("cuda")
    return placed.copy_(value)


def _as_bytes(value: torch.Tensor) -> torch.Tensor:
    size_bytes = storage_bytes(spec_of(value))
    flat = value.as_strided((size_bytes // value.dtype.itemsize,), (1,))
    return flat.view(torch.uint8)


def _size(made: CallInputs) -> int:
    tensors = [value for value in made.values.values() if isinstance(value, torch.Tensor)]
    return sum(tensor.untyped_storage().nbytes() for tensor in tensors)
