"""Test the benchmarks of static features: what is compiled for a recorded space, and how predictions are judged."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import landscape_features, time_model
from benchmarks.landscape_features import Compiler, builds
from benchmarks.search import Landscape, Options, search
from runners.job import KernelResources

VALUES = {"tile": [1, 2, 3, 4, 5, 6, 7, 8], "block": [16, 32, 64, 128], "cached": [0, 1], "amount": [7]}
KERNEL = """
#define kernel __attribute__((global))
kernel void scaled(float* out) {
  for (int at = 0; at < tile * amount + 64 * cached; ++at) out[at * block + cached] *= 2.0f;
}
"""


def time_ms(tile: int, block: int, cached: int) -> float:
    return 0.1 * tile + 0.001 * block / 16


def features_of(tile: int) -> dict[str, float]:
    return {"vector": 10.0 * tile, "store_bytes": 4.0, "instructions": 12.0 + tile}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Write a space of 64 configurations whose time follows from the tile, and return its folder."""
    keys = [(t, b, c) for t in VALUES["tile"] for b in VALUES["block"] for c in VALUES["cached"]]
    cache = {
        f"{t},{b},{c}": {"tile": t, "block": b, "cached": c, "amount": 7, "time": time_ms(t, b, c)}
        for t, b, c in keys
    }
    folder = tmp_path / "data"
    folder.mkdir()
    plain = {"tune_params_keys": list(VALUES), "tune_params": VALUES, "cache": cache}
    (folder / "tiny-GPU.json").write_text(json.dumps(plain))
    return folder


@pytest.fixture
def features(tmp_path: Path, data: Path) -> Path:
    """Write the features of every configuration, and return their folder."""
    folder = tmp_path / "features"
    folder.mkdir()
    known = {json.dumps(key): features_of(int(key[0])) for key in Landscape.read(data / "tiny-GPU.json").times}
    (folder / "tiny-GPU.json").write_text(json.dumps({"seconds": 1.0, "features": known}))
    return folder


def test_configurations_with_the_same_code_share_a_build(data: Path) -> None:
    landscape = Landscape.read(data / "tiny-GPU.json")
    assert len(builds(landscape, [], [])) == 64
    ignoring = builds(landscape, ["cached"], [])
    assert len(ignoring) == 32 and all(len(keys) == 2 for keys in ignoring.values())
    alike = builds(landscape, [], ["tile"])
    assert len(alike) == 8 and sorted(key for keys in alike.values() for key in keys) == sorted(landscape.times)
    assert list(alike) == list(builds(landscape, [], ["tile"])), "an interrupted run goes on in the same order"


@pytest.mark.hip
@pytest.mark.processes
def test_features_are_compiled_once_and_shared_by_configurations_with_the_same_code(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kernel = tmp_path / "scaled.hip"
    kernel.write_text(KERNEL)
    words = ["--landscape", str(data / "tiny-GPU.json"), "--kernel", str(kernel), "--arch", "gfx942",
             "--out", str(tmp_path), "--alike", "cached"]  # fmt: skip
    assert landscape_features.main(words) == 0
    found = Landscape.read(data / "tiny-GPU.json").features(tmp_path)
    assert len(found) == 64 and all(one["instructions"] > 5 for one in found.values())
    assert found[(8, 16, 0)] == found[(1, 128, 0)]

    kernel.write_text("#error nothing is built twice")
    assert landscape_features.main(words) == 0
    assert "0 to make" in capsys.readouterr().out


CUDA = """
extern "C" __global__ void scaled(const float* x, float* out) {
    int at = blockIdx.x * block + threadIdx.x;
#if cached
    __shared__ float kept[block];
    kept[threadIdx.x] = x[at];
    __syncthreads();
    out[at] = kept[(threadIdx.x + tile) % block];
#else
    out[at] = x[at] * tile;
#endif
}
"""


@pytest.mark.nvcc
@pytest.mark.processes
def test_configurations_are_compiled_for_an_nvidia_gpu_too(data: Path, tmp_path: Path) -> None:
    kernel = tmp_path / "scaled.cu"
    kernel.write_text(CUDA)
    words = ["--landscape", str(data / "tiny-GPU.json"), "--kernel", str(kernel), "--arch", "sm_80",
             "--out", str(tmp_path), "--alike", "cached", "--limit", "60"]  # fmt: skip
    assert landscape_features.main(words) == 0
    found = Landscape.read(data / "tiny-GPU.json").features(tmp_path)
    plain, cached = found[(8, 16, 0)], found[(8, 16, 1)]
    assert plain["load"] == 1 and plain["registers"] > 2
    assert (plain["lds_load"], cached["lds_load"], cached["barrier"]) == (0, 1, 1)


def test_the_kernel_that_was_tuned_is_read_and_not_another_one_of_its_file() -> None:
    both = [KernelResources(name, features={"vector": at}) for at, name in enumerate(("_Z5naivev", "_Z5tunedv"))]
    compiler = Compiler(Path("two.hip"), "gfx942", [], 4, entry="tuned")
    assert compiler.chosen(both)["vector"] == 1
    with pytest.raises(ValueError, match="names 2 of _Z5naivev, _Z5tunedv"):
        replace(compiler, entry="").chosen(both)


def test_a_left_out_file_is_predicted_from_the_same_kernel_elsewhere_and_from_other_kernels(
    data: Path, features: Path
) -> None:
    one = time_model.Recorded.read(data / "tiny-GPU.json", features)
    files = [one, replace(one, name="tiny-OTHER"), replace(one, name="another-GPU")]
    lines = list(time_model.left_out(files, 2))
    assert [line.partition(":")[0] for line in lines[:2]] == [
        "tiny-GPU from same kernel, other GPUs (tiny-OTHER)",
        "tiny-GPU from other kernels (another-GPU)",
    ]
    assert len(lines) == 5, "another kernel has no other GPU"
    assert float(lines[0].split("rank correlation ")[1].split(",")[0]) > 0.95


def test_a_search_may_start_from_what_was_measured_on_another_gpu(data: Path, tmp_path: Path) -> None:
    (data / "tiny-OTHER.json").write_text((data / "tiny-GPU.json").read_text())
    options = Options(cache=tmp_path / "cache", until=1, limit=20)
    found = search(data / "tiny-GPU.json", "gp+from=OTHER", 4, options)
    assert found.reached == (1.0,), "the fastest configuration there comes first, and ends the search"
    kept = json.loads((tmp_path / "cache" / "tiny-OTHER-100-1.json").read_text())
    assert len(kept) == 64
    assert search(data / "tiny-GPU.json", "gp+from=OTHER", 4, options) == found


def test_the_time_model_is_judged_on_configurations_that_it_was_not_fitted_to(data: Path, features: Path) -> None:
    said = time_model.figures_of(data / "tiny-GPU.json", features, [20], 3)
    assert "tiny-GPU: 64 with features; rank correlation of the rules alone 0.9" in said
    rank = float(said.split("20 measured: rank correlation ")[1].split(",")[0])
    error = float(said.split("median error ×")[1].split(",")[0])
    assert rank > 0.95 and error < math.exp(0.05)


def test_a_search_that_compiles_ahead_reaches_the_optimum_by_what_it_compiled(data: Path, features: Path) -> None:
    found = search(data / "tiny-GPU.json", "gp+ahead", 1, Options(features))
    assert found.reached[-1] == 1.0
    assert len(found.reached) <= 64
