"""Count the bytes of a case's inputs, weights and outputs without allocating them.

Modules are built and called on torch's meta device, whose tensors have a shape and a dtype and no memory. Only oracle
processes do this, because it runs the problem's code.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from runners.problems.base import CallInputs, Case, Footprint, Problem, TensorSpec
from runners.problems.dtypes import ELEMENT_TYPES
from runners.problems.structure import flatten, is_tensor, positional, tensors_in

if TYPE_CHECKING:
    import torch


def footprint_of(problem: Problem, case: Case) -> Footprint | None:
    """Return the footprint of a case, or None if the problem's code cannot be run without data.

    If the outputs stay unknown but the problem declares the bytes that a call moves, the bytes beyond inputs and
    weights stand for the outputs.
    """
    try:
        found = problem.footprint(case)
    except Exception:  # whatever the problem's code raises without data says nothing about it
        return None
    if found is None or found.outputs is not None:
        return found
    work = problem.work(case)
    moved = 0.0 if work is None else work.bytes - found.inputs - found.weights
    return Footprint(found.inputs, found.weights, int(moved)) if moved > 0 else found


def of_layouts(inputs: list[TensorSpec], outputs: list[TensorSpec]) -> Footprint:
    """Return the footprint of declared layouts."""
    return Footprint(sum(map(_spec_bytes, inputs)), 0, sum(map(_spec_bytes, outputs)))


def of_module(build: Callable[[], tuple[Any, Any]]) -> Footprint:
    """Return the footprint of a module with `get_inputs` and its model, both of which `build` returns.

    Everything is made on the meta device. Raises whatever the problem's code raises there.
    """
    import torch

    with torch.device("meta"), torch.no_grad():
        model, inputs = _made(build)
        return Footprint(_inputs_bytes(inputs), _weights_bytes(model), _outputs_bytes(model.to("meta"), inputs))


def held_bytes(build: Callable[[], tuple[Any, Any]]) -> int | None:
    """Return the bytes of a module's inputs and weights, or None if its code cannot run without data.

    The model is not called, since the first arithmetic on the meta device imports 900 modules, which takes as long as
    importing torch.
    """
    import torch

    try:
        with torch.device("meta"), torch.no_grad():
            model, inputs = _made(build)
            return _inputs_bytes(inputs) + _weights_bytes(model)
    except Exception:  # whatever the problem's code raises without data says nothing about it
        return None


def _made(build: Callable[[], tuple[Any, Any]]) -> tuple[Any, CallInputs]:
    module, model = build()
    return model, flatten(module.get_inputs())


def _outputs_bytes(model: Any, inputs: CallInputs) -> int | None:
    values = {name: v.to("meta") if is_tensor(v) else v for name, v in inputs.values.items()}
    try:
        outputs = tensors_in(model(*positional(CallInputs(values, inputs.structure))))
    except Exception:  # data-dependent sizes and operators without a meta kernel
        return None
    return sum(map(_bytes, outputs))


def _inputs_bytes(inputs: CallInputs) -> int:
    return sum(_bytes(value) for value in inputs.values.values() if is_tensor(value))


def _weights_bytes(model: Any) -> int:
    return sum(map(_bytes, [*model.parameters(), *model.buffers()]))


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.dtype.itemsize


def _spec_bytes(spec: TensorSpec) -> int:
    return math.prod(spec.shape) * ELEMENT_TYPES[spec.dtype].size_bytes
