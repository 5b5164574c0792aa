"""Warn about tasks that are not worth optimising, by the filters of robust-kbench (Lange et al. 2025, section 3).

They run the reference and so run the problem's code: `examine` does that in a sandbox, without network, secrets or
anything to write to, as a candidate's code is run. The same process derives the C signature of a KernelBench problem
(`runners.problems.deriving`); `with_signature` asks only for that.
"""

from __future__ import annotations

import contextlib
import json
import math
import resource
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from runners import wire
from runners.job import ProblemBundle
from runners.problems import kernelbench
from runners.problems.base import CallInputs, Case, Problem, ProblemError, Purpose
from runners.problems.confined import marked_line, run_module
from runners.problems.footprint import footprint_of
from runners.problems.signature import FILE, read_signature
from runners.problems.slow_reference import slow_loop
from runners.problems.structure import is_tensor
from runners.problems.tolerance import Tolerance
from runners.sandbox import Completed, KillReason, SandboxError

if TYPE_CHECKING:
    import torch

# The thresholds of robust-kbench (Lange et al. 2025, section 3).
SMALL_VALUE = 0.01
SMALL_SPREAD = 0.01
COARSE = 100.0  # a tolerance this many times finer than the outputs makes small outputs no weakness
HIDDEN = 3.0  # outputs of at most this many absolute tolerances hide under them
# The part of an examination's time in which the model must be traced; the reference runs in the rest.
TRACING_SHARE = 0.5
# A mark of our own, because the problem's code may print anything to standard output.
_ANSWER = "kernel-scientist-examination "
_SIGNATURE = "kernel-scientist-signature "
_STAGE = "kernel-scientist-stage "
_NO_NETWORK = (
    "Name or service",
    "name resolution",
    "Network is unreachable",
    "ConnectionError",
    "URLError",
    "socket",
)
_NO_MEMORY = ("MemoryError", "not enough memory", "can't allocate memory", "Cannot allocate memory")
GIB = 1 << 30


@dataclass(frozen=True)
class SeenTensor:
    """Describe an input or output of the case that was run: its layout, and the tolerance of an output."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    tolerance: str = ""


@dataclass(frozen=True)
class Examination:
    """Hold what running a problem's reference on one target showed.

    `failure` is None if the reference ran. `seconds` is the time of the slowest reference call, `case` names what was
    run. `signature` is the text of the generated file of that name, empty for formats that declare theirs and if the
    process ended before. `footprint_bytes` counts inputs, weights and outputs by case, where counting them needs no
    data. `inputs` and `outputs` describe the case `checked`.
    """

    failure: str | None
    warnings: tuple[str, ...] = ()
    seconds: float = 0.0
    case: str = ""
    reduced: str = ""
    signature: str = ""
    footprint_bytes: dict[str, int] = field(default_factory=dict)
    checked: str = ""
    inputs: tuple[SeenTensor, ...] = ()
    outputs: tuple[SeenTensor, ...] = ()


@dataclass
class Observation:
    """Hold the outputs of a reference for two seeds, and the inputs of the first."""

    problem: Problem
    inputs: CallInputs
    others: CallInputs
    outputs: list[torch.Tensor]
    outputs_of_others: list[torch.Tensor]
    tolerances: list[Tolerance] = field(default_factory=list)
    narrow: list[torch.Tensor] = field(default_factory=list)


def examine(
    bundle: ProblemBundle, target: str = "cpu", timeout_s: float = 60.0, memory_bytes: int = 6 << 30
) -> Examination:
    """Run a middling test and the smallest benchmark case of a problem in a sandbox, and judge the outputs."""
    try:
        ended = _answered({"bundle": wire.to_plain(bundle), "target": target}, timeout_s, memory_bytes)
    except SandboxError as error:
        return Examination(f"not run: {error}")
    signature = marked_line(ended.stdout, _SIGNATURE)
    if ended.killed_reason is not None:
        return Examination(_why_killed(ended, timeout_s, memory_bytes), signature=signature)
    return replace(_read_answer(ended), signature=signature)


def with_signature(bundle: ProblemBundle, timeout_s: float = 60.0, memory_bytes: int = 6 << 30) -> ProblemBundle:
    """Add the derived C signature to a KernelBench bundle that has none.

    Other bundles are returned unchanged, and so is one whose code does not answer in time, or that no sandbox can run
    here.
    """
    if bundle.format != kernelbench.FORMAT or FILE in bundle.files:
        return bundle
    try:
        ended = _answered({"bundle": wire.to_plain(bundle), "target": ""}, timeout_s, memory_bytes)
    except SandboxError:
        return bundle
    return signed(bundle, marked_line(ended.stdout, _SIGNATURE))


def signed(bundle: ProblemBundle, signature: str) -> ProblemBundle:
    """Put a signature's text into a bundle.

    A text that is no signature of it is dropped, because it comes from a process that ran the problem's code.
    """
    if not signature:
        return bundle
    made = replace(bundle, files={**bundle.files, FILE: signature})
    try:
        read_signature(made.files, made.files[made.entry])
    except ProblemError:
        return bundle
    return made


def _answered(request: dict[str, Any], timeout_s: float, memory_bytes: int) -> Completed:
    """Run this module in a sandbox under limits, and return how it ended."""
    derive_s = timeout_s * TRACING_SHARE if request["target"] else timeout_s
    asked = {**request, "memory_bytes": memory_bytes, "derive_s": derive_s}
    # The process limits itself, so that too large an allocation is an error with a line; the sandbox's limit counts
    # what is resident, with torch's own libraries.
    return run_module("runners.problems.filters", asked, timeout_s, memory_bytes + GIB)


def _why_killed(ended: Completed, timeout_s: float, memory_bytes: int) -> str:
    stage = marked_line(ended.stdout, _STAGE) or "reading it"
    if ended.killed_reason is KillReason.TIMEOUT:
        return f"not finished after {timeout_s:g} s while {stage}"
    if ended.killed_reason is KillReason.MEMORY:
        return f"more than {memory_bytes >> 30} GiB of memory used while {stage}"
    reason = ended.killed_reason.value if ended.killed_reason else ""
    return f"stopped at the limit of {reason} while {stage}"


def warnings_of(observed: Observation) -> list[str]:
    """Return the complaints of every filter."""
    return [message for check in FILTERS for message in check(observed)]


def _not_finite(observed: Observation) -> list[str]:
    import torch

    bad = [n for n, out in enumerate(observed.outputs) if not torch.isfinite(out.double()).all()]
    return [f"output {n} holds NaN or infinity" for n in bad]


def _small_range(observed: Observation) -> list[str]:
    found = []
    for number, out in enumerate(observed.outputs):
        largest = float(out.double().abs().max()) if out.numel() else 1.0
        if largest < min(SMALL_VALUE, COARSE * observed.tolerances[number].atol):
            found.append(f"output {number} lies within ±{SMALL_VALUE}: a kernel that writes zeros is nearly right")
    return found


def _small_spread(observed: Observation) -> list[str]:
    found = []
    for number, out in enumerate(observed.outputs):
        tolerance, values = observed.tolerances[number], out.double()
        allowed = tolerance.atol + tolerance.rtol * float(values.abs().mean()) if out.numel() > 1 else 0.0
        if out.numel() > 1 and float(values.std()) < min(SMALL_SPREAD, COARSE * allowed):
            found.append(f"output {number} hardly varies (standard deviation below {SMALL_SPREAD})")
    return found


def _constant_along_an_axis(observed: Observation) -> list[str]:
    found = []
    for number, out in enumerate(observed.outputs):
        axes = [axis for axis in range(out.dim()) if out.shape[axis] > 1]
        for axis in axes if out.numel() > max(out.shape, default=1) else []:
            first = out.narrow(axis, 0, 1)
            if _close(out, first.expand_as(out), observed.tolerances[number]):
                found.append(f"output {number} is constant along axis {axis}")
    return found


def _same_for_all_inputs(observed: Observation) -> list[str]:
    pairs = zip(observed.outputs, observed.outputs_of_others, observed.tolerances, strict=True)
    same = [n for n, (a, b, tolerance) in enumerate(pairs) if a.shape == b.shape and _close(a, b, tolerance)]
    return [f"output {n} is the same whatever the inputs are" for n in same]


def _ignored_inputs(observed: Observation) -> list[str]:
    """Replace one input at a time by that of another seed, and complain if no output changes."""
    found = []
    for name, value in observed.inputs.values.items():
        other = observed.others.values.get(name)
        if (
            not is_tensor(value)
            or not is_tensor(other)
            or other.shape != value.shape
            or bool((other == value).all())
        ):
            continue
        mixed = replace(observed.inputs, values={**_copied(observed.inputs), name: other.clone()})
        outputs = observed.problem.expected(mixed)
        pairs = zip(outputs, observed.outputs, observed.tolerances, strict=True)
        if all(a.shape == b.shape and _close(a, b, tolerance) for a, b, tolerance in pairs):
            found.append(f"no output depends on input {name}")
    return found


def _random_reference(observed: Observation) -> list[str]:
    again = observed.problem.expected(replace(observed.inputs, values=_copied(observed.inputs)))
    pairs = zip(again, observed.outputs, observed.tolerances, strict=True)
    if all(a.shape == b.shape and _close(a, b, tolerance) for a, b, tolerance in pairs):
        return []
    return ["the reference gives different outputs for the same inputs"]


def _hides_under_tolerance(observed: Observation) -> list[str]:
    """Compare a typical output, the median magnitude of those that are not zero, with the absolute tolerance."""
    found = []
    for number, out in enumerate(observed.outputs):
        atol, sizes = observed.tolerances[number].atol, out.double().abs().flatten()
        sizes = sizes[(sizes > 0) & (sizes < math.inf)]
        typical = float(sizes.median()) if sizes.numel() else 0.0
        if out.dtype.is_floating_point and 0 < typical <= HIDDEN * atol:
            found.append(
                f"output {number} hides under the tolerance: typically {typical:.2g}, and {atol:.2g} is allowed; its "
                "norm decides"
            )
    return found


def _slow_reference(observed: Observation) -> list[str]:
    line = slow_loop(observed.problem.reference_source)
    if line is None:
        return []
    return [
        f"the reference loops over tensors in Python (line {line}): a speedup over it says little about a kernel"
    ]


FILTERS: tuple[Callable[[Observation], list[str]], ...] = (
    _not_finite,
    _small_range,
    _small_spread,
    _constant_along_an_axis,
    _same_for_all_inputs,
    _ignored_inputs,
    _random_reference,
    _hides_under_tolerance,
    _slow_reference,
)


def observe(problem: Problem, case: Case) -> Observation:
    """Run the reference on two seeds of a case."""
    distribution = case.distributions[0]
    # Public seeds do here: nothing is timed or ranked.
    first, second = (problem.make_inputs(case, seed, distribution) for seed in (11, 12))
    observed = Observation(problem, first, second, [], [])
    observed.outputs = problem.expected(replace(first, values=_copied(first)))
    observed.outputs_of_others = problem.expected(replace(second, values=_copied(second)))
    observed.narrow = problem.reference(replace(first, values=_copied(first)))
    dtypes = [str(out.dtype).removeprefix("torch.") for out in observed.narrow]
    observed.tolerances = [problem.tolerance(dtype) for dtype in dtypes]
    return observed


def _close(a: torch.Tensor, b: torch.Tensor, tolerance: Tolerance) -> bool:
    import torch

    return torch.allclose(a.double(), b.double(), tolerance.rtol, tolerance.atol, equal_nan=True)


def _copied(inputs: CallInputs) -> dict[str, object]:
    return {name: value.clone() if is_tensor(value) else value for name, value in inputs.values.items()}


def _examined(bundle: ProblemBundle, target: str, memory_bytes: int) -> Examination:
    """Run the filters on a test of middling size, and time the smallest benchmark. This runs in the examining
    process."""
    from runners.problems import open_bundle

    problem = open_bundle(bundle)
    if problem.obstacles:
        return Examination("; ".join(problem.obstacles))
    tests, benchmarks = (problem.cases(target, purpose) for purpose in (Purpose.TEST, Purpose.BENCHMARK))
    if not (tests or benchmarks):
        return Examination(f"no case for target {target}")
    middle = (tests or benchmarks)[len(tests or benchmarks) // 2]
    timed = (benchmarks or tests)[0]
    _tell_stage("importing it")
    footprints = _footprints(problem, target)
    largest = max(footprints.get(case.name, 0) for case in (middle, timed))
    if largest > memory_bytes:
        needed, allowed = largest / GIB, memory_bytes / GIB
        return Examination(
            f"its smallest case needs {needed:.1f} GiB of memory, and {allowed:g} GiB are allowed here",
            footprint_bytes=footprints,
        )
    _tell_stage("running its reference")
    observed = observe(problem, middle)
    warnings = tuple(warnings_of(observed))
    seconds = _reference_s(problem, timed)
    inputs, outputs = _seen_inputs(observed), _seen_outputs(observed)
    return Examination(
        None, warnings, seconds, timed.name, timed.reduced, "", footprints, middle.name, inputs, outputs
    )


def _tell_stage(doing: str) -> None:
    """Say what comes next, so that a process which is killed then can be told from one that is killed later."""
    sys.__stdout__.write(f"{_STAGE}{doing}\n")  # type: ignore[union-attr]
    sys.__stdout__.flush()  # type: ignore[union-attr]


def _footprints(problem: Problem, target: str) -> dict[str, int]:
    """Count the bytes of every case of this target and of GPUs, of those that tell them without data."""
    cases = [case for key in (target, "gpu") for purpose in Purpose for case in problem.cases(key, purpose)]
    found = {case.name: footprint_of(problem, case) for case in {case.name: case for case in cases}.values()}
    return {name: footprint.total for name, footprint in found.items() if footprint is not None}


def _seen_inputs(observed: Observation) -> tuple[SeenTensor, ...]:
    values = observed.inputs.values.items()
    return tuple(_seen(_input_name(name), value) for name, value in values if is_tensor(value))


def _input_name(name: str) -> str:
    """Return what an input is called on pages: positional ones have a number for a name."""
    return f"input {name}" if name[:1].isdecimal() else name


def _seen_outputs(observed: Observation) -> tuple[SeenTensor, ...]:
    allowed = [f"rtol {t.rtol:g}, atol {t.atol:g}" for t in observed.tolerances]
    pairs = zip(observed.narrow, allowed, strict=True)
    return tuple(_seen(f"output {n}", value, words) for n, (value, words) in enumerate(pairs))


def _seen(name: str, value: torch.Tensor, tolerance: str = "") -> SeenTensor:
    return SeenTensor(name[:80], str(value.dtype).removeprefix("torch."), tuple(value.shape), tolerance)


def _reference_s(problem: Problem, case: Case) -> float:
    inputs = problem.make_inputs(case, 13, case.distributions[0])
    problem.reference(replace(inputs, values=_copied(inputs)))
    start = time.perf_counter()
    problem.reference(inputs)
    return time.perf_counter() - start


def _read_answer(ended: Completed) -> Examination:
    if line := marked_line(ended.stdout, _ANSWER):
        with contextlib.suppress(wire.WireError):
            return wire.loads(Examination, line)
    code = ended.exit_code if ended.exit_code is not None else f"signal {ended.signal}"
    tail = ended.stderr.strip().splitlines()[-1:] or [f"exit code {code}"]
    return Examination(f"the process ended early: {tail[0][:300]}")


def _in_words(error: Exception, memory_bytes: int) -> str:
    """Describe what a problem's code raised, with the limit that it met where one explains it."""
    text = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    if any(mark in text for mark in _NO_MEMORY):
        return f"{text} (at most {memory_bytes / GIB:g} GiB are allowed here)"
    if isinstance(error, OSError) and any(mark in text for mark in _NO_NETWORK):
        return f"{text} (a problem has no network)"
    return text


def _print_signature(bundle: ProblemBundle, limit_s: float) -> None:
    """Derive the signature unless that takes too long.

    A model that loops over hundreds of steps is traced step by step, and the reference is to be run in the same time.
    """
    from runners.problems.deriving import derive

    def give_up(number: int, frame: object) -> None:
        raise TimeoutError(f"not traced within {limit_s:g} s")

    signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, limit_s, 1.0)  # again and again: a case may catch the first
    try:
        with contextlib.redirect_stdout(sys.stderr):
            signature = derive(bundle)
    except TimeoutError:
        return
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    print(_SIGNATURE + wire.dumps(signature), flush=True)


def main() -> None:
    """Answer a request on stdin with marked lines on stdout.

    The signature comes first: it takes a second, and running the reference may take all the time there is. Without a
    target only the signature is requested.
    """
    request = json.load(sys.stdin)
    limit = int(request["memory_bytes"])
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    bundle = wire.from_plain(ProblemBundle, request["bundle"])
    _tell_stage("importing it")
    if bundle.format == kernelbench.FORMAT:
        _print_signature(bundle, float(request["derive_s"]))
    if not request["target"]:
        return
    try:
        answer = _examined(bundle, str(request["target"]), limit)
    except Exception as error:  # whatever the problem's code raises is the finding
        answer = Examination(_in_words(error, limit))
    print(_ANSWER + wire.dumps(answer), flush=True)
