"""Replace the calls that were captured in a program by a kernel, without changing the program's text."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from .kernel import Kernel
from .structure import UnplainError, configuration, inverse, join, key_of, split

NOT_CAPTURED = "a call that was not captured"


class Replacement:
    """Serve calls of one operator or module class by a kernel, and undo that again."""

    def __init__(self, folder: Path, kernel: Kernel) -> None:
        """Read which calls were captured. Raises FileNotFoundError for a kernel of a problem that was not captured."""
        declared: dict[str, Any] = json.loads((folder / "calls.json").read_text())
        self.kernel = kernel
        self.kind: str = declared["kind"]
        self.path: str = declared["path"]
        self._calls = {call["key"]: call for call in declared["calls"]}
        self._modules = frozenset(declared["modules"])
        self._original: Any = None

    def activate(self) -> None:
        """Replace the calls from now on, in the whole process."""
        if self._original is not None:
            return
        if self.kind == "module":
            self._original = torch.nn.Module.__call__
            torch.nn.Module.__call__ = self._module_call(self._original)  # type: ignore[method-assign]
        else:
            owner, name = owner_of(self.path)
            self._original = getattr(owner, name)
            setattr(owner, name, self._operator_call(self._original))

    def deactivate(self) -> None:
        """Let the program call torch again."""
        if self._original is None:
            return
        if self.kind == "module":
            torch.nn.Module.__call__ = self._original  # type: ignore[method-assign]
        else:
            owner, name = owner_of(self.path)
            setattr(owner, name, self._original)
        self._original = None

    def _operator_call(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def replaced(*args: Any, **kwargs: Any) -> Any:
            tensors: list[torch.Tensor] = []
            try:
                call = self._calls.get(key_of(split([list(args), kwargs], tensors)))
            except UnplainError:
                call = None
            served = self._serve(call, tensors, None)
            return original(*args, **kwargs) if served is None else served[0]

        return replaced

    def _module_call(self, original: Callable[..., Any]) -> Callable[..., Any]:
        # A class is known by its names only, and a script's classes by those of __main__ and of the file.
        name = self.path.rpartition(":")[2]

        @functools.wraps(original)
        def replaced(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            kind = type(module)
            if kind.__qualname__ != name or kind.__module__ not in self._modules or _has_hooks(module):
                return original(module, *args, **kwargs)
            tensors: list[torch.Tensor] = []
            try:
                form = split([list(args), kwargs], tensors)
                call = self._calls.get(key_of([form, configuration(module)]))
            except UnplainError:
                call = None
            served = self._serve(call, tensors, module)
            return original(module, *args, **kwargs) if served is None else served[0]

        return replaced

    def _serve(
        self, call: dict[str, Any] | None, tensors: Sequence[torch.Tensor], module: torch.nn.Module | None
    ) -> tuple[Any] | None:
        """Return the call's result by the kernel in a tuple of one, or None where the program should compute it."""
        if torch.compiler.is_compiling():
            return None
        if call is None:
            self.kernel.counts[NOT_CAPTURED] += 1
            return None
        values = [_value(argument, tensors, module) for argument in call["arguments"]]
        if reason := self.kernel.refuses(values):
            self.kernel.counts[reason] += 1
            return None
        made = self.kernel.operator(*values)
        outputs = list(made) if isinstance(made, tuple | list) else [made]
        restored = [out.permute(inverse(order)) for out, order in zip(outputs, call["orders"], strict=True)]
        return (join(call["result"], restored),)


def owner_of(path: str) -> tuple[Any, str]:
    """Return the object and attribute that a dotted path of torch names. Raises AttributeError."""
    *parts, name = path.removeprefix("torch.").split(".")
    return functools.reduce(getattr, parts, torch), name


def _value(
    argument: dict[str, Any], tensors: Sequence[torch.Tensor], module: torch.nn.Module | None
) -> torch.Tensor:
    """Return one argument of the kernel: a tensor of the call or of the module, in the order of its memory."""
    if "state" in argument:
        *parts, name = argument["state"].split(".")
        value: torch.Tensor = getattr(functools.reduce(getattr, parts, module), name)
    else:
        value = tensors[argument["tensor"]]
    order = argument["order"]
    if order is not None and len(order) != value.dim():
        return value  # the kernel's own guard refuses it
    if order is None:  # it had holes when it was captured, so that a copy is part of every call
        return value.contiguous()
    return value if order == list(range(len(order))) else value.permute(order)


def _has_hooks(module: torch.nn.Module) -> bool:
    """Return whether something watches or changes the module's calls, which a replacement would leave out."""
    return bool(
        module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    )
