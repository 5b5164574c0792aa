"""Test the device's mathematical library in Triton's interpreter against torch."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.processes

# The interpreter is chosen when Triton is imported, so the kernels run in a process of their own.
PROGRAM = """
import importlib, json, math, sys, traceback
from runners.candidate import triton_interpreter
triton_interpreter.mend()
import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice
from triton.language.extra.cuda import libdevice as of_cuda

def applied(text, *operands, dtype=None):
    names = ", ".join(f"x{n}" for n in range(len(operands)))
    loads = "\\n".join(f"    v{n} = tl.load(x{n} + i)" for n in range(len(operands)))
    source = f"@triton.jit\\ndef kernel({names}, out, N: tl.constexpr):\\n    i = tl.arange(0, N)\\n{loads}\\n"
    path = sys.argv[1]
    with open(path, "w") as file:
        file.write("import triton\\nimport triton.language as tl\\nfrom triton.language.extra import libdevice\\n"
                   "from triton.language.extra.cuda import libdevice as of_cuda\\n" + source
                   + f"    tl.store(out + i, {text})\\n")
    spec = importlib.util.spec_from_file_location("kernel", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    out = torch.empty(operands[0].shape, dtype=dtype or operands[0].dtype)
    module.kernel[(1,)](*operands, out, operands[0].numel())
    return out

x = torch.tensor([-2.5, -1.5, -0.5, -0.25, 0.25, 0.5, 1.5, 2.5])
unit, positive = x / 3, x.abs()
same = torch.testing.assert_close
"""
# Text and operand of kernels that cannot be computed, and what is said of them.
REFUSED = [
    ("libdevice.tanh(v0)", "x.half()", "KeyError"),
    ("libdevice.pow(v0, 2.0)", "x.double()", "KeyError"),
    ("libdevice.abs(v0)", "x.half()", "KeyError"),
    (
        "libdevice.fma(v0, v0, v0)",
        "x.double()",
        "libdevice.fma of float64 is not computed by Triton's interpreter",
    ),
    ("libdevice.mul_rz(v0, v0)", "x", "__nv_fmul_rz is not computed by Triton's interpreter on a CPU"),
    (
        "tl.extra.cuda.utils.smid() + v0",
        "x",
        "tl.extra.cuda.utils.smid is not computed by Triton's interpreter",
    ),
]
REFUSALS = """
for text, operand in json.loads(sys.argv[2]):
    try:
        applied(text, eval(operand))
        said = "nothing"
    except Exception:
        said = traceback.format_exc()
    print(json.dumps(said))
"""
CHECKS = """
for name in "acos asin atan cos erf erfc exp exp2 expm1 floor ceil sin sinh cosh tan tanh trunc atanh erfinv".split():
    same(applied(f"libdevice.{name}(v0)", unit), getattr(torch, name)(unit))
for name in "log log10 log1p log2 rsqrt sqrt lgamma acosh".split():
    same(applied(f"of_cuda.{name}(v0)", positive + 1), getattr(torch, name)(positive + 1))
same(applied("libdevice.tanh(v0)", unit.double()), torch.tanh(unit.double()))
same(applied("libdevice.pow(v0, v1)", positive, x), positive**x)
same(applied("libdevice.pow(v0, 2.0)", x), x**2)
same(applied("libdevice.fma(v0, v1, v0)", x, positive), x * positive + x)
same(applied("libdevice.rint(v0)", x), torch.tensor([-2.0, -2.0, -0.0, -0.0, 0.0, 0.0, 2.0, 2.0]))
same(applied("libdevice.round(v0)", x), torch.tensor([-3.0, -2.0, -1.0, -0.0, 0.0, 1.0, 2.0, 3.0]))
same(applied("libdevice.float2int_rz(v0)", x, dtype=torch.int32), x.int())
same(applied("libdevice.isnan(v0 / (v0 - v0))", x, dtype=torch.bool), torch.zeros(8, dtype=torch.bool))
same(applied("libdevice.sinpi(v0)", x), torch.sin(math.pi * x))
same(applied("libdevice.saturatef(v0)", x), x.clamp(0, 1))
same(applied("libdevice.cbrt(v0)", x), torch.sign(x) * positive ** (1 / 3))
same(applied("libdevice.int_as_float(libdevice.float_as_int(v0))", x), x)
same(applied("libdevice.fast_dividef(1.0, 1.0 + libdevice.fast_expf(-v0))", x), torch.sigmoid(x))
same(applied("libdevice.exp(tl.sum(v0, 0)) + v0", x), x.sum().exp() + x)
same(applied("libdevice.pow(arg0=v0, arg1=tl.full((8,), 2.0, tl.float32))", x), x**2)
exact = dict(rtol=0, atol=0)
hard = torch.tensor([0.49999997, 8388609.0, 12345679.0, -0.49999997, 2.5, -2.5, 1e30, 0.0])
same(applied("libdevice.round(v0)", hard), torch.tensor([0.0, 8388609, 12345679, 0, 3, -3, 1e30, 0]), **exact)
far = torch.tensor([3e9, float("inf"), -float("inf"), float("nan"), 1.5, -1.5, 2147483520.0, -3e9])
most, least = 2**31 - 1, -(2**31)
same(applied("libdevice.float2int_rz(v0)", far, dtype=torch.int32),
     torch.tensor([most, most, least, 0, 1, -1, 2147483520, least], dtype=torch.int32))
turns = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, -0.5, 1e6, 0.25])
same(applied("libdevice.sinpi(v0)", turns), torch.tensor([0, 1, 0, -1, 0, -1, 0, 0.5**0.5]), rtol=1e-6, atol=0)
same(applied("libdevice.cospi(v0)", turns), torch.tensor([1, 0, -1, 0, 1, 0, 1, 0.5**0.5]), rtol=1e-6, atol=0)
low = torch.tensor([-5.5, -10.0, 0.0, 1.0, 5.5, -1.0, 2.0, 3.0])
same(applied("libdevice.normcdf(v0)", low.double()), torch.special.erfc(-low.double() / 2**0.5) / 2)
infinite = torch.full((8,), float("inf"))
same(applied("libdevice.fdim(v0, v0)", infinite), torch.zeros(8), **exact)
same(applied("libdevice.signbit(v0).to(tl.int32)", x, dtype=torch.int32) != 0, x < 0)
same(applied("(v0.to(tl.bfloat16) * 2.0).to(tl.float32)", x), x * 2)
print("all the same")
"""


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    """Run all kernels in one process: it prints a line for each that is refused, then one if all others are right."""
    pytest.importorskip("triton")
    file = tmp_path_factory.mktemp("kernels") / "kernel.py"
    refused = json.dumps([(text, operand) for text, operand, _ in REFUSED])
    return subprocess.run(
        [sys.executable, "-c", PROGRAM + REFUSALS + CHECKS, str(file), refused],
        env={"TRITON_INTERPRET": "1", "PYTHONPATH": ":".join(sys.path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_functions_of_the_device_are_computed_as_torch_computes_them(
    done: subprocess.CompletedProcess[str],
) -> None:
    assert done.stdout.endswith("\nall the same\n"), done.stderr


@pytest.mark.parametrize(("number", "said"), list(enumerate(said for _, _, said in REFUSED)))
def test_what_is_not_computed_says_so(done: subprocess.CompletedProcess[str], number: int, said: str) -> None:
    assert said in json.loads(done.stdout.splitlines()[number])
