"""Test that variants are compiled and not run: real HIP builds, limits of the device, a missing compiler."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from runners.backends.base import BuildRequest
from runners.backends.rocm import rocm_directory
from runners.errors import Cancelled
from runners.harness import evaluate
from runners.harness.building.ahead import AheadOrder, compile_ahead
from runners.job import AheadBuild, Effort, Flag, JobResult, JobSpec, Language, Limits, Source, Status, Variant
from runners.problems import load
from runners.targets import target
from runners.wire import dumps, loads

# A block keeps WORDS words in shared memory; BROKEN does not compile.
TEXT = """// @tune WORDS 64 1024 65536
// @tune BROKEN 0 1
#include <cstdint>
#include <hip/hip_runtime.h>
#if BROKEN
#error this combination is not written
#endif
__global__ void rows(const float* x, float* out) {
  __shared__ float kept[WORDS];
  kept[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = kept[WORDS - 1 - threadIdx.x];
}
extern "C" void softmax_rows(const float* x, float* out, int64_t, int64_t, hipStream_t stream) {
  rows<<<1, 64, 0, stream>>>(x, out);
}
"""
SOURCE = Source(Language.HIP, TEXT)


def variant(words: int, broken: int = 0) -> Variant:
    return Variant({"WORDS": words, "BROKEN": broken})


@pytest.mark.hip
@pytest.mark.processes
def test_variants_are_compiled_and_those_that_cannot_run_say_why() -> None:
    variants = (variant(64), variant(1024), variant(64, 1), variant(65536), variant(7))
    spec = JobSpec("ahead", load("softmax_rows"), "gfx942", SOURCE, Effort.BUILD, ahead=variants)
    result = evaluate(spec)

    assert result.status == Status.CORRECT and result.flags == [Flag.NOT_EXECUTED]
    small, large, broken, oversized, unlisted = result.ahead
    assert not small.refused and not large.refused
    assert small.figures["lds_bytes"] == 256 and large.figures["lds_bytes"] == 4096
    assert small.artefact_hash != large.artefact_hash
    assert broken.refused == "kernel.hip:6:2: error: this combination is not written" and not broken.figures
    assert "262144" in oversized.refused
    assert "WORDS" in unlisted.refused
    assert loads(JobResult, dumps(result)).ahead == result.ahead


def order(folder: Path, count: int) -> AheadOrder:
    request = BuildRequest(SOURCE, "softmax_rows", "gfx942", folder, Limits())
    return AheadOrder(request, target("gfx942"), [variant(64)] * count)


def test_a_machine_without_a_compiler_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runners.backends.hip.shutil.which", lambda name: None)
    monkeypatch.setattr("runners.backends.hip.HIPCC_PLACES", ())
    spec = JobSpec("ahead", load("softmax_rows"), "gfx942", SOURCE, Effort.BUILD, ahead=(variant(64),))
    result = evaluate(spec)
    assert result.status == Status.INFRA_ERROR and not result.ahead
    assert "apt install clang-19" in result.reasons[0]


def test_a_cancelled_batch_compiles_no_further_variant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []

    def compiled(order: AheadOrder, number: int) -> AheadBuild:
        begun.append(hash(hashlib.sha256(bytes(1 << 18)).digest()))
        return AheadBuild()

    def cancel(_: str) -> None:
        raise Cancelled

    monkeypatch.setattr("runners.harness.building.ahead._compiled", compiled)
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    with pytest.raises(Cancelled):
        compile_ahead(order(tmp_path, 5000), cancel)
    assert len(begun) < 5000


@pytest.mark.hip
def test_threads_may_prepare_the_directory_of_the_compiler_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runners.backends.rocm.state_dir", lambda name: tmp_path)
    with ThreadPoolExecutor(4) as pool:
        made = set(pool.map(lambda _: rocm_directory.__wrapped__(), range(4)))
    assert made == {tmp_path / "device"}
    assert [path.name for path in tmp_path.iterdir()] == ["device"]
    assert (tmp_path / "device/share/hip/version").read_text().startswith("HIP_VERSION_MAJOR=")
