"""Find the paths that an interpreter needs inside a sandbox, and make directories readable there."""

from __future__ import annotations

import os
import sys
from pathlib import Path

# This package's folder, which a sandbox must show for `command_of`.
PACKAGE = Path(__file__).parents[1]
# Makes a package of that one folder: what lies beside it is neither shown nor on the import path. -I leaves out the
# working directory, which the sandboxed code may write to.
_BOOTSTRAP = (
    "import sys, types; package = types.ModuleType('runners'); package.__path__ = [sys.argv[1]]; "
    "sys.modules['runners'] = package; import importlib; importlib.import_module(sys.argv[2]).main(*sys.argv[3:])"
)


def command_of(module: str, *arguments: str) -> list[str]:
    """Return the command line that calls `main` of one of our modules in a sandbox that shows PACKAGE."""
    return [sys.executable, "-I", "-c", _BOOTSTRAP, str(PACKAGE), module, *arguments]


def python_paths() -> tuple[Path, ...]:
    """Return what this interpreter, its standard library and its installed packages need read-only.

    These are the environment and the installation behind it, both as written and with links resolved. /usr is visible
    anyway.
    """
    starts = [sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix]
    links = _link_chain(Path(sys.executable))
    found = {path for start in starts for path in (Path(start), Path(start).resolve())}
    found |= {link.parent.parent for link in links}
    outermost = {path for path in found if path.exists() and not _beneath(path, found - {path})}
    return tuple(sorted(path for path in outermost if path != Path("/usr") and not _beneath(path, {Path("/usr")})))


def _link_chain(path: Path) -> list[Path]:
    """Return `path` and every file that its symbolic links lead through."""
    chain = [path]
    while chain[-1].is_symlink() and len(chain) < 40:
        chain.append(Path(os.path.normpath(chain[-1].parent / chain[-1].readlink())))
    return chain


def _beneath(path: Path, others: set[Path]) -> bool:
    return any(path.is_relative_to(other) for other in others)


def share(directory: Path) -> Path:
    """Make a directory and its content readable by the sandbox's user, and return it; links are left alone."""
    for root, _, names in os.walk(directory):
        _let_read(Path(root), 0o555)
        for name in names:
            path = Path(root) / name
            if not path.is_symlink():
                _let_read(path, 0o444)
    return directory


def _let_read(path: Path, bits: int) -> None:
    mode = path.stat().st_mode & 0o7777
    if mode & bits != bits:
        path.chmod(mode | bits)
