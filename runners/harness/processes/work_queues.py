"""Give the processes of an evaluation one work queue of an NVIDIA GPU instead of the driver's usual eight.

The driver spreads a process's streams on its work queues, so their number decides which streams overlap, and matters
only to a program that uses several (`runners.harness.verdict.streams`). Every process that has opened the device makes
opening and closing it slower for the others, less so with one queue: evaluations of small problems took 0.76 to 0.93 of
the time, with the same device times (docs/evidence/gpu-verdicts.md, start 119).
"""

from __future__ import annotations

from collections.abc import Mapping

from runners.backends.base import Artefact

ONE_QUEUE: Mapping[str, str] = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}


def environment_for(artefact: Artefact) -> dict[str, str]:
    """Return what a process that loads an artefact needs in its environment."""
    return {**artefact.env, **(ONE_QUEUE if artefact.one_stream else {})}
