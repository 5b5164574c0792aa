"""Write the C prototype of a problem's compiled kernels, as its arguments declare it."""

from __future__ import annotations

from runners.job import Language
from runners.problems.base import Argument, Problem, Role
from runners.problems.dtypes import ELEMENT_TYPES

COMPILED = (Language.CPP, Language.HIP, Language.CUDA)


def prototype(problem: Problem, language: Language) -> str:
    """Return the declaration that a kernel in a compiled language must match, its stream argument last on a GPU."""
    parameters = [_parameter(argument) for argument in problem.arguments]
    if language is not Language.CPP:
        parameters.append("void* stream")
    return f'extern "C" void {problem.symbol}({", ".join(parameters)});'


def _parameter(argument: Argument) -> str:
    c_name = ELEMENT_TYPES[argument.dtype].c_name
    if argument.role is Role.OUTPUT:
        return f"{c_name}* {argument.name}"
    if argument.role in (Role.INPUT, Role.PARAMETER):
        return f"const {c_name}* {argument.name}"
    return f"{c_name} {argument.name}"
