"""Representative calls of a problem on a target, for builds that need to see one. Nothing is executed here."""

from __future__ import annotations

from runners.backends.base import SampleArgument
from runners.problems.base import Case, Problem, Purpose, Role
from runners.problems.native import NativeProblem

Sample = tuple[SampleArgument, ...] | str


def samples_of(problem: Problem, target: str) -> tuple[Sample, ...]:
    """Return one call for each benchmark case of the target, as a Python entry point gets it.

    It is described by its layouts, or by the text that makes it where only running the problem tells them. Formats
    that need more than one file for that have none.
    """
    cases = problem.cases(target, Purpose.BENCHMARK)
    if isinstance(problem, NativeProblem):
        return tuple(_sample(problem, case) for case in cases)
    return tuple(text for case in cases if (text := problem.input_maker(case)) is not None)


def _sample(problem: NativeProblem, case: Case) -> Sample:
    arguments = []
    for argument in problem.arguments:
        if argument.role is Role.INPUT:
            arguments.append(SampleArgument(problem.layout(argument, case)))
        elif argument.role is Role.SCALAR:
            arguments.append(SampleArgument(scalar=case.sizes[argument.name]))
    return tuple(arguments)
