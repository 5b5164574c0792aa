"""Describe a runner's result of a tool call in words: what the model reads, and one line for people.

Everything here may contain a compiler's or a kernel's own words. The caller encloses it as data.
"""

from __future__ import annotations

import re

from optimizer.agents import sections
from optimizer.agents.delimiters import cut_middle
from optimizer.models.choices import EvaluationStatus
from optimizer.queries.timing import failure_lines
from optimizer.tools.catalogue import Tool
from runners.job import CaseResult, Effort, Flag, JobResult, KernelResources, Speedup, Status

LOG_CAP, LINE_CAP = 6_000, 300
MOST_CASES = 40
# What the kernel that the writer was given to change is called.
BASE = "the base"
# Messages for what Triton's interpreter, our additions to it, and torch without a GPU cannot run.
_NOT_INTERPRETED = re.compile(
    r"NotImplementedError\b.*\b(?:inline_asm not supported in interpreter mode|not computed by Triton's interpreter"
    r"|needs the device, which is not on this machine)"
    r"|Torch not compiled with CUDA enabled|Tried to instantiate dummy base class|requires CUDA support"
    r"|without ATen_cuda library|Cannot access accelerator device"
)


def in_words(tool: Tool, result: JobResult, base: str = BASE, predicted: str = "") -> str:
    """Return the whole result. `base` names the kernel that it was timed in turns with.

    `predicted` says what a kernel that was not timed is expected to take.
    """
    if result.status == Status.INFRA_ERROR:
        reason = "; ".join(result.reasons)
        return f"The machine failed, which says nothing about the kernel: {reason}"
    if reason := _beyond_the_interpreter(tool, result):
        return f"Not checked: the interpreter cannot run this kernel, which may be correct. {reason}"
    parts = [_build(result), predicted, _verdict(tool, result), *_cases(result, base), *_speedups(result, base)]
    if tool.profile:
        parts.append(sections.profile(result) or "The profiler saw nothing.")
    return "\n".join(part for part in parts if part)


def headline(tool: Tool, result: JobResult, base: str = BASE) -> str:
    """Return the result in a few words."""
    if _beyond_the_interpreter(tool, result):
        return "Not checked: the interpreter cannot run it"
    if result.status != Status.CORRECT:
        return EvaluationStatus(result.status.value).label
    if result.versus_parent is not None:
        return f"{result.versus_parent.median:.2f}× the speed of {base}"
    if result.speedup is not None:
        return f"{result.speedup.median:.2f}× the speed of the baseline"
    if tool.effort == Effort.BUILD:
        return _build_headline(result.build.kernels if result.build else [])
    return f"Correct on {len(result.cases)} case{'' if len(result.cases) == 1 else 's'}"


def status(tool: Tool, result: JobResult) -> str:
    """Return the value of the status that the tool found for the kernel, empty where it could not check it."""
    return "" if _beyond_the_interpreter(tool, result) else result.status.value


def _beyond_the_interpreter(tool: Tool, result: JobResult) -> str:
    """Return the line that says why Triton's interpreter cannot run the kernel, empty if it can."""
    if not tool.interpreted or result.status == Status.CORRECT:
        return ""
    lines = "\n".join([*result.reasons, result.build.log if result.build else ""]).splitlines()
    found = [line.strip() for line in lines if _NOT_INTERPRETED.search(line)]
    return found[-1][:LINE_CAP] if found else ""


def _build_headline(kernels: list[KernelResources]) -> str:
    spills = sum((kernel.vgpr_spills or 0) + (kernel.sgpr_spills or 0) for kernel in kernels)
    # Compilers for NVIDIA count bytes.
    spilled_bytes = sum(kernel.spill_store_bytes or 0 for kernel in kernels)
    if spilled_bytes:
        return f"Builds, {spilled_bytes} bytes of spilled registers"
    return f"Builds, {spills} spilled registers" if spills else "Builds"


def _build(result: JobResult) -> str:
    build = result.build
    if build is None:
        return ""
    how = f"Built in {build.seconds:.1f} s." if build.ok else "It does not build."
    log = cut_middle(build.log.strip(), LOG_CAP)
    return "\n".join(part for part in (how, log, sections.resources(result)) if part)


def _verdict(tool: Tool, result: JobResult) -> str:
    if tool.effort == Effort.BUILD and result.status == Status.CORRECT:
        return _emulated(result)
    if result.status == Status.CORRECT:
        return "Correct."
    reasons = result.reasons or failure_lines(result)
    # The reason of a failed build is its log, which is shown above.
    told = [reason for reason in reasons if not (result.build and reason in result.build.log)]
    return "\n".join([f"Status: {result.status.value}.", *(cut_middle(reason, LOG_CAP) for reason in told)])


def _emulated(result: JobResult) -> str:
    """Return what the emulation on the CPU found, empty where there was none."""
    if Flag.EMULATED in result.flags:
        return "Right in emulation on the CPU, on the smallest cases. Its device has not run it."
    logs = [stage.log for stage in result.stages if stage.name == "emulation" and stage.log]
    return cut_middle(f"Not checked: {logs[-1]}", LOG_CAP) if Flag.NOT_EMULATED in result.flags and logs else ""


def _cases(result: JobResult, base: str) -> list[str]:
    """Return a line for each case that was checked or timed."""
    # The error of a wrong case is the reason, which is shown above.
    shown = [_case(case, base) for case in result.cases[:MOST_CASES] if case.ok]
    more = len(result.cases) - MOST_CASES
    return shown + ([f"… and {more} more cases"] if more > 0 else [])


def _case(case: CaseResult, base: str) -> str:
    times = {"kernel": case.candidate_us, base.removeprefix("the "): case.parent_us, "baseline": case.baseline_us}
    timed = ", ".join(f"{who} {us:.2f} µs" for who, us in times.items() if us is not None)
    error = f"largest absolute error {case.max_abs_error:.2g}" if case.max_abs_error is not None else ""
    return f"- {case.name}: " + ("; ".join(part for part in (timed, error) if part) or "correct")


def _speedups(result: JobResult, base: str) -> list[str]:
    named = ((base, result.versus_parent), ("the baseline", result.speedup))
    return [_speedup(opponent, speedup) for opponent, speedup in named if speedup is not None]


def _speedup(opponent: str, speedup: Speedup) -> str:
    return (
        f"Speed against {opponent}: {speedup.median:.3f}× (95 % interval {speedup.low:.3f} to {speedup.high:.3f}): "
        f"{speedup.verdict.value}."
    )
