"""Derive the C signature and the work figures of a KernelBench problem from its module.

This runs the problem's code on fake tensors, so it is for the examining process and tests only
(`runners.problems.filters` starts one). Each case is traced at its own sizes. An extent that differs between cases
becomes a size of the signature; all others are constants of its shapes.
"""

from __future__ import annotations

import copy
import importlib
import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeCopyMode, FakeTensorMode

from runners.candidate.light_dynamo import light_dynamo, undisturbed
from runners.job import ProblemBundle
from runners.problems.base import Argument, CallInputs, Case, Purpose, Role
from runners.problems.dtypes import ELEMENT_TYPES
from runners.problems.kernelbench import KernelBenchProblem
from runners.problems.signature import MOST_ARGUMENTS, SYMBOL, CaseFigures, Signature, digest_of
from runners.problems.structure import flatten, is_tensor, positional, tensors_in
from runners.problems.tracing import Trace, bytes_read, flops_by_dtype, storage_of, traced

# Words of C and C++ that no argument may be named, and `stream`, the signature's last one on a GPU.
_RESERVED = set(
    """
    alignas alignof and asm auto bool break case catch char class const constexpr continue default delete do double
    else enum explicit export extern false float for friend goto if inline int long mutable namespace new noexcept not
    nullptr operator or private protected public register return short signed sizeof static struct switch template this
    throw true try typedef typename union unsigned using virtual void volatile while xor stream
    """.split()  # noqa: SIM905 - a word list
) | {SYMBOL}
_DTYPES_OF_NUMBERS = {bool: "bool", int: "int64", float: "float64"}
_REFUSAL_CHARS = 300


class NoSignatureError(Exception):
    """Report that a problem has no C signature. The message is a sentence."""


class _Fake(FakeTensorMode):  # type: ignore[no-untyped-call]
    """Make fake tensors that survive `copy.deepcopy`, as cloned layers need: a copy belongs to the same mode."""

    def __deepcopy__(self, memo: dict[int, Any]) -> _Fake:
        return self


@dataclass(frozen=True)
class Place:
    """Describe a tensor or number that becomes an argument, with concrete extents."""

    role: Role
    name: str
    dtype: str
    value: str = ""
    shape: tuple[int, ...] = ()
    order: str = "row"


@dataclass
class Sighting:
    """Hold what tracing one case showed. `numbers` are the constructor's; `refused` says why the case has no
    signature."""

    case: Case
    figures: CaseFigures
    places: list[Place] = field(default_factory=list)
    numbers: dict[str, int | float] = field(default_factory=dict)
    refused: str = ""


def derive(bundle: ProblemBundle) -> Signature:
    """Derive the signature of a KernelBench bundle. Any obstacle is named in its `refused`."""
    with light_dynamo() as dynamo:
        signature = _derived(bundle)
    if not dynamo.missed and not signature.refused:
        return signature
    # A module that compiles itself needs the real one, which takes two seconds to import.
    with undisturbed():
        importlib.import_module("torch._dynamo")
    return _derived(bundle)


def _derived(bundle: ProblemBundle) -> Signature:
    problem = KernelBenchProblem(bundle)
    source = digest_of(problem.reference_source)
    sightings: list[Sighting] = []
    failures: list[str] = []
    for case in _cases(problem):
        try:
            sightings.append(_seen(bundle, case))
        except Exception as error:  # whatever the problem's code raises is the finding
            failures.append(f"{case.name} case: {_in_words(error)}")
    if not sightings:
        return Signature(source, f"The model could not be traced ({failures[0]}).")
    figures = {sighting.case.name: sighting.figures for sighting in sightings}
    try:
        arguments, sizes = _combined(sightings)
    except NoSignatureError as refusal:
        return Signature(source, str(refusal), cases=figures)
    figures = {name: replace(figures[name], sizes=sizes[name]) for name in figures}
    return Signature(source, "", arguments, figures)


def _cases(problem: KernelBenchProblem) -> list[Case]:
    """Return each distinct case of any target once."""
    found = [c for target in ("cpu", "gpu") for p in Purpose for c in problem.cases(target, p)]
    return list({case.name: case for case in found}.values())


def _in_words(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:_REFUSAL_CHARS]


def _seen(bundle: ProblemBundle, case: Case) -> Sighting:
    """Trace one case on fake tensors.

    If the constructor looks at values, the model is made of real tensors and then copied to fake ones.
    """
    try:
        with _Fake():
            return _sighting(*KernelBenchProblem(bundle).module_and_model(case), case)
    # The constructor reads a tensor's value, which a fake tensor does not have.
    except DataDependentOutputException:
        module, model = KernelBenchProblem(bundle).module_and_model(case)
        mode = _Fake()
        with FakeCopyMode(mode):
            faked = copy.deepcopy(model)
        with mode:
            return _sighting(module, faked, case)


def _sighting(module: ModuleType, model: Any, case: Case) -> Sighting:
    inputs = flatten(module.get_inputs())
    state = model.state_dict(keep_vars=True)
    result, trace = traced(model, positional(inputs), state)
    outputs = tensors_in(result)
    tensors = [output for output in outputs if isinstance(output, torch.Tensor)]
    operations, live = trace.live(tensors)
    used = {name: tensor for name, tensor in state.items() if storage_of(tensor) in live}
    given = [value for value in inputs.values.values() if is_tensor(value)]
    flops, uncounted = flops_by_dtype(operations)
    moved = sum(bytes_read(operations, tensor) for tensor in _distinct([*given, *used.values()]))
    moved += sum(float(tensor.numel() * tensor.dtype.itemsize) for tensor in tensors)
    figures = CaseFigures({}, {} if uncounted else flops, moved, tuple(uncounted))
    try:
        _check(model, trace, live, state, outputs)
        places = [*_inputs(model, inputs), *_parameters(used), *_outputs(tensors)]
        return Sighting(case, figures, places, _numbers(module))
    except NoSignatureError as refusal:
        return Sighting(case, figures, refused=str(refusal))


def _distinct(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """Return one tensor for each storage: tied weights are read once."""
    return list({storage_of(tensor): tensor for tensor in tensors}.values())


def _check(model: Any, trace: Trace, live: set[int], state: dict[str, torch.Tensor], outputs: list[Any]) -> None:
    """Raise NoSignatureError if a C function could not compute the outputs from inputs and state dict alone."""
    wrong = next((output for output in outputs if not isinstance(output, torch.Tensor)), None)
    if wrong is not None or not outputs:
        raise NoSignatureError(
            f"forward returns {type(wrong).__name__ if outputs else 'nothing'}, not only tensors."
        )
    operations, _ = trace.live(outputs)
    drawing = next((operation.name for operation in operations if operation.random), None)
    if drawing:
        raise NoSignatureError(f"The reference draws random numbers in every call ({drawing}).")
    foreign = next((tensor for storage, tensor in trace.foreign.items() if storage in live), None)
    if foreign is not None:
        raise NoSignatureError(f"forward reads {_named(model, foreign)}, neither an input nor in the state dict.")
    written = {storage for operation in operations for storage in operation.writes}
    changed = next((name for name, t in state.items() if storage_of(t) in written & live), None)
    if changed:
        raise NoSignatureError(f"forward changes {changed} and reads it again in the next call.")


def _named(model: Any, tensor: torch.Tensor) -> str:
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            if isinstance(value, torch.Tensor) and storage_of(value) == storage_of(tensor):
                return f"the tensor {path + '.' if path else ''}{name}"
    return "a tensor"


def _inputs(model: Any, inputs: CallInputs) -> list[Place]:
    names = _parameter_names(model.forward)
    places = []
    for path, value in inputs.values.items():
        head, *rest = path.split(".")
        name = "_".join([names[int(head)] if int(head) < len(names) else f"input{head}", *rest])
        if is_tensor(value):
            places.append(_tensor(Role.INPUT, name, value, path))
        elif type(value) in _DTYPES_OF_NUMBERS:
            places.append(Place(Role.SCALAR, name, _DTYPES_OF_NUMBERS[type(value)], path))
        else:
            raise NoSignatureError(f"The input {name} is a {type(value).__name__}, neither a tensor nor a number.")
    return places


def _parameters(used: dict[str, torch.Tensor]) -> list[Place]:
    """Describe the parameters, which are passed packed row by row whatever the model's own strides."""
    return [
        Place(Role.PARAMETER, name, _dtype(name, tensor), name, tuple(tensor.shape))
        for name, tensor in used.items()
    ]


def _outputs(tensors: list[torch.Tensor]) -> list[Place]:
    names = ["out"] if len(tensors) == 1 else [f"out{n}" for n in range(len(tensors))]
    return [
        Place(Role.OUTPUT, name, _dtype(name, tensor), shape=tuple(tensor.shape))
        for name, tensor in zip(names, tensors, strict=True)
    ]


def _tensor(role: Role, name: str, tensor: torch.Tensor, value: str) -> Place:
    order = "row"
    if not tensor.is_contiguous():
        order = "column"
        if tensor.dim() != 2 or not tensor.t().is_contiguous():
            raise NoSignatureError(f"The input {name} is not packed row by row.")
    return Place(role, name, _dtype(name, tensor), value, tuple(tensor.shape), order)


def _dtype(name: str, tensor: torch.Tensor) -> str:
    dtype = str(tensor.dtype).removeprefix("torch.")
    if dtype not in ELEMENT_TYPES:
        raise NoSignatureError(f"{name} is a tensor of {dtype}, which has no C type here.")
    return dtype


def _numbers(module: ModuleType) -> dict[str, int | float]:
    """Return the constructor's plain numbers by parameter.

    Truth values and texts choose what is computed, and can be read off the reference.
    """
    names = _parameter_names(module.Model)
    pairs = zip(names, module.get_init_inputs(), strict=False)
    return {name: value for name, value in pairs if type(value) in (int, float)}


def _parameter_names(function: Callable[..., Any]) -> list[str]:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return [parameter.name for parameter in parameters if parameter.kind in kinds]


def _combined(sightings: Sequence[Sighting]) -> tuple[tuple[Argument, ...], dict[str, dict[str, int | float]]]:
    """Return the arguments that fit every case, and the values of sizes and constructor scalars by case.

    Raises NoSignatureError.
    """
    refused = next((sighting.refused for sighting in sightings if sighting.refused), "")
    if refused:
        raise NoSignatureError(refused)
    if len({tuple(replace(p, shape=(0,) * len(p.shape)) for p in s.places) for s in sightings}) > 1:
        raise NoSignatureError("The arguments at reduced sizes are not those at the published ones.")
    return _Combination(sightings).result()


class _Combination:
    """Choose names for arguments and for the extents that differ between cases."""

    def __init__(self, sightings: Sequence[Sighting]) -> None:
        self._sightings = sightings
        self._taken = set(_RESERVED)
        self._sizes: dict[str, tuple[int | float, ...]] = {}

    def result(self) -> tuple[tuple[Argument, ...], dict[str, dict[str, int | float]]]:
        """Return inputs and parameters, then constructor numbers and sizes, then outputs; and the sizes' values."""
        columns = list(zip(*(sighting.places for sighting in self._sightings), strict=True))
        names = [self._named(column[0].name) for column in columns]
        scalars = self._scalars()
        tensors = [self._argument(name, column) for name, column in zip(names, columns, strict=True)]
        before = [argument for argument in tensors if argument.role is not Role.OUTPUT]
        after = [argument for argument in tensors if argument.role is Role.OUTPUT]
        sizes = [Argument(n, Role.SIZE, "int64") for n in self._sizes if n not in {s.name for s in scalars}]
        arguments = (*before, *scalars, *sizes, *after)
        if len(arguments) > MOST_ARGUMENTS:
            raise NoSignatureError(
                f"The C function would take {len(arguments)} arguments; at most {MOST_ARGUMENTS}."
            )
        values = {
            sighting.case.name: {name: column[n] for name, column in self._sizes.items()}
            for n, sighting in enumerate(self._sightings)
        }
        return arguments, values

    def _scalars(self) -> list[Argument]:
        """Return the constructor's numbers, integers as sizes, which extents may be named after."""
        arguments = []
        for name in self._sightings[0].numbers:
            column = tuple(sighting.numbers[name] for sighting in self._sightings)
            known = self._named(name)
            self._sizes[known] = column
            is_integer = all(type(value) is int for value in column)
            arguments.append(Argument(known, *((Role.SIZE, "int64") if is_integer else (Role.SCALAR, "float64"))))
        return arguments

    def _argument(self, name: str, column: Sequence[Place]) -> Argument:
        place = column[0]
        extents = zip(*(other.shape for other in column), strict=True)
        shape = tuple(self._extent(f"{name}_dim{axis}", values) for axis, values in enumerate(extents))
        return Argument(name, place.role, place.dtype, shape, place.order, value=place.value)

    def _extent(self, fallback: str, values: tuple[int, ...]) -> str:
        """Return a constant if all cases agree, else the name of a size with these values.

        The name is that of a number of the constructor, of a constant of the module, or of the axis itself.
        """
        if len(set(values)) == 1:
            return str(values[0])
        known = next((n for n, column in self._sizes.items() if column == values and type(column[0]) is int), None)
        if known is None:
            known = self._named(self._constant(values) or fallback)
            self._sizes[known] = values
        return known

    def _constant(self, values: tuple[int, ...]) -> str | None:
        sizes = [sighting.case.sizes for sighting in self._sightings]
        return next((name for name in sizes[0] if tuple(s.get(name) for s in sizes) == values), None)

    def _named(self, wanted: str) -> str:
        """Make a C identifier that is not used yet."""
        name = re.sub(r"[^A-Za-z0-9_]", "_", wanted)
        name = f"_{name}" if name[:1].isdigit() or not name else name
        chosen = next(n for n in (name, *(f"{name}_{k}" for k in range(2, 10_000))) if n not in self._taken)
        self._taken.add(chosen)
        return chosen
