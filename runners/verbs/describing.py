"""Describe a problem to a coding agent: what to compute, how it is judged, and what a kernel must look like.

Hidden cases are left out. The description and the reference are their author's words, and named as such.
"""

from __future__ import annotations

from typing import Any

from runners.job import Limits
from runners.problems import load, open_bundle, shipped
from runners.problems.base import Case, Problem, Purpose, Role
from runners.problems.prototype import COMPILED, prototype
from runners.targets import Target


def shipped_problems() -> list[dict[str, Any]]:
    """Return name, title and languages of every shipped problem."""
    found = ((name, open_bundle(load(name))) for name in shipped())
    return [{"name": name, "title": one.title, "languages": _languages(one)} for name, one in found]


def describe(problem: Problem, target: Target) -> dict[str, Any]:
    """Return the task on a target as JSON: prototypes by language, cases, tolerances, limits, reference, seeds."""
    compiled = [language for language in problem.languages if language in COMPILED and problem.arguments]
    limits = Limits()
    return {
        "name": problem.name,
        "title": problem.title,
        "target": target.key,
        "device": target.title,
        "languages": _languages(problem),
        "description": problem.description,
        "prototypes": {language.value: prototype(problem, language) for language in compiled},
        "entry_point_in_python": problem.entry_point,
        "timed_cases": [_case(problem, target, case) for case in problem.cases(target.key, Purpose.BENCHMARK)],
        "tested_cases": [_case(problem, target, case) for case in problem.cases(target.key, Purpose.TEST)],
        "hidden_cases": len(problem.cases(target.key, Purpose.HIDDEN)),
        "correct_if": _tolerances(problem),
        "limits": {"build_s": limits.build_s, "call_s": limits.call_s, "source_bytes": limits.source_bytes},
        "reference": problem.reference_source,
        "seeds": [
            {
                "name": seed.name,
                "title": seed.title,
                "language": seed.source.language.value,
                "source": seed.source.text,
            }
            for seed in problem.seeds
        ],
    }


def hidden_cases(problem: Problem, target: str) -> frozenset[str]:
    """Return the names of the cases that are checked and never shown to agents, unless they are shown as others."""
    shown = {case.name for purpose in (Purpose.TEST, Purpose.BENCHMARK) for case in problem.cases(target, purpose)}
    return frozenset(case.name for case in problem.cases(target, Purpose.HIDDEN)) - shown


def _languages(problem: Problem) -> list[str]:
    return [language.value for language in problem.languages]


def _case(problem: Problem, target: Target, case: Case) -> dict[str, Any]:
    sizes = {a.name: problem.size_of(a, case) for a in problem.arguments if a.role is Role.SIZE}
    bound = target.roofline_us(problem.work(case))
    return {
        "name": case.name,
        "sizes": {**case.sizes, **sizes},
        "inputs": list(case.distributions),
        "roofline_us": bound,
    }


def _tolerances(problem: Problem) -> str:
    if problem.compares:
        return "the problem's own check accepts the outputs"
    outputs = [a.dtype for a in problem.arguments if a.role is Role.OUTPUT] or ["float32"]
    limits = {dtype: problem.tolerance(dtype) for dtype in outputs}
    return "; ".join(
        f"{dtype}: |out - expected| <= {limit.atol:g} + {limit.rtol:g} * |expected|"
        for dtype, limit in limits.items()
    )
