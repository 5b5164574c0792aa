"""Describe a target as torch and Triton would on a machine that has it."""

from __future__ import annotations

from typing import Any

from runners.targets import Target


def torch_device(wanted: Target) -> dict[str, Any]:
    """Return Triton's name of a GPU target (`target`) and its properties as torch names them (`device`)."""
    amd = wanted.vendor == "amd"
    number = wanted.arch.removeprefix("sm_")
    device = {
        "name": wanted.title,
        "multi_processor_count": wanted.units,
        "total_memory": wanted.memory_bytes,
        "warp_size": wanted.wavefront,
        "gcnArchName": wanted.arch if amd else "",
        "L2_cache_size": wanted.caches_bytes["L2"],
        # CUDA grants more than 48 KiB only to kernels that ask for it.
        "shared_memory_per_block": wanted.lds_bytes if amd else 48 << 10,
        "shared_memory_per_block_optin": wanted.lds_bytes,
        "shared_memory_per_multiprocessor": wanted.unit_lds_bytes,
        "regs_per_multiprocessor": wanted.unit_registers,
        "max_threads_per_multi_processor": wanted.waves_per_unit * wanted.wavefront,
        # torch reports AMD devices of this family as capability 9.4.
        "major": 9 if amd else int(number) // 10,
        "minor": 4 if amd else int(number) % 10,
    }
    backend = ["hip", wanted.arch] if amd else ["cuda", int(number)]
    return {"target": [*backend, wanted.wavefront], "device": device}
