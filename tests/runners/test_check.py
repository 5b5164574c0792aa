"""Test the effort `check`: it runs the public test cases and stops, so that a writer may look as often as it likes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import runners.problems
from runners.harness import evaluate
from runners.job import Effort, JobResult, JobSpec, Language, Limits, ProblemBundle, Source, Status
from runners.problems import load, open_bundle
from runners.problems.base import Purpose
from tests.runners import kernels

pytestmark = [pytest.mark.processes, pytest.mark.split, pytest.mark.usefixtures("one_torch_for_all_problems")]
TRITON_SEED = Path(runners.problems.__file__).parent / "shipped/softmax_rows/seeds/triton_rows.py"
# Triton's interpreter takes eight milliseconds for each program of a launch, and softmax a program for each row.
FEWER_ROWS = {65: 5, 513: 9, 31: 3, 1024: 8, 512: 8, 256: 8}


def checked(text: str) -> JobResult:
    limits = Limits(call_s=20.0, total_s=180.0)
    source = Source(Language.CPP, text)
    return evaluate(JobSpec("job", load("softmax_rows"), "cpu", source, Effort.CHECK, limits=limits))


def with_fewer_rows() -> ProblemBundle:
    """Return the softmax problem with the columns of its cases and few of their rows."""
    bundle = load("softmax_rows")
    text = bundle.files[bundle.entry]
    for rows, fewer in FEWER_ROWS.items():
        text = text.replace(f'"{rows}x', f'"{fewer}x').replace(f"rows = {rows},", f"rows = {fewer},")
    return replace(bundle, files={**bundle.files, bundle.entry: text})


def interpreted(text: str, for_target: str = "") -> JobResult:
    """Check a Triton kernel by the interpreter, as one that is written for that GPU if one is named."""
    pytest.importorskip("triton")
    limits = Limits(call_s=60.0, total_s=300.0)
    spec = JobSpec("job", with_fewer_rows(), "cpu", Source(Language.TRITON, text), Effort.CHECK, limits=limits)
    return evaluate(replace(spec, for_target=for_target))


def test_a_check_runs_the_public_cases_and_times_nothing() -> None:
    result = checked(kernels.HONEST)
    assert (result.status, result.speedup, result.verdict) == (Status.CORRECT, None, None)
    assert [stage.name for stage in result.stages] == ["screen", "build", "smallest", "tests"]
    problem = open_bundle(load("softmax_rows"))
    assert [case.name for case in result.cases] == [case.name for case in problem.cases("cpu", Purpose.TEST)]
    assert problem.cases("cpu", Purpose.HIDDEN), "the problem has cases that a check must not show"


def test_a_check_names_the_first_wrong_element() -> None:
    result = checked(kernels.WRONG_IN_LAST_ROW)
    assert result.status == Status.INCORRECT and "elements wrong; worst at" in result.reasons[0]


def test_a_timing_without_hidden_cases_does_not_tell_where_a_kernel_fails_on_them() -> None:
    wrong_where_hidden = kernels.kernel("softmax(x, out, rows, cols); if (cols == 17) out[0] += 1;")
    limits = Limits(call_s=20.0, total_s=180.0)
    source = Source(Language.CPP, wrong_where_hidden)
    counts = JobSpec("job", load("softmax_rows"), "cpu", source, Effort.QUICK, limits=limits)
    whole = evaluate(counts)
    assert whole.status == Status.INCORRECT and "513x17" in whole.reasons[0], "an evaluation has all cases"
    asked = evaluate(replace(counts, hidden_cases=False))
    hidden = {case.name for case in open_bundle(load("softmax_rows")).cases("cpu", Purpose.HIDDEN)}
    assert (asked.status, asked.reasons) == (Status.CORRECT, []) and asked.speedup is not None
    assert hidden.isdisjoint(case.name for case in asked.cases)


def test_a_triton_kernel_is_checked_without_a_device_and_runs_on_the_cpu_where_it_asks_triton_for_one() -> None:
    text = TRITON_SEED.read_text().replace(
        "BLOCK = 4096\n", "DEVICE = triton.runtime.driver.active.get_active_torch_device()\nBLOCK = 4096\n"
    )
    text = text.replace("torch.empty_like(x)", "torch.empty(x.shape, device=DEVICE)\n    assert x.device == DEVICE")
    assert text.count("DEVICE") == 3
    result = interpreted(text)
    assert (result.status, result.reasons) == (Status.CORRECT, []) and len(result.cases) > 1


@pytest.mark.parametrize(
    "problem", [pytest.param("bf16_gemm_bias_gelu", marks=pytest.mark.long), "attention_forward"]
)
def test_a_bfloat16_triton_kernel_is_checked_without_a_device(problem: str) -> None:
    pytest.importorskip("triton")
    seed = next((Path(runners.problems.__file__).parent / f"shipped/{problem}/seeds").glob("triton_*.py"))
    limits = Limits(call_s=60.0, total_s=300.0)
    source = Source(Language.TRITON, seed.read_text())
    result = evaluate(JobSpec("job", load(problem), "cpu", source, Effort.CHECK, limits=limits))
    assert (result.status, result.reasons) == (Status.CORRECT, [])


# Its host code asks about the device as kernels for Hopper do, and its kernel calls what only a device has.
FOR_A_GPU = """
import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice
from triton.language.extra.cuda import gdc_launch_dependents
from triton.runtime import driver


@triton.autotune([triton.Config({"BLOCK": size}, num_warps=4) for size in (1024, 2048)], key=["cols"])
@triton.jit
def rows_kernel(x, out, rows, cols, least, BLOCK: tl.constexpr):
    tl.extra.cuda.gdc_wait()
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        peak = least.to(tl.float32)
        for start in range(0, cols, BLOCK):
            at = start + tl.arange(0, BLOCK)
            peak = tl.maximum(peak, tl.max(tl.load(x + row * cols + at, mask=at < cols, other=-float("inf")), 0))
        total = 0.0
        for start in range(0, cols, BLOCK):
            at = start + tl.arange(0, BLOCK)
            value = tl.load(x + row * cols + at, mask=at < cols, other=-float("inf"))
            total += tl.sum(libdevice.exp(value - peak), 0)
        for start in range(0, cols, BLOCK):
            at = start + tl.arange(0, BLOCK)
            value = libdevice.fast_expf(tl.load(x + row * cols + at, mask=at < cols) - peak)
            tl.store(out + row * cols + at, value / total, mask=at < cols)
    gdc_launch_dependents()


def custom_kernel(x):
    assert torch.cuda.is_available() and x.is_cuda and x.device.type == "cuda", x.device
    if torch.cuda.get_device_capability(x.device) != CAPABILITY:
        raise RuntimeError("written for another device")
    units = torch.cuda.get_device_properties(x.device).multi_processor_count
    assert driver.active.utils.get_device_properties(x.device.index)["multiprocessor_count"] == units == UNITS
    out = torch.empty(x.shape, device="cuda", dtype=x.dtype)
    with torch.cuda.device(x.device):
        rows_kernel[(min(units, x.shape[0]),)](x, out, *x.shape, -float("inf"))
    return out
"""


@pytest.mark.parametrize(
    ("key", "capability", "units"),
    [("sm_90", (9, 0), 132), pytest.param("gfx942", (9, 4), 304, marks=pytest.mark.long)],
)
def test_a_kernel_that_asks_about_its_gpu_is_checked_without_one(
    key: str, capability: tuple[int, int], units: int
) -> None:
    text = FOR_A_GPU.replace("CAPABILITY", str(capability)).replace("UNITS", str(units))
    result = interpreted(text, key)
    assert (result.status, result.reasons) == (Status.CORRECT, []) and len(result.cases) > 1
    assert interpreted(text).status != Status.CORRECT, "on a CPU for a CPU nothing is pretended"


# What a kernel's host code may say of its tensors. What it calls `out` is given to a launch, which refuses the host's.
SAID = [
    "assert torch.arange(3).device.type == 'cpu' and not torch.ones(2).is_cuda",
    "assert torch.ones(2).to(x.device).is_cuda and x.new_ones(2).is_cuda and (x + 1).is_cuda",
    "assert torch.ones(2, device=x.get_device()).is_cuda and torch.ones(2).to(0).is_cuda",
    "assert not x.cpu().is_cuda and x.cpu().cuda().is_cuda; x.cpu().zero_()",
    "torch.cuda.set_device(x.device); torch.cuda.synchronize(device=x.device)",
    "assert torch.compile(torch.relu)(x).is_cuda",
    "assert x.device == torch.device('cuda:0') and torch.device('cuda', 0).type == 'cuda'",
    "assert torch.cuda.get_device_capability(x.device) == (9, 4)",
    "assert torch.cuda.get_device_properties(x.device).multi_processor_count == 304",
    "out = torch.empty(x.shape, device=torch.device('cuda'))",
    "with torch.device('cuda'): out = torch.empty(x.shape)",
    "assert torch.nn.Linear(2, 2).to(x.device).weight.is_cuda",
    "assert torch.zeros(3).type_as(x).is_cuda",
]
REFUSED = "out = torch.empty(x.shape)"
TOLD_APART = """
def custom_kernel(x):
    out, faults = torch.empty_like(x), []
    for says in SAYING:
        try:
            made = says(x)
            if made is not None:
                launched(x, made)
                launched(x, out)
                assert torch.equal(made, out), "wrong"
        except Exception as fault:
            faults.append(f"{says.__doc__}: {fault!r}")
    try:
        launched(x, refused(x))
        faults.append("a launch took a tensor of the host")
    except Exception as fault:
        if "cannot be accessed from Triton (cpu tensor?)" not in f"{fault} {fault.__cause__}":
            faults.append(repr(fault))
    if faults:
        raise AssertionError("; ".join(faults))
    return launched(x, out)
"""


def saying(name: str, line: str) -> str:
    """Return a function that runs the line and returns what it calls `out`."""
    return f"def {name}(x, out=None):\n    {line!r}\n    {line}\n    return out\n"


def test_tensors_of_the_host_and_of_a_gpu_are_told_apart_without_a_gpu() -> None:
    """Run all lines in one process, which names those that fail."""
    text = TRITON_SEED.read_text().replace("    out = torch.empty_like(x)\n", "")
    text = text.replace("def custom_kernel(x):", "def launched(x, out):")
    functions = [saying(f"says_{number}", line) for number, line in enumerate(SAID)]
    names = ", ".join(f"says_{number}" for number in range(len(SAID)))
    parts = [text, *functions, saying("refused", REFUSED), f"SAYING = ({names})", TOLD_APART]
    result = interpreted("\n\n".join(parts), "gfx942")
    told = "\n".join([*result.reasons, result.build.log if result.build else ""])
    assert result.status == Status.CORRECT, told


def test_a_kernel_for_a_gpu_that_returns_a_tensor_of_the_host_is_refused() -> None:
    text = TRITON_SEED.read_text().replace(
        "    block = min(", "    return torch.softmax(x.cpu(), 1)\n    block = min(", 1
    )
    assert "x.cpu()" in text
    result = interpreted(text, "sm_90")
    assert result.status != Status.CORRECT
    assert "expected a tensor on the GPU, got one on cpu" in "\n".join(result.reasons)


TUNED = """
@triton.autotune([triton.Config({"SCALE": scale}) for scale in SCALES], key=["cols"])
@triton.jit
def NAME(x, out, cols, block: tl.constexpr, SCALE: tl.constexpr):
    at = tl.program_id(0) * cols + tl.arange(0, block)
    inside = tl.arange(0, block) < cols
    value = tl.load(x + at, mask=inside, other=-float("inf"))
    weight = tl.exp(value - tl.max(value, 0))
    BEFORE
    tl.store(out + at, SCALE * weight / tl.sum(weight, 0) + before, mask=inside)
"""
# The columns are those of the last case.
TELLS_WHICH_ARE_WRONG = """
WRONG = set()


def custom_kernel(x):
    wanted = torch.softmax(x, 1)
    for name, kernel in {"right": right, "second": second, "adding": adding}.items():
        out = torch.zeros_like(x)
        kernel[(x.shape[0],)](x, out, x.shape[1], triton.next_power_of_2(x.shape[1]))
        if not torch.allclose(out, wanted, rtol=1e-4, atol=1e-8):
            WRONG.add(name)
    if x.shape[1] == 10007:
        raise RuntimeError(f"wrong: {sorted(WRONG)}")
    return wanted
"""


def tuned(name: str, scales: str, before: str) -> str:
    """Return a softmax kernel with a configuration for each scale."""
    return TUNED.replace("NAME", name).replace("SCALES", scales).replace("BEFORE", f"before = {before}")


def test_tuned_kernels_are_checked_with_several_configurations() -> None:
    """One is wrong in its second configuration, and one adds to what an earlier launch of the tuner has left."""
    kernels_of_it = [
        tuned("right", "(1.0, 1.0)", "0.0"),
        tuned("second", "(1.0, 2.0)", "0.0"),
        tuned("adding", "(1.0, 1.0)", "tl.load(out + at, mask=inside)"),
    ]
    head = "import torch\nimport triton\nimport triton.language as tl\n"
    (reason,) = interpreted("\n".join([head, *kernels_of_it, TELLS_WHICH_ARE_WRONG])).reasons
    assert "wrong: ['adding', 'second']" in reason


def test_what_the_interpreter_does_not_know_of_a_device_is_named() -> None:
    text = TRITON_SEED.read_text().replace("tl.program_id(0)", "tl.program_id(0) + 0 * tl.extra.cuda.smid()", 1)
    assert "smid" in text
    (reason,) = interpreted(text).reasons
    assert "tl.extra.cuda.smid is not computed by Triton's interpreter on a CPU" in reason


def test_a_kernel_in_gluon_is_named_as_one_that_the_interpreter_does_not_know() -> None:
    text = TRITON_SEED.read_text().replace("@triton.jit", "@gluon.jit")
    text = text.replace("import triton\n", "import triton\nfrom triton.experimental import gluon\n", 1)
    (reason,) = interpreted(text).reasons
    assert "is not computed by Triton's interpreter on a CPU" in reason and "drivers" not in reason
