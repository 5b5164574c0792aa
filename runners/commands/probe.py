"""Measure the ceilings of this machine and store them for rooflines: `python -m runners probe`."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from runners.errors import InfraFailure
from runners.harness.devices.device import device_for, why_absent
from runners.harness.devices.roofline import measured_ceilings
from runners.state import state_dir, write_json
from runners.targets import Target, UnknownTarget, target


def add_parser(subparsers: Any) -> None:
    """Declare the command."""
    parser = subparsers.add_parser("probe", help="measure this machine's copy bandwidth and matrix products")
    parser.add_argument("--target", default="cpu", metavar="NAME")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Measure, store and print. Return 0 if it was measured, 1 if that failed, 2 if there is no such target here."""
    try:
        wanted = target(arguments.target)
    except UnknownTarget as error:
        print(f"python -m runners probe: {error}", file=sys.stderr)
        return 2
    if absent := why_absent(wanted):
        print(f"python -m runners probe: {absent}", file=sys.stderr)
        return 2
    device = device_for(wanted.vendor, wanted.flush_bytes)
    try:
        # Alone, because other work would lower the ceilings that all later rooflines show.
        with device.exclusively():
            found = measured_ceilings(wanted, device)
    except InfraFailure as error:
        print(f"python -m runners probe: {error}", file=sys.stderr)
        return 1
    write_json(state_dir("ceilings") / f"{wanted.key}.json", found)
    print(_text(wanted, found))
    return 0


def _text(wanted: Target, found: dict[str, Any]) -> str:
    lines = [f"{wanted.title}: copy {found['copy_bandwidth'] / 1e12:.3f} TB/s ({_share(found, wanted)})"]
    for dtype, rate in found["matmul_flops"].items():
        peak = wanted.peak_flops[dtype]
        lines.append(f"  {dtype} matrix product {rate / 1e12:.1f} TFLOP/s, {rate / peak:.0%} of {peak / 1e12:.1f}")
    lines += [f"  {one['name']} read {one['bandwidth'] / 1e9:.0f} GB/s" for one in found.get("levels", [])]
    return "\n".join(lines)


def _share(found: dict[str, Any], wanted: Target) -> str:
    return (
        f"{found['copy_bandwidth'] / wanted.bandwidth:.0%} of the data sheet's"
        if wanted.bandwidth and wanted.family == "gpu"
        else "no data sheet"
    )
