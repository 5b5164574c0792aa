"""Run the oracle on a GPU, where it owns all device memory that is shared.

The oracle makes inputs on the device, lays them out in arenas that candidates map, and judges there; contents never
travel through the host. It makes what it needs again (an input to compare after a call) again from its seed, except
for the last few. Kept outputs are copies in its own memory, or if they are large the arena's own.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch

from runners.candidate.device_bytes import DeviceBytes
from runners.candidate.driver import Driver
from runners.candidate.tensors import tensor_at
from runners.harness.oracle.oracle import Expectation, Oracle, differs, digest, spec_of, storage_bytes
from runners.harness.oracle.protocol import FLUSH_VARIABLE, SCARCE_VARIABLE
from runners.problems.base import CallInputs, Case, TensorSpec
from runners.problems.compare import compare, loss_of
from runners.problems.tolerance import Tolerance
from runners.wire import from_plain, to_plain

# How many bytes of inputs to keep: usually, and where memory is scarce. The newest input is always kept.
CACHED_BYTES, SCARCE_BYTES = 1 << 30, 128 << 20
# What torch may keep for later of the memory that contents took; several oracles live side by side.
RESERVED_BYTES = 256 << 20
# Copying outputs of this size would take the device's memory once more.
KEPT_IN_PLACE_BYTES = 256 << 20
# In a larger arena only the gaps between the pieces are wiped. In a smaller one a single fill is cheaper.
LARGE_ARENA_BYTES = 1 << 30
# The size of the square matrix with which libraries are loaded.
ROW = 64


def oracle(driver_kind: str, memory_fd: int) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return what a trusted child on a GPU answers with. Reference code that names no device computes on it."""
    os.close(memory_fd)
    torch.set_default_device("cuda")
    is_scarce = SCARCE_VARIABLE in os.environ
    cached_bytes = SCARCE_BYTES if is_scarce else CACHED_BYTES
    answer = GpuOracle(opened(driver_kind), int(os.environ[FLUSH_VARIABLE]), cached_bytes).answer
    if not is_scarce:  # the libraries' kernels take memory too
        load_libraries()
    return answer


def load_libraries() -> None:
    """Load the libraries that judging and most references need, by using each once.

    In a process on an H100 the first comparison takes 0.45 s, the first matrix products 0.3 s and the first convolution
    0.1 to 0.5 s. An oracle that is started ahead spends that time before an evaluation needs it.
    """
    square = torch.eye(ROW, ROW)
    for expected in (square, square.double()):
        compare(square, expected, Tolerance(0.0, 0.0), loss_of(square, expected))
        torch.mm(expected, expected)
    if torch.version.hip is None:  # there a first convolution compiles its kernels
        torch.nn.functional.conv2d(square.view(1, 1, ROW, ROW), square[:3, :3].reshape(1, 1, 3, 3))
    torch.cuda.synchronize()


def opened(driver_kind: str) -> Driver:
    """Open the device, for torch too."""
    driver = Driver(driver_kind)
    torch.cuda.init()  # type: ignore[no-untyped-call]
    return driver


class GpuOracle(Oracle):
    """Answer all questions of an oracle, and those about arenas, kept outputs and memory that only a GPU has."""

    def __init__(self, driver: Driver, flush_bytes: int, cached_bytes: int = CACHED_BYTES) -> None:
        self._driver, self._cached_bytes = driver, cached_bytes
        self._arenas: dict[int, tuple[DeviceBytes, int, int]] = {}
        self._seeds: dict[int, tuple[Case, int, str]] = {}
        self._described: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {}
        self._made: OrderedDict[int, CallInputs] = OrderedDict()
        self._made_bytes = 0
        self._kept: dict[int, torch.Tensor] = {}
        self._numbers = 0
        self._flush = torch.zeros(max(flush_bytes, 1 << 20), dtype=torch.uint8)
        super().__init__(DeviceBytes(0))
        self._answers |= {
            "arena": self._arena, "lay": self._lay, "differing": self._differing, "same": self._same,
            "keep": self._keep, "digest": self._digest, "drop": self._drop, "held": self._held, "rest": self._rest,
            "close": self._close,
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
        self._trim()
        return answer

    def _trim(self) -> None:
        """Give unused memory of torch back to the device."""
        if torch.cuda.memory_reserved() - torch.cuda.memory_allocated() > RESERVED_BYTES:
            torch.cuda.empty_cache()

    def _next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _inputs(self, question: dict[str, Any]) -> dict[str, Any]:
        case = from_plain(Case, question["case"])
        contents = []
        for number, seed in enumerate(question["seeds"], start=question["first"]):
            self._seeds[number] = (case, seed, question["distribution"])
            contents.append(self._describe(case, number))
        return {"contents": contents, "end": 0, **self._common(case, question["first"])}

    def _describe(self, case: Case, number: int) -> list[dict[str, Any]]:
        """Return the layouts of a content's inputs. Large ones whose layout is known are not made before they are laid
        out, since they could not be kept until then."""
        known = self._described.get(case.name)
        if known is not None and known[0] == case.sizes:
            return known[1]
        made = self._content(number)
        described = [_described(name, value) for name, value in made.values.items()]
        if _size(made) > self._cached_bytes and all("scalar" not in value for value in described):
            self._described[case.name] = (case.sizes, described)
        return described

    def _content(self, number: int) -> CallInputs:
        """Return the inputs of a content, kept or made again from its seed."""
        if number not in self._made:
            case, seed, distribution = self._seeds[number]
            self._make_room()
            made = self._problem.make_inputs(case, seed, distribution)
            made = replace(
                made, values={name: _laid_out(value, self._cached_bytes) for name, value in made.values.items()}
            )
            self._check_layout(case, made, [_described(name, value) for name, value in made.values.items()])
            self._made[number] = made
            self._made_bytes += _size(made)
            del made
            while self._made_bytes > self._cached_bytes and len(self._made) > 1:
                self._made_bytes -= _size(self._made.popitem(last=False)[1])
        return self._made[number]

    def _make_room(self) -> None:
        """Forget large inputs that were made before, so that two of them never exist at once."""
        while self._made_bytes > self._cached_bytes:
            self._made_bytes -= _size(self._made.popitem(last=False)[1])
        self._trim()

    def _outputs_of(self, case: Case, content: int) -> tuple[list[TensorSpec], list[str]]:
        """Run the reference once, and give back what it took."""
        found = super()._outputs_of(case, content)
        self._trim()
        return found

    def _restored(self, content: int) -> CallInputs:
        """Return inputs that the reference may change.

        These are copies, or if they are large the inputs themselves, which are made again at the next need.
        """
        made = self._content(content)
        if _size(made) > self._cached_bytes:
            self._made_bytes -= _size(self._made.pop(content))
            return made
        values = {name: v.clone() if isinstance(v, torch.Tensor) else v for name, v in made.values.items()}
        return replace(made, values=values)

    def _made_input(self, content: int, name: str) -> Any:
        return self._content(content).values[name]

    def _case_of(self, content: int) -> Case:
        return self._seeds[content][0]

    def _lay(self, question: dict[str, Any]) -> dict[str, Any]:
        arena, base, whole = self._arenas[question["arena"]]
        if question["wipe"]:
            covered = [(offset, size_bytes) for offset, size_bytes, *_ in question["pieces"]]
            for start, size_bytes in uncovered(covered, whole) if whole > LARGE_ARENA_BYTES else [(0, whole)]:
                self._driver.fill(base + start, 0xFF, size_bytes)
        for offset, size_bytes, byte, content, name in question["pieces"]:
            if name and size_bytes:
                arena.bytes_at(offset, size_bytes).copy_(self._input_bytes(content, name))
            elif size_bytes:
                self._driver.fill(arena.base + offset, byte, size_bytes)
        # Reading a buffer of twice the last-level cache evicts the inputs just written, so that every side starts cold.
        self._flush.max()
        torch.cuda.synchronize()
        return {}

    def _input_bytes(self, content: int, name: str) -> torch.Tensor:
        return _as_bytes(self._content(content).values[name])

    def _differing(self, question: dict[str, Any]) -> dict[str, Any]:
        arena = self._arenas[question["arena"]][0]
        pieces = [(n, piece) for n, piece in enumerate(question["pieces"]) if piece[1]]
        answers = []
        for _, (offset, size_bytes, byte, content, name) in pieces:
            wanted = self._input_bytes(content, name) if name else byte
            answers.append(differs(arena.bytes_at(offset, size_bytes), wanted))
        found = torch.stack(answers).nonzero().flatten().tolist() if answers else []
        return {"index": pieces[found[0]][0] if found else None}

    def _same(self, question: dict[str, Any]) -> dict[str, Any]:
        arena = self._arenas[question["arena"]][0]
        pairs = [(arena.bytes_at(a, n), arena.bytes_at(b, n)) for a, b, n in question["pairs"] if n]
        return {"same": not any(bool(differs(one, two)) for one, two in pairs)}

    def _digest(self, question: dict[str, Any]) -> dict[str, Any]:
        arena = self._arenas[question["arena"]][0]
        return {"digest": " ".join(digest(arena.bytes_at(offset, size)) for offset, size in question["ranges"])}

    def _keep(self, question: dict[str, Any]) -> dict[str, Any]:
        arena = self._arenas[question["arena"]][0]
        places = []
        for spec, offset in zip(question["outputs"], question["offsets"], strict=True):
            number = self._next_number()
            place = tensor_at(arena, spec, offset)
            self._kept[number] = place if place.nbytes >= KEPT_IN_PLACE_BYTES else place.clone()
            places.append(number)
        torch.cuda.synchronize()
        return {"places": places}

    def _drop(self, question: dict[str, Any]) -> dict[str, Any]:
        for place in question["places"]:
            self._kept.pop(place, None)
        self._trim()
        return {}

    def _held(self, question: dict[str, Any]) -> dict[str, Any]:
        return {"bytes": torch.cuda.max_memory_allocated()}

    def _rest(self, question: dict[str, Any]) -> dict[str, Any]:
        torch.cuda.empty_cache()
        return {}

    def _judge(self, question: dict[str, Any]) -> dict[str, Any]:
        answer = super()._judge(question)
        if self._expected.size_bytes > self._cached_bytes:
            self._expected = Expectation(-1, [])
        if self._own.size_bytes > self._cached_bytes:
            self._own = Expectation(-1, [])
        self._trim()
        return answer

    def _snapshot(self, spec: dict[str, Any]) -> torch.Tensor:
        return self._kept[spec["offset"]]


def uncovered(pieces: list[tuple[int, int]], whole: int) -> Iterator[tuple[int, int]]:
    """Yield the offset and size of each gap between pieces, up to `whole`. Pieces are offsets and sizes, in any order,
    and may overlap."""
    end = 0
    for start, size in sorted(pieces):
        if start > end:
            yield end, start - end
        end = max(end, start + size)
    if whole > end:
        yield end, whole - end


def _described(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, torch.Tensor):
        return {"name": name, "scalar": value}
    spec = spec_of(value)
    return {"name": name, **to_plain(spec), "offset": 0, "size_bytes": storage_bytes(spec)}


def _laid_out(value: Any, most_bytes: int) -> Any:
    """Return a value on the device, with the layout that `spec_of` will describe; gaps of the strides are zero.

    A larger tensor than `most_bytes` that has this layout is returned as it is: a copy would take as much memory again.
    """
    if not isinstance(value, torch.Tensor):
        return value
    spec = spec_of(value)
    is_laid_out = value.is_cuda and value.is_contiguous() and tuple(spec.strides) == value.stride()
    if is_laid_out and value.nbytes > most_bytes:
        return value
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
