"""Running a compiler on hostile source: in the sandbox, since an #include can read files; its product is taken out as
bytes, never executed here."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from runners.backends.base import BuildRequest
from runners.job import TunableValue
from runners.sandbox import Completed, ResourceLimits, SandboxPolicy, run


@dataclass(frozen=True)
class Compiled:
    """What a compiler left: `product` is None where it failed. `log` holds both of its streams."""

    product: Path | None
    log: str
    seconds: float

    @property
    def loadable(self) -> Path:
        """`product` of a compilation that worked. Raises ValueError for one that did not."""
        if self.product is None:
            raise ValueError("a failed compilation has no product")
        return self.product


@dataclass(frozen=True)
class Toolbox:
    """What a compiler needs besides the source: paths to read, environment, memory and log beyond the job's limits."""

    read_only: tuple[Path, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    memory_bytes: int = 0
    log_bytes: int = 0


def compile_source(
    request: BuildRequest, command: Sequence[str], source_name: str, product_name: str, tools: Toolbox | None = None
) -> Compiled:
    """Run `command SOURCE -o PRODUCT` in the sandbox."""
    source = request.folder / source_name
    source.write_text(request.source.text)
    source.chmod(0o644)
    out = request.folder / "build"
    out.mkdir(exist_ok=True)
    started = time.monotonic()
    product = out / product_name
    done = run([*command, str(source), "-o", str(product)], policy(request, (source,), out, tools or Toolbox()))
    made = done.ok and product.is_file() and not product.is_symlink()
    return Compiled(product if made else None, log_of(done, request.limits.build_s), time.monotonic() - started)


def policy(request: BuildRequest, read_only: tuple[Path, ...], out: Path, tools: Toolbox) -> SandboxPolicy:
    """What a compiler may see and use."""
    limits = ResourceLimits(
        wall_s=request.limits.build_s,
        memory_bytes=request.limits.memory_bytes + tools.memory_bytes,
        log_bytes=max(request.limits.log_bytes, tools.log_bytes),
        output_bytes=max(1 << 20, request.limits.log_bytes, 4 * tools.log_bytes),
    )
    return SandboxPolicy(read_only=(*read_only, *tools.read_only), writable=(out,), env=tools.env, limits=limits)


def log_of(done: Completed, build_s: float) -> str:
    """Both streams, and why the compiler was stopped, if it was."""
    text = "\n".join(part for part in (done.stderr.strip(), done.stdout.strip()) if part)
    if done.killed_reason is not None:
        text += f"\nthe compiler was stopped: {done.killed_reason.value} (limit {build_s:g} s)"
    return text


def moved_library(made: Path, library: Path, symbol: str) -> str | None:
    """Take the library out of the compiler's folder; a complaint where it lacks that symbol."""
    if symbol.encode() not in made.read_bytes():
        return f'the library does not export {symbol}: define it as extern "C" void {symbol}(…)'
    shutil.copyfile(made, library)
    library.chmod(0o755)
    return None


def digest(path: Path) -> str:
    """SHA-256 of a file; hex."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def macro_text(value: TunableValue) -> str:
    """A tunable's value as the preprocessor takes it."""
    return str(int(value)) if isinstance(value, bool) else str(value)
