"""Render what a prompt says of the task: the problem, how kernels are judged, and the machine. Stable within a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from optimizer.agents.code_blocks import MAX_SOURCE_BYTES
from optimizer.agents.delimiters import Delimiters, clean, neutralise
from optimizer.queries.memory import gib
from optimizer.queries.timing import has_call_time
from optimizer.search.base import History
from runners.job import Language, Limits, Objective
from runners.problems.base import Argument, Case, Problem, Purpose, Role
from runners.problems.prototype import COMPILED, prototype
from runners.targets import ceilings_in

SOURCE_CAP = 120_000
_LANGUAGES = Path(__file__).parent / "prompts" / "languages"
_MACHINE_FACTS = ("device", "threads", "vector", "caches", "compiler", "driver", "torch", "triton")


def language_guide(language: Language) -> str:
    """Return what a kernel in that language must look like to be built here (prompts/languages/*.md)."""
    return (_LANGUAGES / f"{language.value}.md").read_text()


def task(problem: Problem, target: str, language: Language, delimiters: Delimiters) -> str:
    """Return the problem, its signature, cases, tolerances and limits, and the language's rules. Hidden cases are left
    out.
    """
    # The description and the reference are enclosed because a problem's author is no more trusted than a kernel's.
    parts = [
        f"## Task: {problem.title}\n\nTarget: `{target}`. New kernels are written in **{language.value}**.",
        delimiters.enclose(problem.description, "problem description"),
        _signature(problem, language),
        _cases(problem, target),
        _checks(problem),
        _limits(),
        "### Reference\n\n" + delimiters.enclose(problem.reference_source, "reference implementation", SOURCE_CAP),
        language_guide(language),
    ]
    return "\n\n".join(part for part in parts if part)


def machine(history: History) -> str:
    """Return the machine on which the run's kernels are measured, and what its ceilings were measured to be; empty
    before the first result.
    """
    facts = machine_facts(history)
    lines = [f"- {name}: {plain(facts[name])}" for name in _MACHINE_FACTS if facts.get(name)]
    lines += [f"- measured {line}" for line in _ceilings(facts.get("ceilings"))]
    return "### Measured on\n\n" + "\n".join(lines) if lines else ""


def machine_facts(history: History) -> Mapping[str, Any]:
    """Return what the latest result says of the machine, because a run may move to another one; empty before it."""
    measured = (view.result for view in reversed(history.kernels) if view.result and view.result.environment)
    latest = next(measured, None)
    return latest.environment if latest else {}


def vector_sets(history: History) -> frozenset[str] | None:
    """Return the instruction sets of the machine's CPU, named as in /proc/cpuinfo; None where they are unknown."""
    found = machine_facts(history).get("vector")
    return frozenset(map(str, found)) if isinstance(found, list) else None


def objective(history: History) -> str:
    """Say which time the kernels' figures compare. Return an empty text on a CPU, where there is only one."""
    if history.objective == Objective.CALL:
        return "Times and speedups are of whole calls, host included: fewer launches and less host work are gains."
    if any(has_call_time(view.result) for view in history.kernels):
        return (
            "Times and speedups are of the device alone, without the host. Call time stands beside them; a case that "
            "is judged by call time says so."
        )
    return ""


def plain(fact: object, most: int = 300) -> str:
    """Return a fact from a runner as one line of at most `most` characters that cannot be mistaken for a delimiter or
    heading.
    """
    if isinstance(fact, dict):
        text = ", ".join(
            f"{name} {size >> 10} KiB" if isinstance(size, int) else f"{name} {size}" for name, size in fact.items()
        )
    else:
        text = " ".join(map(str, fact)) if isinstance(fact, list) else str(fact)
    # A runner is trusted less than we are: its facts are not enclosed, so they must not look like structure.
    line = " ".join(neutralise(clean(text)).split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def _ceilings(found: object) -> list[str]:
    """Return the rates that a probe of the machine reached, in words; empty where there was none."""
    if not isinstance(found, Mapping):
        return []
    bandwidth, products = found.get("copy_bandwidth"), found.get("matmul_flops")
    lines = (
        [f"copy bandwidth: {bandwidth / 1e9:.3g} GB/s"] if isinstance(bandwidth, int | float) and bandwidth else []
    )
    rates = products.items() if isinstance(products, Mapping) else []
    lines += [
        f"matrix product, {plain(dtype)}: {rate / 1e9:.4g} GFLOP/s"
        for dtype, rate in rates
        if isinstance(rate, int | float) and rate
    ]
    levels = ceilings_in({"ceilings": found}).levels
    lines += [
        f"{plain(level.name)} read bandwidth, all cores: {level.bandwidth / 1e9:.4g} GB/s" for level in levels
    ]
    return lines[:12]


def _signature(problem: Problem, language: Language) -> str:
    """Name the symbol and the arguments; for a compiled language, write its prototype."""
    if not problem.arguments:
        return ""
    heading = f"### Signature\n\nSymbol `{problem.symbol}`, arguments in this order:"
    lines = [f"- `{argument.name}`: {_argument(argument)}" for argument in problem.arguments]
    if language in COMPILED:
        parts = [heading, "\n".join(lines), f"```cpp\n{prototype(problem, language)}\n```"]
    else:
        parts = [heading, "\n".join(lines), _python_signature(problem)]
    return "\n\n".join(parts)


def _python_signature(problem: Problem) -> str:
    if problem.entry_point == "ModelNew":
        return (
            "In Python and Triton: `ModelNew` with the constructor and `forward` of `Model`. Its parameters and "
            "buffers get the reference's values where all names and shapes are those of `Model`. Otherwise only the "
            "generator's seed is the same, so that layers created in the same order get the same values."
        )
    taken = ", ".join(a.name for a in problem.arguments if a.role in {Role.INPUT, Role.SCALAR})
    given = ", ".join(a.name for a in problem.arguments if a.role is Role.OUTPUT)
    return f"In Python and Triton: `custom_kernel({taken})` returns `{given}`; sizes are read off the shapes."


def _argument(argument: Argument) -> str:
    if argument.role is Role.SIZE:
        return "size, 64-bit integer"
    if argument.role is Role.SCALAR:
        return f"scalar, {argument.dtype}"
    shape = " × ".join(argument.shape) or "one element"
    same = ", the same in every call, read-only" if argument.role is Role.PARAMETER else ""
    return f"{argument.role.value}, {argument.dtype}, {shape}, {argument.order}-major{same}"


def _cases(problem: Problem, target: str) -> str:
    timed = problem.cases(target, Purpose.BENCHMARK)
    tested = problem.cases(target, Purpose.TEST)
    lines = [f"- timed: {_case(case, problem)}" for case in timed]
    lines += [f"- tested: {_case(case, problem)}{_inputs(case)}" for case in tested]
    hidden = len(problem.cases(target, Purpose.HIDDEN))
    if hidden:
        further = "one further shape is" if hidden == 1 else f"{hidden} further shapes are"
        lines.append(f"- {further} tested and not shown; the kernel must be correct for every shape")
    return "### Cases\n\n" + "\n".join(lines)


def _inputs(case: Case) -> str:
    return f"; inputs: {', '.join(case.distributions)}" if case.distributions else ""


def _checks(problem: Problem) -> str:
    """Say how outputs are judged."""
    # The format's own check may use other tolerances than the ones it publishes.
    if problem.compares:
        lines = ["- the problem's own check judges the outputs"]
    else:
        outputs = [a.dtype for a in problem.arguments if a.role is Role.OUTPUT] or problem.judged_dtypes
        limits = {dtype: problem.tolerance(dtype) for dtype in outputs}
        lines = [
            f"- {dtype} outputs: |out − expected| ≤ {limit.atol:g} + {limit.rtol:g} · |expected| for every element"
            for dtype, limit in limits.items()
        ]
    if problem.has_variants:
        lines.append(
            "- beside the published inputs, scaled, shifted and heavier-tailed ones are checked where the reference is "
            "steady on them"
        )
    lines.append("- expected values are computed in higher precision where affordable; inputs must not be changed")
    return "### What counts as correct\n\n" + "\n".join(lines)


def _limits() -> str:
    # Answers may be shorter than what else reaches an evaluation.
    limits = Limits()
    return (
        f"### Limits\n\nBuild {limits.build_s:g} s, one call {limits.call_s:g} s, whole evaluation "
        f"{limits.total_s:g} s, memory beyond the data {gib(limits.memory_bytes)}, source "
        f"{min(limits.source_bytes, MAX_SOURCE_BYTES) >> 10} KiB."
    )


def _case(case: Case, problem: Problem) -> str:
    fixed = {a.name: problem.size_of(a, case) for a in problem.arguments if a.role is Role.SIZE}
    sizes = ", ".join(f"{name}={value}" for name, value in {**case.sizes, **fixed}.items())
    work = problem.work(case)
    if work is None:
        return sizes
    counted = (
        f"{sum(work.flops.values()):.3g} FLOP{' in the reference' if work.traced else ''}, " if work.flops else ""
    )
    return f"{sizes} ({counted}{work.bytes:.3g} bytes at least)"
