"""Representative calls of a problem on a target, for builds that need to see one: layouts only, nothing executed."""

from __future__ import annotations

from runners.backends.base import SampleArgument
from runners.problems.base import Case, Problem, Purpose, Role
from runners.problems.native import NativeProblem

Sample = tuple[SampleArgument, ...]


def samples_of(problem: Problem, target: str) -> tuple[Sample, ...]:
    """Return one call for each benchmark case of the target, as a Python entry point gets it.

    Formats whose layouts only running the problem tells have none.
    """
    if not isinstance(problem, NativeProblem):
        return ()
    return tuple(_sample(problem, case) for case in problem.cases(target, Purpose.BENCHMARK))


def _sample(problem: NativeProblem, case: Case) -> Sample:
    arguments = []
    for argument in problem.arguments:
        if argument.role is Role.INPUT:
            arguments.append(SampleArgument(problem.layout(argument, case)))
        elif argument.role is Role.SCALAR:
            arguments.append(SampleArgument(scalar=case.sizes[argument.name]))
    return tuple(arguments)
