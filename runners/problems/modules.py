"""Run the Python files of a bundle as modules that import each other, without writing them to disk.

They are importable only within `Modules.active()`, under their plain names (`task`, `utils`, `reference`), and leave
`sys.modules` as it was. For the oracle and baseline processes only.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from runners.problems.base import ProblemError
from runners.problems.python_text import DEVICE_NAME, for_any_device, parse


def importable(files: Mapping[str, str]) -> dict[str, str]:
    """Return the texts of those files of a bundle that its programs may import, by the modules' names."""
    return {name[:-3]: text for name, text in files.items() if name.endswith(".py") and "/" not in name}


class Modules(MetaPathFinder, Loader):
    """Import the `.py` files of `files` as modules. Their `"cuda"` arguments mean `device`, which may be changed."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self._sources = importable(files)
        self._loaded: dict[str, ModuleType] = {}
        self._device = "cpu"

    @cached_property
    def texts(self) -> dict[str, str] | None:
        """Return the modules' texts by name, with their device made variable; None if one of them is not Python."""
        try:
            parsed = {name: for_any_device(parse(text, f"{name}.py")) for name, text in self._sources.items()}
        except ProblemError:
            return None
        return {name: ast.unparse(ast.fix_missing_locations(tree)) for name, tree in parsed.items()}

    def get(self, name: str) -> ModuleType:
        """Return the module, executed once. Raises whatever its text raises; ProblemError if it is not Python."""
        with self.active():
            __import__(name)
            return self._loaded[name]

    def use_device(self, device: str) -> None:
        """Set what `"cuda"` means from now on, in every module."""
        self._device = device
        for module in self._loaded.values():
            module.__dict__[DEVICE_NAME] = device

    def install(self) -> None:
        """Make the modules importable for good, in place of others of their names."""
        if self not in sys.meta_path:
            for name in self._sources:
                sys.modules.pop(name, None)
            sys.modules.update(self._loaded)
            sys.meta_path.insert(0, self)

    @contextmanager
    def active(self) -> Iterator[None]:
        """Make the modules importable within this block only, unless they were installed."""
        if self in sys.meta_path:
            yield
            return
        # A problem's `utils` must not be an installed package's of the same name, nor replace it afterwards.
        hidden = {name: sys.modules.pop(name) for name in self._sources if name in sys.modules}
        sys.modules.update(self._loaded)
        sys.meta_path.insert(0, self)
        try:
            yield
        finally:
            sys.meta_path.remove(self)
            for name in self._sources:
                sys.modules.pop(name, None)
            sys.modules.update(hidden)

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return a spec for a module of ours, as importlib asks."""
        return ModuleSpec(fullname, self) if path is None and fullname in self._sources else None

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Return None for importlib's default."""
        return None

    def exec_module(self, module: ModuleType) -> None:
        """Run the module's text, with its device made variable."""
        name = module.__name__
        tree = for_any_device(parse(self._sources[name], f"{name}.py"))
        # Set before the text runs, because it may create tensors at import.
        module.__dict__[DEVICE_NAME] = self._device
        self._loaded[name] = module
        try:
            exec(compile(tree, f"{name}.py", "exec"), module.__dict__)  # noqa: S102 - in the oracle only
        # A module that failed half way must not be found the next time.
        except BaseException:
            del self._loaded[name]
            raise
