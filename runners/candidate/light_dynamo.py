"""Use fake tensors without importing TorchDynamo, which takes longer than importing torch itself.

Fake tensors read a few of dynamo's settings, and torch's own functions ask it to leave them alone when they are called
first. A stand-in answers both, and leaves no trace: the real one can be imported afterwards. Needs the standard library
and torch only.
"""

from __future__ import annotations

import importlib
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

NAME = "torch._dynamo"
# Where torch keeps, on a function of its own, what dynamo made of it at its first call (torch/_compile.py).
KEPT = "__dynamo_disable"


class StandIn(ModuleType):
    """Represent TorchDynamo. `missed` names the first thing asked for that only the real one has, if any."""

    missed = ""

    def __init__(self) -> None:
        super().__init__(NAME)
        self.__spec__ = ModuleSpec(NAME, None, is_package=True)
        # Its settings are a module of their own, which needs nothing else of it.
        self.__path__ = [str(Path(torch.__file__).parent / "_dynamo")]
        self.disabled: list[Callable[..., Any]] = []

    def disable(self, function: Callable[..., Any] | None = None, *_: Any, **__: Any) -> Callable[..., Any]:
        """Return the function as it is, or a decorator that does: nothing is compiled here."""
        if function is None:
            return self.disable
        self.disabled.append(function)
        return function

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if Path(self.__path__[0], f"{name}.py").exists():
            return importlib.import_module(f"{NAME}.{name}")
        self.missed = self.missed or name
        raise AttributeError(f"TorchDynamo's {name} is not here")


@contextmanager
def light_dynamo() -> Iterator[StandIn]:
    """Replace TorchDynamo within this block, unless it has been imported before."""
    stand_in = StandIn()
    if NAME in sys.modules:
        yield stand_in
        return
    with undisturbed():
        sys.modules[NAME] = stand_in
        setattr(torch, "_dynamo", stand_in)  # noqa: B010 - not its type, on purpose
    try:
        yield stand_in
    finally:
        with undisturbed():
            for name in [name for name in sys.modules if name == NAME or name.startswith(f"{NAME}.")]:
                del sys.modules[name]
            del torch._dynamo
            for function in stand_in.disabled:
                getattr(function, "__dict__", {}).pop(KEPT, None)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Hold an alarm back within this block: the exception of its handler would leave the work half done."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
