"""Run our own problem format: a directory with problem.toml, a description, reference.py and seeds."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING, Any

from runners.problems.base import (
    Argument,
    CallInputs,
    Case,
    Footprint,
    Problem,
    Purpose,
    Role,
    TensorSpec,
    Work,
    family_of,
)
from runners.problems.declaration import read_declaration
from runners.problems.dtypes import ELEMENT_TYPES
from runners.problems.expressions import evaluate
from runners.problems.footprint import of_layouts
from runners.problems.tolerance import Tolerance

if TYPE_CHECKING:
    import torch


class NativeProblem(Problem):
    """Represent a problem read from a native directory's files. Raises ProblemError if they are faulty."""

    format = "native"

    def __init__(self, files: dict[str, str]) -> None:
        declaration = read_declaration(files)
        self.declaration = declaration
        self.name = declaration.name
        self.title = declaration.title
        self.description = declaration.description
        self.torch_policy = declaration.torch_policy
        self.languages = declaration.languages
        self.arguments = declaration.arguments
        self.autocast = declaration.provenance.get("autocast", "")
        self.symbol = declaration.symbol
        self.seeds = declaration.seeds
        self.reference_source = declaration.reference_source

    def cases(self, target: str, purpose: Purpose) -> list[Case]:
        """Return the cases that name the target itself, or else its family, smallest first by bytes."""
        of_purpose = [case for case in self.declaration.cases if case.purpose is purpose]
        chosen = [case for case in of_purpose if target in case.targets]
        if not chosen:
            chosen = [case for case in of_purpose if family_of(target) in case.targets]
        return sorted(chosen, key=self._bytes)

    def tolerance(self, dtype: str) -> Tolerance:
        """Return the declared tolerance. Raises KeyError for a dtype that no output has."""
        return self.declaration.tolerances[dtype]

    def work(self, case: Case) -> Work | None:
        """Return the declared FLOPs, and the declared bytes or else every tensor moved once."""
        flops = {dtype: float(evaluate(text, case.sizes)) for dtype, text in self.declaration.flops.items()}
        return Work(flops=flops, bytes=self._bytes(case))

    def layout(self, argument: Argument, case: Case) -> TensorSpec:
        """Shape and strides of a tensor argument in a case."""
        shape = tuple(int(evaluate(text, case.sizes)) for text in argument.shape)
        return TensorSpec(argument.dtype, shape, _strides(shape, argument.order))

    def outputs(self, case: Case) -> tuple[TensorSpec, ...]:
        """Return the layouts of the outputs, in the order of the arguments."""
        return tuple(self.layout(a, case) for a in self.arguments if a.role is Role.OUTPUT)

    def footprint(self, case: Case) -> Footprint:
        """Return the bytes of the declared layouts."""
        inputs = [self.layout(a, case) for a in self.arguments if a.role is Role.INPUT]
        return of_layouts(inputs, list(self.outputs(case)))

    def make_inputs(self, case: Case, seed: int, distribution: str) -> CallInputs:
        """Make inputs and scalars by name, with reference.py's own fill if the problem declares one, else the
        generic."""
        import torch

        generator = torch.Generator(torch.get_default_device()).manual_seed(seed)
        own: dict[str, Any] = {}
        if distribution in self.declaration.own_distributions:
            own = self._function(f"fill_{distribution}")(dict(case.sizes), generator)
            distribution = "normal"
        values: dict[str, Any] = {}
        for argument in self.arguments:
            if argument.role is Role.SCALAR:
                values[argument.name] = case.sizes[argument.name]
            elif argument.role is Role.INPUT:
                values[argument.name] = self._fill(argument, case, generator, distribution, own)
        return CallInputs(values)

    def reference_as_candidate(self, target: str) -> str:
        """Return reference.py with a `custom_kernel` that hands its arguments to `reference` by name."""
        names = [argument.name for argument in self.arguments if argument.role in (Role.INPUT, Role.SCALAR)]
        call = ", ".join(f"{name}={name}" for name in names)
        entry = f"def {self.entry_point}({', '.join(names)}):\n    return reference({call})\n"
        return f"{self.reference_source}\n\n\n{entry}"

    def reference(self, inputs: CallInputs) -> list[torch.Tensor]:
        """Run `reference(**inputs)` of reference.py."""
        return _as_list(self._function("reference")(**inputs.values))

    def expected(self, inputs: CallInputs) -> list[torch.Tensor]:
        """Run `expected(**inputs)` of reference.py if it has one, else `reference` on inputs widened to float64."""
        if hasattr(self._module, "expected"):
            return _as_list(self._function("expected")(**inputs.values))
        return _as_list(self._function("reference")(**{k: _widened(v) for k, v in inputs.values.items()}))

    def _bytes(self, case: Case) -> float:
        if self.declaration.bytes_expression:
            return float(evaluate(self.declaration.bytes_expression, case.sizes))
        tensors = [a for a in self.arguments if a.role in (Role.INPUT, Role.OUTPUT)]
        return float(
            sum(math.prod(self.layout(a, case).shape) * ELEMENT_TYPES[a.dtype].size_bytes for a in tensors)
        )

    def _fill(
        self, argument: Argument, case: Case, generator: torch.Generator, distribution: str, own: dict[str, Any]
    ) -> torch.Tensor:
        import torch

        from runners.problems.distributions import cast_finite, fill

        spec = self.layout(argument, case)
        dtype = getattr(torch, argument.dtype)
        if argument.name in own:
            value = own[argument.name]
            if tuple(value.shape) != spec.shape:
                raise ValueError(f"fill of {argument.name}: shape {tuple(value.shape)}, declared {spec.shape}")
            value = cast_finite(value, dtype) if dtype.is_floating_point else value.to(dtype)
        else:
            value = fill(argument.distribution or distribution, spec.shape, dtype, generator)
        return _laid_out(value, spec)

    @cached_property
    def _module(self) -> ModuleType:
        module = ModuleType(f"problem_{self.name}")
        code = compile(self.reference_source, self.declaration.reference_file, "exec")
        sys.modules[module.__name__] = module  # torch.compile looks it up by its name
        exec(code, module.__dict__)  # noqa: S102 - a problem's own reference, run in the oracle only
        return module

    def _function(self, name: str) -> Callable[..., Any]:
        function: Callable[..., Any] = getattr(self._module, name)
        return function


def _strides(shape: tuple[int, ...], order: str) -> tuple[int, ...]:
    strides = [1] * len(shape)
    extents = list(shape) if order == "row" else list(reversed(shape))
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * extents[axis + 1]
    return tuple(strides if order == "row" else reversed(strides))


def _laid_out(value: torch.Tensor, spec: TensorSpec) -> torch.Tensor:
    """Copy a tensor to exactly the declared strides, including those of extents of 1."""
    import torch

    return torch.empty_strided(spec.shape, spec.strides, dtype=value.dtype).copy_(value)


def _widened(value: Any) -> Any:
    import torch

    is_float = isinstance(value, torch.Tensor) and value.dtype.is_floating_point
    return value.to(torch.float64) if is_float else value


def _as_list(result: Any) -> list[torch.Tensor]:
    return list(result) if isinstance(result, tuple | list) else [result]
