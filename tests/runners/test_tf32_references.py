"""Test that kernels in full precision are right where the reference itself computes in TF32."""

from __future__ import annotations

import json
import math
import mmap
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from runners.candidate.tensors import HostArena, tensor_at
from runners.harness.oracle.oracle import Oracle
from runners.harness.oracle.pool import pool
from runners.problems import compare, load, open_bundle, precision
from runners.problems.base import Judging, Purpose
from runners.problems.compare import ELEMENT_BYTES
from runners.problems.precision import as_close, errors_of
from runners.problems.tolerance import Tolerance
from runners.problems.variants import VARIANTS
from runners.wire import to_plain

TOLERANCE = Tolerance(1e-4, 1e-4)
# A CPU knows no TF32, so this reference cuts its factors off itself, unless TF32 is switched off.
REFERENCE = """
import torch
def cut(x):
    in_tf32 = x.dtype == torch.float32 and torch.backends.cudnn.conv.fp32_precision != "ieee"
    return (x.view(torch.int32) & ~0x1FFF).view(torch.float32) if in_tf32 else x
class Model(torch.nn.Module):
    def forward(self, x):
        return cut(x) * 2
def get_inputs():
    return [torch.randn(64, 128)]
def get_init_inputs():
    return []
"""
TF32, BFLOAT16 = 13, 16


def cut(values: torch.Tensor, bits: int) -> torch.Tensor:
    """Return float32 values with their last bits cut off."""
    return (values.view(torch.int32) & -(1 << bits)).view(torch.float32)


def rounded(values: torch.Tensor, bits: int) -> torch.Tensor:
    """Return float32 values with their last bits rounded off."""
    return cut((values.view(torch.int32) + (1 << (bits - 1))).view(torch.float32), bits)


def factors() -> tuple[torch.Tensor, torch.Tensor]:
    """Return the factors of a matrix product, 64 × 256 and 256 × 64."""
    drawn = torch.Generator().manual_seed(3)
    return torch.randn(64, 256, generator=drawn), torch.randn(256, 64, generator=drawn)


def is_close(output: torch.Tensor, own: torch.Tensor, exact: torch.Tensor) -> bool:
    return as_close([output], [own], [exact], [TOLERANCE]) is not None


def test_products_in_full_precision_and_in_tf32_are_as_close_and_those_in_bfloat16_are_not() -> None:
    a, b = (factor / 8 for factor in factors())
    exact, own = a @ b, rounded(a, TF32) @ rounded(b, TF32)
    assert errors_of(own, exact, TOLERANCE).worst > 1, "the reference itself is beyond the published tolerance"
    assert is_close(exact, own, exact)
    assert is_close((a.double() @ b.double()).float(), own, exact)
    assert is_close(cut(a, TF32) @ cut(b, TF32), own, exact)
    assert not is_close(rounded(a, BFLOAT16) @ rounded(b, BFLOAT16), own, exact)


def test_one_element_or_the_whole_output_may_not_be_off_by_more() -> None:
    a, b = (factor / 8 for factor in factors())
    exact, own = a @ b, rounded(a, TF32) @ rounded(b, TF32)
    one = exact.clone()
    one[5, 7] += 6 * errors_of(own, exact, TOLERANCE).worst * (TOLERANCE.atol + TOLERANCE.rtol * exact[5, 7].abs())
    assert not is_close(one, own, exact)
    all_of_them = exact + 1e-3 * 1.5 * exact.square().mean().sqrt()
    assert errors_of(all_of_them, exact, TOLERANCE).worst < 5 * errors_of(own, exact, TOLERANCE).worst
    assert is_close(all_of_them.lerp(exact, 0.5), own, exact)
    assert not is_close(all_of_them, own, exact)


def test_a_reference_that_is_exact_or_ill_conditioned_permits_nothing_more() -> None:
    exact = torch.linspace(-1, 1, 4096).reshape(64, 64)
    assert not is_close(exact + 1e-3, exact, exact)
    assert is_close(exact + 1e-4, exact + 0.1, exact) and not is_close(exact + 1e-3, exact + 0.1, exact)
    assert not is_close(torch.full_like(exact, torch.nan), exact + 2e-4, exact)
    assert not is_close(exact[:32], exact + 2e-4, exact)


def hardshrunk(values: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.hardshrink(values, 0.2)


def test_a_jump_that_tf32_crosses_in_a_few_elements_permits_nothing_in_the_others() -> None:
    drawn = torch.Generator().manual_seed(5)
    a, b = (torch.randn(size, generator=drawn) / 8 for size in ((512, 256), (256, 512)))
    exact = hardshrunk(a @ b)
    own = hardshrunk(rounded(a, TF32) @ rounded(b, TF32))
    assert errors_of(own, exact, TOLERANCE).worst > 1000, "some elements have crossed"
    assert is_close(hardshrunk((a.double() @ b.double()).float()), own, exact)
    assert is_close(hardshrunk(cut(a, TF32) @ cut(b, TF32)), own, exact)
    assert not is_close(hardshrunk(rounded(a, BFLOAT16) @ rounded(b, BFLOAT16)), own, exact)
    sparse = exact.clone()
    sparse.flatten()[:: exact.numel() // 400] = 5.0
    assert not is_close(sparse, own, exact)


def test_an_output_of_many_chunks_has_the_errors_that_it_has_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = (factor / 8 for factor in factors())
    exact, own = a @ b, rounded(a, TF32) @ rounded(b, TF32)
    whole = errors_of(own, exact, TOLERANCE)
    monkeypatch.setattr(precision, "chunk_bytes_on", lambda device: 100 * ELEMENT_BYTES)
    in_parts = errors_of(own, exact, TOLERANCE)
    assert in_parts.worst == whole.worst and in_parts.mean == pytest.approx(whole.mean)
    assert is_close(exact, own, exact) and not is_close(exact + 1e-2, own, exact)
    broken = own.clone()
    broken[-1, -1] = torch.nan
    assert math.isnan(errors_of(broken, exact, TOLERANCE).worst)
    assert errors_of(own[:0], exact[:0], TOLERANCE) == precision.Errors(0.0, 0.0)


def test_an_output_that_is_the_same_in_both_precisions_is_compared_as_published() -> None:
    a, b = (factor / 8 for factor in factors())
    exact, own, index = a @ b, rounded(a, TF32) @ rounded(b, TF32), a.argmax(1)
    both = [own, index], [exact, index], [TOLERANCE, Tolerance(0.0, 0.0)]
    assert as_close([exact, index], *both) is not None
    assert as_close([exact, index + 1], *both) is None
    mean = a.mean(1)
    both = [own, mean], [exact, mean], [TOLERANCE, TOLERANCE]
    assert as_close([exact, mean + 1e-6], *both) is not None
    assert as_close([exact, mean + 1e-3], *both) is None
    assert as_close([index], [index], [index], [TOLERANCE]) is None


SETTINGS = """
import json, os, sys, torch
from runners.problems.precision import without_tf32
def seen():
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    readers = [lambda: matmul.allow_tf32, lambda: cudnn.allow_tf32, torch.get_float32_matmul_precision,
               lambda: cudnn.conv.fp32_precision, lambda: cudnn.rnn.fp32_precision, lambda: matmul.fp32_precision]
    values = []
    for read in readers:
        try:
            values.append(read())
        except RuntimeError:
            values.append("refused")
    return values
def tried(chosen):
    exec(chosen)
    before = seen()
    try:
        with without_tf32():
            inside = seen()
            raise ZeroDivisionError
    except ZeroDivisionError:
        pass
    print(json.dumps([before, inside, seen()]), flush=True)
for chosen in sys.argv[1:]:
    child = os.fork()
    if not child:
        tried(chosen)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        print(json.dumps("failed"), flush=True)
"""
CHOSEN = [
    "",
    "torch.set_float32_matmul_precision('medium')",
    "torch.backends.cuda.matmul.allow_tf32 = True",
    "torch.backends.cudnn.allow_tf32 = False",
    "torch.backends.cudnn.conv.fp32_precision = 'ieee'",
    "torch.backends.fp32_precision = 'tf32'",
    "torch.backends.cuda.matmul.fp32_precision = 'tf32'",
]


@pytest.fixture(scope="module")
def settings() -> dict[str, Any]:
    """Return the settings before, in and after the block by what was chosen, each in a fork of one process."""
    program = [sys.executable, "-c", SETTINGS, *CHOSEN]
    found = subprocess.run(program, check=True, capture_output=True, text=True)
    return dict(zip(CHOSEN, map(json.loads, found.stdout.splitlines()), strict=True))


@pytest.mark.parametrize("chosen", CHOSEN)
def test_tf32_is_off_inside_the_block_only_whatever_a_module_has_chosen(
    settings: dict[str, Any], chosen: str
) -> None:
    before, inside, after = settings[chosen]
    assert inside[3:] == ["ieee", "ieee", "ieee"]
    assert inside[1] is False or before[1] == "refused", "what a module may read, it may read in the block too"
    assert before == after


class Judge:
    """Ask the oracle about outputs for one content of a problem."""

    def __init__(self, folder: Path, reference: str, distribution: str = "published") -> None:
        path = folder / "1_Tf32.py"
        path.write_text(reference)
        self.arena = HostArena(mmap.mmap(-1, 1 << 20))
        self.oracle = Oracle(self.arena)
        self.oracle.answer({"op": "open", "bundle": to_plain(load(path))})
        self.take(distribution)

    def take(self, distribution: str) -> None:
        """Make the inputs that are judged next."""
        (case,) = self.oracle._problem.cases("cpu", Purpose.TEST)
        self.content = len(self.oracle._contents) + 1
        contents = {"case": to_plain(case), "distribution": distribution, "first": self.content, "seeds": [7]}
        made = self.oracle.answer({"op": "inputs", "offset": 0, **contents})
        (spec,) = made["outputs"]
        self.spec = {**spec, "offset": -(-made["end"] // 256) * 256}
        (self.x,) = self.oracle._restored(self.content).values.values()

    def complaint(self, output: torch.Tensor, timed: bool = False) -> str | None:
        """Return why an output is wrong, or None."""
        tensor_at(self.arena, self.spec, self.spec["offset"]).copy_(output)
        error: str | None = self.oracle.answer(
            {"op": "judge", "content": self.content, "outputs": [self.spec], "timed": timed}
        )["error"]
        return error


@pytest.mark.parametrize("timed", [False, True])
def test_the_oracle_accepts_a_kernel_in_full_precision_where_the_reference_is_in_tf32(
    tmp_path: Path, timed: bool
) -> None:
    judge = Judge(tmp_path, REFERENCE)
    x = judge.x
    assert judge.complaint(cut(x, TF32) * 2, timed) is None, "the reference's own result"
    assert judge.complaint(x * 2, timed) is None, "full precision"
    assert judge.complaint(rounded(x, TF32) * 2, timed) is None, "TF32, rounded otherwise"
    assert "elements wrong" in (judge.complaint(cut(x, BFLOAT16) * 2, timed) or "")
    assert "elements wrong" in (judge.complaint(x * 2.1, timed) or "")


@pytest.mark.parametrize("distribution", VARIANTS)
def test_variants_show_gross_errors_where_the_reference_is_in_tf32(tmp_path: Path, distribution: str) -> None:
    judge = Judge(tmp_path, REFERENCE, distribution)
    x = judge.x
    assert judge.complaint(cut(x, TF32) * 2) is None, "the reference's own result"
    assert judge.complaint(x * 2) is None, "full precision"
    assert judge.complaint(cut(x, BFLOAT16) * 2) is None, "imprecise, which the published inputs show"
    assert "elements wrong" in (judge.complaint(torch.zeros_like(x)) or "")
    assert "elements wrong" in (judge.complaint(x * 2.1) or "")
    assert "elements wrong" in (judge.complaint((x * 2).clamp(-2, 2)) or ""), "right where inputs are small"


def test_a_variant_on_which_tf32_is_accurate_is_judged_as_strictly_as_others(tmp_path: Path) -> None:
    # TF32 loses less than a quarter of the tolerance of outputs that are small beside its absolute part.
    judge = Judge(tmp_path, REFERENCE.replace("cut(x) * 2", "cut(x) * 0.002"), "scaled")
    assert judge.complaint(cut(judge.x, TF32) * 0.002) is None
    assert "elements wrong" in (judge.complaint(judge.x * 0.00202) or "")


def test_an_accurate_variant_asks_for_no_more_than_the_published_inputs_of_a_reference_in_tf32(
    tmp_path: Path,
) -> None:
    # Published inputs are around 100, where TF32 loses several tolerances, and shifted ones are within 0.01 of zero.
    reference = REFERENCE.replace("torch.randn(64, 128)", "100 + 0.02 * torch.rand(64, 128)")
    judge = Judge(tmp_path, reference.replace("cut(x) * 2", "cut(x / 3) * 6"))
    assert judge.complaint(judge.x * 2) is None
    judge.take("shifted")
    assert judge.x.abs().max() < 0.02 and judge.complaint(cut(judge.x / 3, TF32) * 6) is None
    assert judge.complaint(cut(judge.x / 3, BFLOAT16) * 6) is None
    assert "elements wrong" in (judge.complaint(judge.x * 2.2) or "")


def test_an_accurate_variant_of_which_tf32_loses_much_by_the_norm_is_judged_strictly(tmp_path: Path) -> None:
    # The outputs are so small beside the absolute tolerance that only the norm shows what TF32 loses.
    reference = REFERENCE.replace("torch.randn(64, 128)", "100 + 0.0004 * torch.rand(64, 128)")
    judge = Judge(tmp_path, reference.replace("cut(x) * 2", "cut(x / 3 + 0.0025) * 3 - 0.0075"))
    assert judge.complaint(judge.x.clone()) is None
    judge.take("shifted")
    assert judge.oracle._expectation(judge.content).judging is Judging.AS_EXPECTED
    assert judge.complaint(torch.zeros_like(judge.x)) and judge.complaint(judge.x * 1.3)
    assert judge.complaint(judge.x.clone()) is None


@pytest.mark.processes
@pytest.mark.usefixtures("one_torch_for_all_problems")
def test_variants_are_found_for_a_module_that_chooses_its_precision_by_the_newer_setting(tmp_path: Path) -> None:
    path = tmp_path / "1_Newer.py"
    path.write_text(
        REFERENCE.replace("import torch\n", "import torch\ntorch.backends.cudnn.fp32_precision = 'tf32'\n", 1)
    )
    bundle = load(path)
    (case,) = open_bundle(bundle).cases("cpu", Purpose.TEST)
    # In a process of its own, because the module's choice is that of its process.
    oracle = pool().borrow(bundle)
    try:
        assert oracle.distributions(case) == ["published", *VARIANTS]
    finally:
        oracle.close()


def test_a_variant_on_which_a_reference_in_tf32_loses_too_much_is_no_test(tmp_path: Path) -> None:
    coarse = REFERENCE.replace("~0x1FFF", "~0xFFFFF")
    judge = Judge(tmp_path, coarse, "scaled")
    assert judge.complaint(torch.zeros_like(judge.x)) is None


class LiveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Count the bytes of all tensors that operations have made within the block and that are still alive."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak = 0
        self._live: dict[int, int] = {}

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = operation(*args, **(kwargs or {}))
        for value in tree_leaves(made):
            if isinstance(value, torch.Tensor):
                storage = value.untyped_storage()
                if storage._cdata not in self._live:
                    weakref.finalize(storage, self._live.pop, storage._cdata, None)
                self._live[storage._cdata] = storage.nbytes()
        self.peak = max(self.peak, sum(self._live.values()))
        return made


@pytest.mark.parametrize(("distribution", "outputs"), [("published", 4.5), ("scaled", 5.5)])
def test_judging_beside_a_reference_in_tf32_holds_few_outputs_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, distribution: str, outputs: float
) -> None:
    """An official convolution with an output of 8 GiB ran out of memory on 80 GB when 6.75 outputs were held."""
    for module in (compare, precision):
        monkeypatch.setattr(module, "chunk_bytes_on", lambda device: 2048 * ELEMENT_BYTES)
    judge = Judge(tmp_path, REFERENCE.replace("cut(x) * 2", "(cut(x) * 2).repeat(16, 1)"), distribution)
    output = (judge.x * 2).repeat(16, 1)
    with LiveBytes() as live:
        assert judge.complaint(output) is None
    # One of them is the oracle's copy of what is judged, which lies in the arena on a GPU. One in float64 counts twice.
    assert 3 < live.peak / output.nbytes < outputs
