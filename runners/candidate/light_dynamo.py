"""Use fake tensors without importing TorchDynamo, which takes longer than importing torch itself.

Fake tensors read a few of dynamo's settings, and torch's own functions ask it to leave them alone when they are called
first. A stand-in answers both. It is for processes that trace a module on fake tensors and end. Needs the standard
library and torch only.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

NAME = "torch._dynamo"


class StandIn(ModuleType):
    """Represent TorchDynamo. `missed` names the first thing asked for that only the real one has, if any."""

    missed = ""

    def __init__(self) -> None:
        super().__init__(NAME)
        # Its settings are a module of their own, which needs nothing else of it.
        self.__path__ = [str(Path(torch.__file__).parent / "_dynamo")]

    def disable(self, function: Callable[..., Any], *_: Any, **__: Any) -> Callable[..., Any]:
        """Return the function as it is: nothing is compiled here."""
        return function

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__") and not self._has_module(name):
            self.missed = self.missed or name
        raise AttributeError(f"TorchDynamo's {name} is not here")

    def _has_module(self, name: str) -> bool:
        """Return whether the real one has a module of that name, which Python imports when it finds no attribute."""
        return Path(self.__path__[0], f"{name}.py").exists()


@contextmanager
def light_dynamo() -> Iterator[StandIn]:
    """Replace TorchDynamo within this block, unless it has been imported before."""
    stand_in = StandIn()
    if NAME in sys.modules:
        yield stand_in
        return
    sys.modules[NAME] = stand_in
    setattr(torch, "_dynamo", stand_in)  # noqa: B010 - not its type, on purpose
    try:
        yield stand_in
    finally:
        for name in [name for name in sys.modules if name == NAME or name.startswith(f"{NAME}.")]:
            del sys.modules[name]
        del torch._dynamo
