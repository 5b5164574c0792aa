"""Run compilers on hostile source.

They run in the sandbox, since an #include can read files. What they build is copied as bytes and never executed here.
"""

from __future__ import annotations

import hashlib
import shutil
import struct
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from runners.backends.base import BuildRequest
from runners.errors import InfraFailure
from runners.job import TunableValue
from runners.sandbox import Completed, KillReason, ResourceLimits, SandboxPolicy, run

# A library has some ten kilobytes, what a compiler writes on the way some megabytes.
ROOM_BYTES = 16 << 20
# Of an ELF file: the type of the section of dynamic symbols, the length of a symbol, and the section of undefined ones.
_DYNAMIC_SYMBOLS, _SYMBOL_BYTES, _UNDEFINED = 11, 24, 0


@dataclass(frozen=True)
class Compiled:
    """Describe what a compiler left. `product` is None if it failed; `log` holds both of its streams."""

    product: Path | None
    log: str
    seconds: float

    @property
    def loadable(self) -> Path:
        """Return `product`. Raises ValueError for a compilation that failed."""
        if self.product is None:
            raise ValueError("a failed compilation has no product")
        return self.product


@dataclass(frozen=True)
class Toolbox:
    """Name what a compiler needs besides the source: paths to read, environment, memory and log beyond the job's
    limits."""

    read_only: tuple[Path, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    memory_bytes: int = 0
    log_bytes: int = 0


def compile_source(
    request: BuildRequest, command: Sequence[str], source_name: str, product_name: str, tools: Toolbox | None = None
) -> Compiled:
    """Run `command SOURCE -o PRODUCT` in the sandbox. Raises InfraFailure where it failed on a full disk."""
    source = request.folder / source_name
    source.write_text(request.source.text)
    # The sandbox runs the compiler as a user of its own, which must be able to read the source.
    source.chmod(0o644)
    out = request.folder / "build"
    out.mkdir(exist_ok=True)
    started = time.monotonic()
    product = out / product_name
    done = run([*command, str(source), "-o", str(product)], policy(request, (source,), out, tools or Toolbox()))
    # The compiler's folder is writable by hostile code, which could have put a link to any file there.
    made = done.ok and product.is_file() and not product.is_symlink()
    if not made:
        check_room(out)
    # The temporary folder tells nobody anything, and differs from build to build of one text.
    log = log_of(done, request.limits.build_s).replace(f"{request.folder}/", "")
    return Compiled(product if made else None, log, time.monotonic() - started)


def check_room(folder: Path) -> None:
    """Raise InfraFailure if the disk of a failed build is full, since that failure says nothing of the source."""
    # Asked of the disk and not of the log, in which a hostile source can print what it likes.
    free = shutil.disk_usage(folder).free
    if free < ROOM_BYTES:
        raise InfraFailure(
            f"{free // 1_000_000} MB are free in {tempfile.gettempdir()}, where kernels are built: free some, "
            "or set TMPDIR to another folder"
        )


def policy(request: BuildRequest, read_only: tuple[Path, ...], out: Path, tools: Toolbox) -> SandboxPolicy:
    """Return what a compiler may see and use."""
    limits = ResourceLimits(
        wall_s=request.limits.build_s,
        memory_bytes=request.limits.memory_bytes + tools.memory_bytes,
        log_bytes=max(request.limits.log_bytes, tools.log_bytes),
        output_bytes=max(1 << 20, request.limits.log_bytes, 4 * tools.log_bytes),
    )
    return SandboxPolicy(read_only=(*read_only, *tools.read_only), writable=(out,), env=tools.env, limits=limits)


def log_of(done: Completed, build_s: float) -> str:
    """Return both streams, and the reason if the compiler was stopped."""
    text = "\n".join(part for part in (done.stderr.strip(), done.stdout.strip()) if part)
    if done.killed_reason is not None:
        text += f"\nthe compiler was stopped: {_why_stopped(done, build_s)}"
    return text


def _why_stopped(done: Completed, build_s: float) -> str:
    return {
        KillReason.TIMEOUT: f"it was not done after {build_s:g} s",
        KillReason.MEMORY: "it used more memory than a build may",
        KillReason.OUTPUT: f"it printed {done.output_bytes:,} bytes, more than a build may",
        KillReason.DISK: "it wrote more to the disk than a build may",
        KillReason.HOST: "the machine ran short of memory",
    }.get(done.killed_reason or KillReason.CANCELLED, "the job was cancelled")


def moved_library(made: Path, library: Path, symbol: str) -> str | None:
    """Copy the library out of the compiler's folder, or return a complaint if it lacks that symbol."""
    # Loading the library to look would run hostile constructors.
    if not exports(made.read_bytes(), symbol):
        return f'the library does not export {symbol}: define it as extern "C" void {symbol}(…)'
    shutil.copyfile(made, library)
    library.chmod(0o755)
    return None


def exports(library: bytes, symbol: str) -> bool:
    """Return whether a 64-bit little-endian ELF library exports `symbol`; False if the file cannot be parsed.

    Source: "Executable and Linking Format (ELF) Specification" 1.2, sections "Section Header" and "Symbol Table", with
    the structures of 64-bit files as in `elf.h`.
    """
    name = symbol.encode() + b"\0"
    try:
        return any(library[start : start + len(name)] == name for start in _exported_names(library))
    except (struct.error, OverflowError, IndexError):
        return False


def _exported_names(library: bytes) -> Iterator[int]:
    """Yield the offset of the name of each exported symbol, from the first table of dynamic symbols."""
    if library[:6] != b"\x7fELF\x02\x01":
        return
    table, size, count = _at(library, "<Q", 0x28)[0], *_at(library, "<HH", 0x3A)
    # Of each section: type, offset, length and the number of the section with its names.
    sections = [_at(library, "<4xI16xQQI", table + number * size) for number in range(count)]
    # A library has one such table. A hostile file may have thousands, all in the same place.
    for _, offset, length, linked in islice((one for one in sections if one[0] == _DYNAMIC_SYMBOLS), 1):
        for at in range(offset, min(offset + length, len(library)), _SYMBOL_BYTES):
            name, section = _at(library, "<I2xH", at)
            if section != _UNDEFINED:
                yield sections[linked][1] + name


def _at(library: bytes, layout: str, offset: int) -> tuple[int, ...]:
    return struct.unpack_from(layout, library, offset)


def digest(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def macro_text(value: TunableValue) -> str:
    """Return a tunable's value as the preprocessor takes it."""
    return str(int(value)) if isinstance(value, bool) else str(value)
