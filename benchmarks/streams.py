"""Look for programs that use several streams of a GPU although their texts do not say so.

    python benchmarks/streams.py [--problems FILE…] [--budget-s 100] [--out FILE]

Processes of an evaluation have one work queue where `runners.harness.verdict.streams` reads from the sources that
they stay in one stream. torch's profiler says here which streams the kernels of a call ran on: of operations of torch
that might use several by themselves, and of problems in KernelBench's form at their own sizes, drawn in random order
(seed 5) until the budget is spent. Programs that used several and would have got one queue are printed; exit code 1 if
there is any. Needs a GPU, torch, and nothing of ours but the text's reader.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.profiler import ProfilerActivity, profile

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from runners.harness.verdict.streams import may_use_several

# A problem that takes longer is left out, and counted as not looked at.
MOST_S = 12
# Records of the profiler that are no work on a stream.
NO_WORK = ("Event", "Context", "Device")
FLOATS = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
LINEAR_ALGEBRA = ("svd", "eigh", "inv", "cholesky", "qr", "det", "eigvals")
# Operations by name: the expression that is called, with `r` for random tensors, `x` and `s` (positive definite).
OPERATIONS = {
    **{f"linalg.{name}": f"torch.linalg.{name}(s)" for name in LINEAR_ALGEBRA},
    **{
        f"batched {name}": f"torch.linalg.{name}(s.expand(16, 256, 256).contiguous())"
        for name in LINEAR_ALGEBRA[:5]
    },
    "solve": "torch.linalg.solve(s, s)",
    "fft": "torch.fft.fftn(r(8, 300, 300))",
    "sort": "x.sort()",
    "topk": "x.topk(64)",
    "cumsum": "x.cumsum(1)",
    "unique": "x.int().unique()",
    "multinomial": "x.softmax(1).multinomial(4)",
    "histogram": "x.histc()",
    "median": "x.median(1)",
    "sparse product": "x.relu().to_sparse() @ x[:, :32]",
    "to the host": "x.sum(0).cpu()",
    "attention": "F.scaled_dot_product_attention(r(4, 8, 512, 64), r(4, 8, 512, 64), r(4, 8, 512, 64))",
    "attention module": "nn.MultiheadAttention(256, 8).cuda()(r(8, 4, 256), r(8, 4, 256), r(8, 4, 256))",
    "encoder layer": "nn.TransformerEncoderLayer(256, 8).cuda()(r(8, 4, 256))",
    "matrix product, split": "r(64, 65536) @ r(65536, 64)",
    **{
        f"product in {name}": f"r(16, 512, 512, dtype=torch.{name}) @ r(512, 512, dtype=torch.{name})"
        for name in FLOATS
    },
    **{
        f"convolution {size}D in {name}": f"F.conv{size}d(r(4, 32{', 24' * size}, dtype=torch.{name}), "
        f"r(32, 32{', 3' * size}, dtype=torch.{name}))"
        for size in (1, 2, 3)
        for name in FLOATS
    },
    "product in fp8": "torch._scaled_mm(x.to(torch.float8_e4m3fn), x.to(torch.float8_e4m3fn).T, one, one)",
    "product of integers": "torch._int_mm(x.to(torch.int8), x.to(torch.int8))",
    "CTC": "F.ctc_loss(r(64, 16, 20).log_softmax(2), torch.ones(16, 10, dtype=int).cuda(), (64,) * 16, (10,) * 16)",
    "captured (uses several)": "torch.compile(lambda: F.gelu(x @ x), mode='reduce-overhead')()",
    "another stream (control)": "torch.cuda.Stream().wait_stream(torch.cuda.current_stream()) or beside(x)",
    "grouped convolution (uses several)": "F.conv2d(r(16, 64, 56, 56).half(), r(64, 16, 3, 3).half(), groups=4)",
    "LSTM (uses several)": "nn.LSTM(128, 256, 4).cuda()(r(64, 10, 128))",
}


def main() -> int:
    """Profile everything; a line for each program that uses several streams. 0: the text of each says so."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", nargs="*", type=Path, default=[], metavar="FILE")
    parser.add_argument("--budget-s", type=float, default=100.0, help="start no problem after so many seconds")
    parser.add_argument("--out", type=Path, help="where to append a line of JSON for each program")
    arguments = parser.parse_args()
    signal.signal(signal.SIGALRM, _late)
    rows = []
    for row in _rows(arguments.problems, arguments.budget_s):
        rows.append(row)
        if row.get("streams", 0) > 1 or "error" in row:
            print(json.dumps(row), flush=True)
        if arguments.out:
            with arguments.out.open("a") as file:
                file.write(json.dumps(row) + "\n")
    several = [row for row in rows if row.get("streams", 0) > 1]
    missed = [row["name"] for row in several if not row["may_use_several"]]
    failed, known = sum("error" in row for row in rows), sum(not row["may_use_several"] for row in rows)
    print(f"{len(rows)} programs, {failed} failed; {known} get one queue, {len(several)} use several streams")
    print(f"of those that use several, their text does not say so: {', '.join(missed) or 'none'}")
    return int(bool(missed))


def _rows(problems: list[Path], budget_s: float) -> Iterator[dict[str, Any]]:
    torch.set_grad_enabled(mode=False)
    for name, text in OPERATIONS.items():
        yield _row(name, text, partial(_call_of, text))
    ends = time.monotonic() + budget_s
    for place in random.Random(5).sample(problems, len(problems)):
        if time.monotonic() > ends:
            break
        text = place.read_text()
        yield _row(place.name, text, partial(_problem_of, text))


def _row(name: str, text: str, make: Callable[[], Callable[[], object]]) -> dict[str, Any]:
    """Return on how many streams a call of a program works, or why that is not known."""
    row: dict[str, Any] = {"name": name, "may_use_several": may_use_several(text)}
    signal.alarm(MOST_S)
    try:
        row["streams"] = len(_streams(make()))
    except Exception as error:
        row["error"] = f"{type(error).__name__}: {error}"[:150]
    finally:
        signal.alarm(0)
        torch.set_default_device(None)
        torch.cuda.empty_cache()
    return row


def _streams(call: Callable[[], object]) -> set[int]:
    """Return the streams on which the kernels and copies of a call ran, after a first call."""
    call()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        call()
        torch.cuda.synchronize()
    records = profiled.profiler.kineto_results.events()
    work = [one for one in records if "CUDA" in str(one.device_type()) and not one.name().startswith(NO_WORK)]
    return {one.device_resource_id() for one in work}


def _call_of(text: str) -> Callable[[], object]:
    torch.manual_seed(0)
    random_tensor = torch.testing.make_tensor
    names: dict[str, Any] = {"torch": torch, "nn": nn, "F": F}
    names["r"] = lambda *shape, dtype=torch.float32: random_tensor(
        *shape, dtype=dtype, device="cuda", low=-1, high=1
    )
    names["x"] = names["r"](4096, 4096)
    square = names["r"](256, 256)
    names["one"] = torch.ones((), device="cuda")
    names["beside"] = _on_another_stream
    names["s"] = square @ square.T + 256 * torch.eye(256, device="cuda")
    code = compile(text, "operation", "eval")
    return lambda: eval(code, names)  # noqa: S307 - the table above


def _on_another_stream(tensor: torch.Tensor) -> torch.Tensor:
    with torch.cuda.stream(torch.cuda.Stream()):  # type: ignore[no-untyped-call]
        doubled = tensor + tensor
    torch.cuda.synchronize()
    return doubled + tensor


def _problem_of(text: str) -> Callable[[], object]:
    names: dict[str, Any] = {"__name__": "problem"}
    torch.set_default_device("cuda")
    exec(compile(text, "problem", "exec"), names)  # noqa: S102 - a benchmark's own problem
    model = names["Model"](*names["get_init_inputs"]()).cuda()
    inputs = [one.cuda() if torch.is_tensor(one) else one for one in names["get_inputs"]()]
    torch.set_default_device(None)
    return lambda: model(*inputs)


def _late(*_: object) -> None:
    raise TimeoutError(f"not done within {MOST_S} s")


if __name__ == "__main__":
    sys.exit(main())
