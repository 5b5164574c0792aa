"""Test that what Python candidates are given once travels through files, whatever its size and dtype."""

from __future__ import annotations

import mmap
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch

from runners.candidate import setups as reader
from runners.candidate.entry import Setup, StateMismatch, entry_of
from runners.candidate.tensors import HostArena, tensor_at
from runners.harness.memory.shared_memory import SharedMemory
from runners.harness.oracle import setups as writer
from runners.harness.oracle.parcel import Parcel, unpack
from runners.problems.base import CallInputs, CandidateSetup

GIB = 1 << 30


def written(folder: Path, setup: CandidateSetup) -> None:
    """Write a setup as the oracle does, and make files of it as the referee does."""
    with tempfile.TemporaryFile() as file:
        parcel = Parcel(file)
        writer.write_setup(parcel, "0", setup, "ModelNew")
        file.flush()
        unpack(file.fileno(), parcel.entries, folder)


def travelled(folder: Path, **state: torch.Tensor) -> Setup:
    written(folder, CandidateSetup(state=state, strict=True))
    return reader.read(str(folder), "0")


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.float16, torch.uint8, torch.bool]
)
def test_weights_arrive_bit_by_bit_whatever_their_dtype(tmp_path: Path, dtype: torch.dtype) -> None:
    sent = torch.randint(0, 2, (37, 5)).to(dtype).t()
    received = travelled(tmp_path, weight=sent, scalar=torch.tensor(3).to(dtype)).state
    assert received["weight"].dtype is dtype
    assert torch.equal(received["weight"].float(), sent.float())
    assert received["scalar"].shape == () and bool(received["scalar"].float() == torch.tensor(3).to(dtype).float())


def test_weights_larger_than_a_chunk_arrive_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chunks = list(writer.chunks_of(torch.arange(10, dtype=torch.int32), chunk_bytes=16))
    assert [len(chunk) for chunk in chunks] == [16, 16, 8]
    monkeypatch.setattr(writer, "CHUNK_BYTES", 64)
    sent = torch.randn(1000)
    assert torch.equal(travelled(tmp_path, weight=sent).state["weight"], sent)


def test_a_tensor_of_more_than_two_gib_is_cut_into_all_of_its_bytes() -> None:
    """A tensor's bytes are only addressed here, never touched, so that no page of the 5 GiB is allocated."""
    large = torch.empty(5 * GIB + 3, dtype=torch.uint8)
    lengths = [len(chunk) for chunk in writer.chunks_of(large, chunk_bytes=GIB)]
    assert lengths == [GIB] * 5 + [3]


def test_weights_behind_four_gib_are_found(tmp_path: Path) -> None:
    """A sparse file represents the weights in front."""
    path, offset = tmp_path / "0.bin", 4 * GIB + 64
    sent = torch.randn(7)
    with path.open("wb") as file:
        file.seek(offset)
        for chunk in writer.chunks_of(sent):
            file.write(chunk)
    (tmp_path / "0.json").write_text(
        '{"wanted": "ModelNew", "structure": null, "init": {}, "weight_seed": null, "call_seed": null,'
        ' "strict": true, "state": {"weight": {"dtype": "float32", "shape": [7], "strides": [1],'
        f' "offset": {offset}}}}}}}'
    )
    assert torch.equal(reader.read(str(tmp_path), "0").state["weight"], sent)


def test_shared_memory_beyond_four_gib_is_written_read_copied_and_compared() -> None:
    memory, offset = SharedMemory("test", 4 * GIB + (1 << 20)), 4 * GIB + 4096
    memory.write(offset, b"kernel")
    memory.copy_from(offset + 4096, memory, offset, 6)
    assert memory.read(offset + 4096, 6) == b"kernel"
    assert memory.equals(offset, memory, offset + 4096, 6)
    memory.fill(offset, 6, 7)
    assert memory.filled(offset, 6, 7)
    with pytest.raises(ValueError, match="outside"):
        memory.read(memory.size_bytes - 2, 4)
    memory.close()


def test_tensors_beyond_four_gib_of_an_arena_are_views_of_it() -> None:
    whole = mmap.mmap(-1, 4 * GIB + (1 << 20))
    view = tensor_at(HostArena(whole), {"dtype": "float32", "shape": [3], "strides": [1]}, 4 * GIB + 256)
    view.copy_(torch.tensor([1.0, 2.0, 3.0]))
    assert whole[4 * GIB + 260 : 4 * GIB + 264] == b"\x00\x00\x00\x40"


def test_constructor_arguments_may_be_written_to(tmp_path: Path) -> None:
    given = CandidateSetup(init=CallInputs({"0": torch.ones(3)}))
    written(tmp_path, given)
    (received,) = reader.read(str(tmp_path), "0").init
    assert torch.equal(received.add_(1), torch.full((3,), 2.0))


class Model(torch.nn.Module):
    """Hold one parameter and a buffer."""

    scale: torch.Tensor

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(width))
        self.register_buffer("scale", torch.zeros(1))

    def forward(self) -> tuple[torch.Tensor, bool]:
        return self.weight * self.scale, self.training


STATE = {"weight": torch.ones(4), "scale": torch.full((1,), 2.0)}


def built(cls: Any, state: dict[str, torch.Tensor]) -> Any:
    return entry_of({"Model": cls, "custom_kernel": None}, Setup("ModelNew", [], state, strict=True))


class Drawing(torch.nn.Module):
    """Draw parameters in every usual way, and a buffer that is no part of the state."""

    signs: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(64, 64))
        torch.nn.init.normal_(self.weight)
        linear = torch.nn.Linear(8, 8)
        self.deep = torch.nn.Sequential(linear, torch.nn.Embedding(4, 4), torch.nn.GRU(4, 4))
        torch.nn.init.xavier_normal_(linear.weight)
        # A weight that is quantised while the model is built, as kernelbench.com's fp8 product has.
        drawn = torch.nn.init.normal_(torch.empty(16, dtype=torch.bfloat16))
        self.register_buffer("quantised", (drawn.float() / 2).to(torch.int8))
        self.register_buffer("signs", torch.randn(3), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight * self.signs.sum()


def test_weights_that_a_strict_state_replaces_are_not_drawn_before() -> None:
    state = Drawing().state_dict()
    torch.manual_seed(5)
    model = entry_of({"Model": Drawing}, Setup("Model", [], state, strict=True))
    assert isinstance(model, Drawing)
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    # The generator served what is no weight, and nothing else.
    assert torch.equal(model.signs, torch.randn(3, generator=torch.Generator().manual_seed(5)))


def test_a_strict_state_is_loaded_in_evaluation_mode() -> None:
    result, training = built(Model, STATE)()
    assert torch.equal(result, torch.full((4,), 2.0)) and not training


@pytest.mark.parametrize(
    ("cls", "state", "said"),
    [
        (Model, {"weight": STATE["weight"]}, "Missing key.*scale"),
        (Model, {**STATE, "bias": torch.ones(1)}, "Unexpected key.*bias"),
        (lambda: Model(5), STATE, "size mismatch for weight"),
        (object, STATE, "expected a torch.nn.Module"),
    ],
)
def test_a_state_that_does_not_match_is_named(cls: Any, state: dict[str, torch.Tensor], said: str) -> None:
    with pytest.raises(StateMismatch, match=said):
        entry_of({"Model": type("Model", (), {"__new__": lambda _: cls()})}, Setup("Model", [], state, strict=True))


def test_a_strict_setup_accepts_both_names_of_a_model_and_nothing_else() -> None:
    for name in ("Model", "ModelNew"):
        entry = entry_of({name: Model, "custom_kernel": None}, Setup("ModelNew", [], STATE, strict=True))
        assert isinstance(entry, Model)
    with pytest.raises(LookupError, match="neither ModelNew nor Model"):
        entry_of({"custom_kernel": Model}, Setup("ModelNew", [], STATE, strict=True))


def test_weights_of_each_setup_have_versions_that_no_earlier_ones_had() -> None:
    versions = set[int]()
    for _ in range(3):
        model = entry_of({"Model": Model}, Setup("Model", [], STATE, strict=True))
        assert isinstance(model, torch.nn.Module)
        found = {tensor._version for tensor in model.state_dict(keep_vars=True).values()}
        assert found.isdisjoint(versions)
        versions |= found
