"""Pack what a module's compilers leave in its temporary directory, and lay it out again in each process.

Compilers at import or at the first call (torch's extensions, Triton, inductor) keep what they made below the
temporary directory, which is private to a process and gone with it. The build's process packs it into one file; every
later process of the module lays out a copy of its own before the module is imported, with modification times
preserved, because ninja decides by them.

The packed file is an 8-byte big-endian length, an index as JSON (a list of name, size in bytes, modification time in
ns and whether it is executable) and the files' bytes in the index's order. Only regular files are in it; the referee
checks the index (`read_index`) before it keeps anything. Standard library only.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

# The index comes from a hostile process, so all of its numbers are limited before anything is allocated.
MOST_FILES = 8192
MOST_INDEX_BYTES = 4 << 20
MOST_NAME_CHARS = 1024
CHUNK_BYTES = 1 << 20
LENGTH_BYTES = 8
SPECIFIC_FROM = 9
# Fixed names, because compilers record absolute paths in what they cache.
FOLDERS = {
    "TORCH_EXTENSIONS_DIR": "extensions",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TRITON_CACHE_DIR": "triton",
    "CUDA_CACHE_PATH": "cuda",
    "CUPY_CACHE_DIR": "cupy",
    "NUMBA_CACHE_DIR": "numba",
    "XDG_CACHE_HOME": "other",
}
# Not packed: torch waits for ever for a lock file that nobody removes, and precompiled headers take 150 MB.
LEFT_OUT = frozenset({"lock", "precompiled_headers"})
# Inductor starts a pool of processes that import torch, where it may compile in several. Precompiling headers doubled
# the time of a first call on two cores (39 s, 19 s without), and of one that finds all else in the cache.
SETTINGS = {"TORCHINDUCTOR_COMPILE_THREADS": "1", "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0"}


class CacheError(ValueError):
    """Report that packed files are too large or malformed. The message says in what way."""


@dataclass(frozen=True)
class Entry:
    """Describe one packed file. `name` is relative, `mtime_ns` its modification time."""

    name: str
    size_bytes: int
    mtime_ns: int
    executable: bool


def name_folders() -> None:
    """Tell compilers where to keep their caches: below the temporary directory, at fixed names."""
    for variable, name in FOLDERS.items():
        os.environ[variable] = str(_root() / "caches" / name)
    os.environ.update(SETTINGS)


def name_architecture(device: Any) -> None:
    """Tell torch's extensions which device to compile for (`device`: torch's properties of it).

    The architecture-specific target is named from compute capability 9 on, because its instructions drive the matrix
    units.
    """
    arch = getattr(device, "gcnArchName", "").split(":")[0]
    if arch.startswith("gfx"):
        os.environ.setdefault("PYTORCH_ROCM_ARCH", arch)
        return
    suffix = "a" if device.major >= SPECIFIC_FROM else ""
    os.environ.setdefault("TORCH_CUDA_ARCH_LIST", f"{device.major}.{device.minor}{suffix}")


def lay_out(packed: str, *, building: bool) -> None:
    """Prepare for a module: lay out what its build has left, or let the build itself use all its jobs."""
    if building:
        os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = os.environ.get("MAX_JOBS", "1")
    if packed:
        unpack(packed)


def pack(descriptor: int, most_bytes: int) -> None:
    """Write all regular files of the temporary directory to a descriptor. Raises CacheError if they are too large.

    Files of other file systems belong to the sandbox and are left out.
    """
    found = [(entry, path) for entry, path in _files(_root()) if LEFT_OUT.isdisjoint(entry.name.split("/"))]
    index = json.dumps([[e.name, e.size_bytes, e.mtime_ns, e.executable] for e, _ in found]).encode()
    size_bytes = LENGTH_BYTES + len(index) + sum(entry.size_bytes for entry, _ in found)
    if size_bytes > most_bytes or len(found) > MOST_FILES:
        raise CacheError(f"{len(found)} files of {size_bytes >> 20} MiB; at most {most_bytes >> 20} MiB are kept")
    with os.fdopen(descriptor, "wb") as out:
        out.write(len(index).to_bytes(LENGTH_BYTES, "big") + index)
        for entry, path in found:
            # A file may grow or shrink while it is packed; the index has promised its size.
            content = path.read_bytes()[: entry.size_bytes]
            out.write(content.ljust(entry.size_bytes, b"\0"))


def unpack(packed: str) -> None:
    """Lay a packed file out below the temporary directory. Raises CacheError, OSError."""
    root = _root()
    with Path(packed).open("rb") as file:
        for entry in read_index(file):
            path = root / entry.name
            path.parent.mkdir(parents=True, exist_ok=True)
            _replace(path, file.read(entry.size_bytes), entry)


def _replace(path: Path, content: bytes, entry: Entry) -> None:
    """Replace a file by another, atomically.

    A process may have loaded a library of that name. If it were overwritten in place, the running code would change.
    """
    fresh = path.with_name(f".{path.name[:200]}.new")
    fresh.write_bytes(content)
    fresh.chmod(0o700 if entry.executable else 0o600)
    os.utime(fresh, ns=(entry.mtime_ns, entry.mtime_ns))
    fresh.replace(path)


def read_index(file: BinaryIO) -> list[Entry]:
    """Read the index of a packed file, which may be hostile; the file then stands at the first entry's bytes.

    Raises CacheError for anything but a list of distinct relative names with plausible numbers.
    """
    length = int.from_bytes(file.read(LENGTH_BYTES), "big")
    if length > MOST_INDEX_BYTES:
        raise CacheError(f"an index of {length} bytes")
    try:
        found = json.loads(file.read(length))
    except (ValueError, RecursionError) as error:
        raise CacheError("the index is not JSON") from error
    if not isinstance(found, list) or len(found) > MOST_FILES:
        raise CacheError("the index is no list of files")
    entries = [_entry(value) for value in found]
    if len({entry.name for entry in entries}) != len(entries):
        raise CacheError("a name is in the index twice")
    return entries


def _entry(value: Any) -> Entry:
    if not isinstance(value, list) or len(value) != 4:
        raise CacheError("an entry of the index is not four values")
    name, size_bytes, mtime_ns, executable = value
    if not isinstance(name, str) or not _is_relative(name):
        raise CacheError(f"not the name of a file: {str(name)[:100]!r}")
    # bool is a subclass of int, so isinstance would accept true as a size.
    if type(size_bytes) is not int or type(mtime_ns) is not int or type(executable) is not bool:
        raise CacheError(f"{name}: not a size, a time and a mode")
    if size_bytes < 0 or not 0 <= mtime_ns < 1 << 63:
        raise CacheError(f"{name}: numbers out of range")
    return Entry(name, size_bytes, mtime_ns, executable)


def _is_relative(name: str) -> bool:
    parts = name.split("/")
    plain = len(name) <= MOST_NAME_CHARS and name.isprintable() and not PurePosixPath(name).is_absolute()
    return plain and all(part not in ("", ".", "..") for part in parts)


def _root() -> Path:
    return Path(os.environ["TMPDIR"])


def _files(root: Path) -> Iterator[tuple[Entry, Path]]:
    """Yield the regular files of the root's own file system, in a stable order, without following links."""
    device = root.stat().st_dev
    for folder, names, files in os.walk(root):
        # Assigning in place keeps os.walk from descending into other file systems.
        names[:] = sorted(name for name in names if Path(folder, name).lstat().st_dev == device)
        for name in sorted(files):
            path = Path(folder, name)
            found = path.lstat()
            relative = str(path.relative_to(root))
            if stat.S_ISREG(found.st_mode) and found.st_dev == device and _is_relative(relative):
                yield Entry(relative, found.st_size, found.st_mtime_ns, bool(found.st_mode & stat.S_IXUSR)), path
