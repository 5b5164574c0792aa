"""Read a kernel's resources from what compilers print: amdgcn assembly, ptxas reports, SASS, x86.

The texts come from compilers that read hostile source, so they are capped and every field may be missing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from runners.job import KernelResources
from runners.static_features import Dialect, Listing, features_of
from runners.targets import Target

# Return the cycles of a listing's hottest block, or None where no simulator knows the architecture.
Simulator = Callable[[Listing], float | None]

# A hostile source can make a compiler print gigabytes.
ASSEMBLY_CHARS = 256 << 10
# A listing may repeat the source, in which anything can stand; no figure of a compiler has more digits.
_NUMBER = re.compile(r"[0-9]{1,12}")
# Matrix instructions tell whether a kernel uses the units that its peak refers to. Blanks of one line only: `\s` would
# run over line ends, and blank lines would cost quadratic time.
AMD_MATRIX = re.compile(r"^[ \t]*v_s?mfma\w*", re.MULTILINE)
PTX_MATRIX = re.compile(r"^[ \t]*(?:@!?%p\d+[ \t]+)?(?:mma\.sync|wgmma\.mma_async|tcgen05\.mma)\S*", re.MULTILINE)
SASS_MATRIX = re.compile(r"\b(?:[HIQDBO]?G?MMA|UTC[HIQOX]*MMA)(?:\.\w+)+")
X86_VECTORS = {"512": re.compile(r"%zmm\d"), "256": re.compile(r"%ymm\d"), "128": re.compile(r"%xmm\d")}
_METADATA = {
    "vgpr_count": "vgpr",
    "agpr_count": "agpr",
    "sgpr_count": "sgpr",
    "vgpr_spill_count": "vgpr_spills",
    "sgpr_spill_count": "sgpr_spills",
    "group_segment_fixed_size": "lds_bytes",
    "private_segment_fixed_size": "scratch_bytes",
}


def capped(text: str, limit: int = ASSEMBLY_CHARS) -> str:
    """Return the head and the tail of a long text."""
    if len(text) <= limit:
        return text
    return f"{text[: limit // 2]}\n… {len(text) - limit} characters left out …\n{text[-limit // 2 :]}"


def from_amdgcn(assembly: str, simulate: Simulator | None = None) -> list[KernelResources]:
    """Return the kernels of an amdgcn assembly listing, with their static features.

    They are read from its metadata (LLVM AMDGPU usage guide, "Code Object V5 Metadata") and the comments after each
    function. `vgpr` counts vector registers of both kinds together, as the hardware allocates them; `agpr` of these
    are accumulators.
    """
    bodies = dict(_amd_functions(assembly))
    metadata = assembly.partition(".amdgpu_metadata")[2]
    kernels = []
    for entry in re.split(r"^  - (?=\.)", metadata, flags=re.MULTILINE)[1:]:
        name = _field(entry, "name")
        # An entry without register counts is no kernel.
        if name is None or ".vgpr_count" not in entry:
            continue
        numbers: dict[str, Any] = {mine: _number(_field(entry, theirs)) for theirs, mine in _METADATA.items()}
        body = bodies.get(name, "")
        kernels.append(
            KernelResources(
                name,
                **numbers,
                occupancy=_comment(body, "Occupancy"),
                code_bytes=_comment(body, "codeLenInByte"),
                matrix_instructions=len(AMD_MATRIX.findall(body)),
                features=_features(Dialect.AMDGCN, body, simulate),
            )
        )
    return kernels


def _features(dialect: Dialect, body: str | None, simulate: Simulator | None = None) -> dict[str, float]:
    listing = Listing.read(dialect, body or "")
    return features_of(listing, simulate(listing) if simulate else None)


def _amd_functions(assembly: str) -> Iterator[tuple[str, str]]:
    """Yield each function's name with its instructions and the comments after it."""
    for part in re.split(r"; -- Begin function ", assembly)[1:]:
        yield part.split(maxsplit=1)[0], part.partition(".amdgpu_metadata")[0]


def _field(entry: str, name: str) -> str | None:
    found = re.search(rf"^[ \t]*(?:- )?\.{name}:[ \t]*'?([^'\n]+?)'?[ \t]*$", entry, re.MULTILINE)
    return found[1] if found else None


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and _NUMBER.fullmatch(text) else None


def _comment(body: str, name: str) -> int | None:
    found = re.search(rf"^; {name}\s*[:=] (\d{{1,12}})", body, re.MULTILINE)
    return int(found[1]) if found else None


def from_ptxas(report: str, sass: str = "") -> list[KernelResources]:
    """Return the kernels of `ptxas -v`, with what a SASS listing adds: matrix instructions and code size."""
    functions = dict(_sass_functions(sass))
    kernels = []
    for part in re.split(r"Compiling entry function '", report)[1:]:
        name = part.partition("'")[0]
        body = functions.get(name)
        kernels.append(
            KernelResources(
                name,
                registers=_found(part, r"Used (\d{1,12}) registers"),
                # ptxas leaves a figure out when it is zero.
                lds_bytes=_found(part, r"(\d{1,12}) bytes smem") or 0,
                scratch_bytes=_found(part, r"(\d{1,12}) bytes stack frame"),
                matrix_instructions=len(SASS_MATRIX.findall(body)) if body is not None else None,
                code_bytes=_code_bytes(body) if body is not None else None,
                extra={"spill_store_bytes": _found(part, r"(\d{1,12}) bytes spill stores") or 0},
                features=_features(Dialect.SASS, body),
            )
        )
    return kernels


def from_sass_usage(usage: str, sass: str) -> list[KernelResources]:
    """Return the kernels of `cuobjdump -res-usage`, for code that was not compiled with `ptxas -v`."""
    functions = dict(_sass_functions(sass))
    return [
        KernelResources(
            name,
            registers=_found(line, r"REG:(\d{1,12})"),
            lds_bytes=_found(line, r"SHARED:(\d{1,12})"),
            scratch_bytes=_found(line, r"STACK:(\d{1,12})"),
            matrix_instructions=len(SASS_MATRIX.findall(functions.get(name, ""))),
            code_bytes=_code_bytes(functions.get(name, "")),
            features=_features(Dialect.SASS, functions.get(name)),
        )
        for name, line in re.findall(r"Function (\S+?):\s*\n\s*(.*)", usage)
    ]


def _sass_functions(sass: str) -> Iterator[tuple[str, str]]:
    for part in re.split(r"^[ \t]*Function : ", sass, flags=re.MULTILINE)[1:]:
        yield part.split(maxsplit=1)[0], part


def _code_bytes(body: str) -> int | None:
    """Return the code's size in bytes: 16 after the last address, the length of an instruction since Volta."""
    addresses = re.findall(r"/\*([0-9a-f]{4,12})\*/\s+\S", body)
    return int(addresses[-1], 16) + 16 if addresses else None


def _found(text: str, pattern: str) -> int | None:
    match = re.search(pattern, text)
    return int(match[1]) if match else None


def with_occupancy(kernels: list[KernelResources], target: Target) -> list[KernelResources]:
    """Add to each kernel of an NVIDIA build the warps that its registers allow on a multiprocessor.

    Registers are allocated in units of 256 per warp (CUDA occupancy calculator). What shared memory and the block
    size allow depends on the launch, and is not counted.
    """
    return [_occupied(kernel, target) for kernel in kernels]


def _occupied(kernel: KernelResources, target: Target) -> KernelResources:
    if not kernel.registers or not target.unit_registers:
        return kernel
    # A multiprocessor has four partitions with equal shares of the registers, hence whole multiples of four warps.
    of_warp = -(-kernel.registers * target.wavefront // 256) * 256
    return replace(kernel, occupancy=min(target.waves_per_unit, target.unit_registers // of_warp // 4 * 4))


def vector_widths(assembly: str) -> dict[str, int]:
    """Count the instructions of an x86 listing by the widest register that they use, in bits."""
    counts = dict.fromkeys(X86_VECTORS, 0)
    for line in assembly.splitlines():
        width = next((name for name, pattern in X86_VECTORS.items() if pattern.search(line)), None)
        if width is not None:
            counts[width] += 1
    return counts
