"""List the machine code of a compiled library with objdump, in a form that can be compared.

Addresses and raw bytes are left out, so that an inserted instruction does not change every later line. The library
holds whatever a hostile source made the compiler write, so objdump runs in the sandbox too.
"""

from __future__ import annotations

import platform
import re
import shutil
from pathlib import Path

from runners.backends.base import BuildRequest
from runners.backends.compiling import Toolbox, policy
from runners.backends.resources import capped
from runners.sandbox import run

# Two listings are compared on a page, and models read them in prompts; longer ones help neither.
LISTING_CHARS = 64 << 10
OUTPUT_BYTES = 4 << 20
# These functions come from the C runtime and are the same in every library.
_NOISE = ("_init", "_fini", "_start", "deregister_tm_clones", "register_tm_clones", "frame_dummy", "__do_global")
# A source can give its symbols any name. Without a limit, each address would be searched to the end of its line.
_TARGET = re.compile(r"\b[0-9a-f]{1,16} <([^>+]{0,400})(?:\+0x[0-9a-f]{1,16})?>")
_RELATIVE = re.compile(r"-?0x[0-9a-f]+\(%rip\)")
_COMMENT = re.compile(r"(?<!\s)\s++# [0-9a-f]+ <.*$")


def disassembler() -> str | None:
    """Return the path of binutils' objdump or LLVM's, or None if neither is installed."""
    return shutil.which("objdump") or shutil.which("llvm-objdump")


def disassembled(request: BuildRequest, library: Path) -> dict[str, str]:
    """Return the listing under its architecture's name, or nothing if there is no disassembler or it fails."""
    tool = disassembler()
    if tool is None:
        return {}
    # -C demangles; raw bytes would make each line differ with every address.
    command = [tool, "-d", "--no-show-raw-insn", "--section=.text", "-C", str(library)]
    tools = Toolbox(log_bytes=OUTPUT_BYTES)
    done = run(command, policy(request, (library,), request.folder / "build", tools))
    listing = _tidied(done.stdout) if done.ok else ""
    return {_architecture(): capped(listing, LISTING_CHARS)} if listing else {}


def _architecture() -> str:
    machine = platform.machine()
    return "x86" if machine in ("x86_64", "i686") else machine


def _tidied(listing: str) -> str:
    """Return the functions with their instructions, without addresses and without what the linker adds to every
    library."""
    parts = re.split(r"\n(?=[0-9a-f]{8,16} <)", listing)
    functions = [_function(part) for part in parts if re.match(r"[0-9a-f]{8,16} <", part) and not _is_noise(part)]
    return "\n\n".join(functions)


def _is_noise(part: str) -> bool:
    name = part.partition("\n")[0].partition(" <")[2]
    return " " not in name and (name.startswith(_NOISE) or "@plt" in name)


def _function(part: str) -> str:
    head, _, body = part.partition("\n")
    lines = [_COMMENT.sub("", line.partition(":")[2].strip()) for line in body.splitlines() if ":" in line]
    return "\n".join([head.partition(" ")[2], *(f"    {_placeless(line)}" for line in lines if line)])


def _placeless(instruction: str) -> str:
    """Remove the exact target of a jump or read: the function says enough, and does not change with every insertion."""
    text = _TARGET.sub(r"<\1>", " ".join(instruction.split()))
    return _RELATIVE.sub("(%rip)", text)
