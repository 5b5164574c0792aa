"""Trace one call of a torch module on fake tensors: which tensors it reads, what it computes, what comes out.

Shapes propagate and nothing is computed, so that tracing takes no memory at any size. It still runs the problem's
Python code, so it belongs into a process where that is allowed. Data flow is followed by storage: an operation counts
if an output depends on what it writes (dead code, such as the running statistics of a batch norm in training, does
not).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from runners.problems.flops import dtype_of, flops_of

# Operations that read as much of their first argument as they return.
_LOOKUPS = {"embedding", "index_select", "gather", "index", "_unsafe_index"}
# Operations whose argument is a constant that the code has just written down (`torch.tensor(0.5)`).
_CREATORS = {"lift_fresh"}
_OVERWRITES = {"copy_", "fill_", "zero_"}


@dataclass
class Operation:
    """Hold one dispatched operation. `reads` maps storages to the bytes read of them; `flops` is None if unknown."""

    name: str
    reads: dict[int, int]
    writes: set[int]
    creates: set[int]
    dtype: str
    flops: float | None
    random: bool


@dataclass
class Trace:
    """Hold what `traced` saw. Storages are named by numbers; `storage_of` tells a tensor's."""

    operations: list[Operation] = field(default_factory=list)
    known: set[int] = field(default_factory=set)
    foreign: dict[int, torch.Tensor] = field(default_factory=dict)
    kept: list[Any] = field(default_factory=list)

    def live(self, outputs: Iterable[torch.Tensor]) -> tuple[list[Operation], set[int]]:
        """Return the operations that outputs depend on, and the storages that must hold something before the call."""
        wanted = {storage_of(tensor) for tensor in outputs}
        chosen = []
        for operation in reversed(self.operations):
            if not wanted & (operation.writes | operation.creates):
                continue
            chosen.append(operation)
            wanted -= operation.creates
            wanted |= operation.reads.keys()
        return chosen[::-1], wanted


def storage_of(tensor: torch.Tensor) -> int:
    """Return a number for the memory that a tensor shares with its views."""
    return int(tensor.untyped_storage()._cdata)


def bytes_read(operations: Sequence[Operation], tensor: torch.Tensor) -> float:
    """Count the bytes that operations read of a tensor's memory, each at most once: all of it, or what slices and
    lookups take."""
    storage = storage_of(tensor)
    read = sum(operation.reads.get(storage, 0) for operation in operations)
    return float(min(read, tensor.numel() * tensor.dtype.itemsize))


def flops_by_dtype(operations: Sequence[Operation]) -> tuple[dict[str, float], list[str]]:
    """Sum up FLOPs by dtype; return them and the names of the operations whose count is not known."""
    counted: Counter[str] = Counter()
    for operation in operations:
        if operation.flops:
            counted[operation.dtype] += operation.flops  # type: ignore[assignment]
    return dict(counted), sorted({operation.name for operation in operations if operation.flops is None})


def traced(call: Any, arguments: Sequence[Any], known: Mapping[str, torch.Tensor]) -> tuple[Any, Trace]:
    """Call on fake tensors, without gradients; return the result and what was dispatched. `known`: the tensors that
    exist before the call. Raises whatever the code raises."""
    trace = Trace()
    for tensor in [*known.values(), *(a for a in tree_leaves(list(arguments)) if isinstance(a, torch.Tensor))]:
        trace.known.add(storage_of(tensor))
        trace.kept.append(tensor)
    with torch.no_grad(), _Recorder(trace):
        result = call(*arguments)
    trace.kept.append(result)
    return result, trace


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Write every operation into a trace."""

    def __init__(self, trace: Trace) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._trace = trace

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        if func._overloadpacket.__name__ not in _CREATORS:
            self._note(_tensors((args, kwargs)))
        self._note_made(_tensors(out))
        operation = _operation(func, args, kwargs, out)
        if operation.creates or operation.writes:  # all else are views
            self._trace.operations.append(operation)
        return out

    def _note(self, given: list[torch.Tensor]) -> None:
        """Remember tensors that came from nowhere."""
        for tensor in given:
            if storage_of(tensor) not in self._trace.known:
                self._trace.foreign[storage_of(tensor)] = tensor
        self._note_made(given)

    def _note_made(self, tensors: list[torch.Tensor]) -> None:
        """Keep all alive: storages are told apart by their addresses."""
        self._trace.known.update(storage_of(tensor) for tensor in tensors)
        self._trace.kept += tensors


def _operation(func: Any, args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> Operation:
    name = func._overloadpacket.__name__
    given, made = [] if name in _CREATORS else _tensors((args, kwargs)), _tensors(out)
    written = _written(func, args, kwargs)
    before = {storage_of(tensor) for tensor in given}
    overwritten = {storage_of(t) for t in written if name in _OVERWRITES and _is_whole(t)}
    unread = overwritten | {storage_of(tensor) for tensor in _running_statistics(func, args, kwargs)}
    flops = flops_of(func, args, kwargs, out)
    return Operation(
        name=str(func._overloadpacket),
        reads=_reads(name, [t for t in given if storage_of(t) not in unread], made),
        writes={storage_of(tensor) for tensor in written},
        creates=({storage_of(tensor) for tensor in made} - before) | overwritten,
        dtype=dtype_of((args, kwargs), out) if flops else "",
        flops=flops,
        random=_draws(func, name, args, kwargs),
    )


def _draws(func: Any, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Return whether the operation draws random numbers. Attention does if its dropout is above zero."""
    if torch.Tag.nondeterministic_seeded not in func.tags:
        return False
    if "attention" not in name:
        return True
    return bool(_by_name(func, args, kwargs).get("dropout_p", 0.0))


def _running_statistics(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """Return the statistics that a batch norm in training updates: it normalises with those of the batch."""
    given = _by_name(func, args, kwargs)
    return _tensors([given.get("running_mean"), given.get("running_var")]) if given.get("training") else []


def _by_name(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    return dict(zip((argument.name for argument in func._schema.arguments), args, strict=False)) | kwargs


def _reads(name: str, given: list[torch.Tensor], made: list[torch.Tensor]) -> dict[int, int]:
    """Count the bytes read by storage."""
    read: dict[int, int] = {}
    for index, tensor in enumerate(given):
        size = _bytes(made[0]) if name in _LOOKUPS and index == 0 and made else _bytes(tensor)
        read[storage_of(tensor)] = read.get(storage_of(tensor), 0) + size
    return read


def _written(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """Return the arguments that the operation's schema says it writes to."""
    written = []
    for index, argument in enumerate(func._schema.arguments):
        value = args[index] if index < len(args) else kwargs.get(argument.name)
        if argument.alias_info is not None and argument.alias_info.is_write:
            written += _tensors(value)
    return written


def _is_whole(tensor: torch.Tensor) -> bool:
    return _bytes(tensor) >= tensor.untyped_storage().nbytes()


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.dtype.itemsize


def _tensors(values: Any) -> list[torch.Tensor]:
    return [value for value in tree_leaves(values) if isinstance(value, torch.Tensor)]
