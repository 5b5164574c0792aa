"""Describe a kernel for the runtime of exported files: what it takes, at which shapes, and how it is compiled."""

from __future__ import annotations

from typing import Any

from runners.backends.base import chosen_tunables
from runners.backends.compiling import macro_text
from runners.backends.python import with_tunables
from runners.job import JobResult, Language, Source, Status
from runners.problems.base import Argument, Case, Problem, ProblemError, Purpose, Role, TensorSpec, family_of
from runners.problems.dtypes import ELEMENT_TYPES
from runners.problems.expressions import evaluate
from runners.tunables import TunablesError, parse

PYTHON = (Language.PYTHON, Language.TRITON)
# What the flags of a build are if neither the choice nor the text names any; the backends' own defaults.
DEFAULT_FLAGS = {Language.CPP: ("-O3", "-march=native"), Language.CUDA: ("-O3",), Language.HIP: ("-O3",)}
TENSORS = (Role.INPUT, Role.PARAMETER, Role.OUTPUT)


class ExportError(ValueError):
    """Report that a kernel cannot be exported like this. The message tells the person who asked why."""


def declaration(problem: Problem, source: Source, target: str, result: JobResult | None) -> dict[str, Any]:
    """Return what the runtime needs to know of a kernel as JSON data. Raises ExportError."""
    arguments = arguments_of(problem)
    check_exportable(problem, source, result)
    language = source.language
    return {
        "name": problem.name,
        "symbol": problem.symbol,
        "language": language.value,
        "source": f"_kernel{language.suffix}",
        "device": "cpu" if family_of(target) == "cpu" else "cuda",
        "flags": [] if language in PYTHON else _flags(source),
        "arguments": [{"name": a.name, "role": _role(a), "dtype": a.dtype} for a in arguments],
        "cases": [_case(problem, arguments, case, result) for case in covered(problem, target)],
        **({"autocast": problem.autocast} if problem.autocast else {}),
    }


def arguments_of(problem: Problem) -> tuple[Argument, ...]:
    """Return the declared arguments. Raises ExportError for a problem that declares none."""
    if not problem.arguments:
        raise ExportError(f"{problem.name} declares no arguments, so nothing would guard its kernel in a program.")
    return problem.arguments


def check_exportable(problem: Problem, source: Source, result: JobResult | None) -> None:
    """Raise ExportError for a kernel that was found wrong, or one of a language that the problem does not have."""
    if result is not None and result.status is not Status.CORRECT:
        reasons = "; ".join(result.reasons)[:300]
        raise ExportError(f"The kernel was found {result.status.value}: {reasons or 'no reason given'}.")
    if source.language not in problem.languages:
        raise ExportError(f"{problem.name} has no kernels in {source.language.value}.")
    try:
        complaints = parse(source.text).complaints(source.tunables)
    except TunablesError as error:
        complaints = error.complaints
    if complaints:
        raise ExportError("; ".join(complaints))


def covered(problem: Problem, target: str) -> list[Case]:
    """Return the cases for which the kernel is used: those that were timed."""
    return problem.cases(target, Purpose.BENCHMARK) or problem.cases(target, Purpose.TEST)


def settled_text(source: Source) -> str:
    """Return the kernel's text with its tunables set, so that it means the same without our comments."""
    if source.language in PYTHON:
        try:
            return with_tunables(source)
        except (SyntaxError, ValueError) as error:
            raise ExportError(f"The kernel's text cannot be read: {error}") from error
    head = []
    for name, value in sorted(chosen_tunables(source).items()):
        head += [f"#ifndef {name}", f"#define {name} {macro_text(value)}", "#endif"]
    return "\n".join([*head, source.text]) if head else source.text


def layout_of(argument: Argument, sizes: dict[str, Any]) -> TensorSpec:
    """Return shape and strides of a tensor argument, extents from the expressions over the sizes."""
    shape = tuple(int(evaluate(text, sizes)) for text in argument.shape)
    extents = list(shape) if argument.order == "row" else list(reversed(shape))
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * extents[axis + 1]
    return TensorSpec(argument.dtype, shape, tuple(strides if argument.order == "row" else reversed(strides)))


def _flags(source: Source) -> list[str]:
    declared = parse(source.text).flag_sets
    return list(source.flags or (declared[0] if declared else DEFAULT_FLAGS[source.language]))


def _role(argument: Argument) -> str:
    """Return the role for a caller, who passes a model's parameters like inputs."""
    return "input" if argument.role is Role.PARAMETER else argument.role.value


def _case(
    problem: Problem, arguments: tuple[Argument, ...], case: Case, result: JobResult | None
) -> dict[str, Any]:
    sizes = sizes_of(problem, arguments, case)
    layouts = {a.name: _plain(layout_of(a, sizes)) for a in arguments if a.role in TENSORS}
    given = [a for a in arguments if a.role in (Role.INPUT, Role.PARAMETER, Role.SCALAR)]
    outputs = [a for a in arguments if a.role is Role.OUTPUT]
    return {
        "name": case.name,
        "values": [layouts.get(a.name, sizes.get(a.name)) for a in given],
        "layouts": [layouts.get(a.name) for a in given],
        "outputs": [layouts[a.name] for a in outputs],
        "slots": [_slot(a, given, outputs, sizes) for a in arguments],
        "obstacle": _obstacle(case, result),
    }


def sizes_of(problem: Problem, arguments: tuple[Argument, ...], case: Case) -> dict[str, Any]:
    """Return the values of a case's sizes and scalars. Raises ExportError where the problem does not know them."""
    signature = getattr(problem, "signature", None)
    figures = signature.cases.get(case.name) if signature is not None else None
    if signature is not None and figures is None:
        raise ExportError(f"The sizes of the case {case.name} are not known.")
    try:
        return {
            **(figures.sizes if figures else case.sizes),
            **{a.name: problem.size_of(a, case) for a in arguments if a.role in (Role.SIZE, Role.SCALAR)},
        }
    except (ProblemError, KeyError) as error:
        raise ExportError(f"The sizes of the case {case.name} are not known: {error}") from error


def _obstacle(case: Case, result: JobResult | None) -> str:
    """Return why a case must not use the kernel: the evaluation that is exported with it did not find it right."""
    found = next((one for one in result.cases if one.name == case.name), None) if result else None
    return "" if found is None or found.ok else f"the kernel was not right at the case {case.name}"


def _slot(
    argument: Argument, given: list[Argument], outputs: list[Argument], sizes: dict[str, Any]
) -> dict[str, Any]:
    """Return where one argument of the C function comes from."""
    if argument.role is Role.OUTPUT:
        return {"output": outputs.index(argument)}
    if argument.role in (Role.INPUT, Role.PARAMETER):
        return {"input": given.index(argument)}
    return {"kind": argument.dtype, "value": sizes[argument.name]}


def _plain(spec: TensorSpec) -> dict[str, Any]:
    if spec.dtype not in ELEMENT_TYPES:
        raise ExportError(f"{spec.dtype} is not an element type that a kernel takes.")
    return {"dtype": spec.dtype, "shape": list(spec.shape), "strides": list(spec.strides)}
