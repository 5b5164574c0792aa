"""Describe one kind of call of a program: the operator or module, its arguments, and how often and long it ran."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch

from runners.capture.samples import Sample
from runners.export.runtime.structure import memory_order

# Obstacles of calls that compute nothing from anything, which no ranking shows.
NOTHING, NO_INPUT = "returns no tensor", "takes no tensor"


@dataclass(frozen=True)
class TensorNote:
    """Describe a tensor without its values. `order` lists the axes from slow to fast, None if there were holes."""

    shape: tuple[int, ...]
    dtype: str
    order: tuple[int, ...] | None

    @property
    def stored(self) -> tuple[int, ...]:
        """Return the extents as they lie in memory, which is how a kernel gets the tensor."""
        return self.shape if self.order is None else tuple(self.shape[axis] for axis in self.order)


def note_of(tensor: torch.Tensor) -> TensorNote:
    """Return the description of a tensor."""
    order = memory_order(tensor)
    return TensorNote(
        tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), None if order is None else tuple(order)
    )


@dataclass
class Call:
    """Collect the calls of one operator or module class with equal arguments, up to the values of its tensors.

    `form` describes the arguments without tensors, `result` what came back. `state` names the module's parameters and
    buffers that are passed to a kernel. `obstacle` says why this cannot become a problem, empty if it can. `inside`
    holds the keys of calls that contained it. `also` lists calls that compute the same under another configuration,
    such as the other layers of a model. `autocast` is the type to which torch converted on the way, empty without.
    """

    kind: str
    path: str
    form: Any
    inputs: tuple[TensorNote, ...]
    key: str
    names: tuple[str, ...] = ()
    module: torch.nn.Module | None = None
    function: Any = None
    state: dict[str, TensorNote] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)
    result: Any = None
    outputs: tuple[TensorNote, ...] = ()
    count: int = 0
    seconds: float = 0.0
    obstacle: str = ""
    inside: set[int] = field(default_factory=set)
    device: str = "cpu"
    autocast: str = ""
    also: list[Call] = field(default_factory=list)

    @property
    def title(self) -> str:
        """Return the operator's name or the module's class."""
        return self.path.rpartition(":")[2] if self.kind == "module" else self.path

    @property
    def family(self) -> tuple[Any, ...]:
        """Return what calls have in common that may become one problem at several shapes."""
        notes = (*self.inputs, *self.state.values(), *self.outputs)
        layout = tuple((note.dtype, len(note.shape), note.order) for note in notes)
        return self.kind, self.path, tuple(self.state), self.names, layout, self.autocast

    @property
    def casting(self) -> AbstractContextManager[Any]:
        """Return a context in which torch converts types as it did in the call."""
        if not self.autocast:
            return nullcontext()
        return torch.autocast(torch.device(self.device).type, dtype=getattr(torch, self.autocast))

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Return the shapes of inputs and state as a kernel gets them."""
        return tuple(note.stored for note in (*self.inputs, *self.state.values()))
