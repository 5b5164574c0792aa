"""Collect what is known of a build before it runs: static features, registers, occupancy, code size."""

from __future__ import annotations

from dataclasses import asdict

from runners.job import BuildReport, KernelResources


def figures_of(kernel: KernelResources) -> dict[str, float]:
    """Return the features of a device kernel with its resources; empty where its machine code was not read."""
    if not kernel.features:
        return {}
    resources = {name: float(value) for name, value in asdict(kernel).items() if isinstance(value, int | float)}
    return {**kernel.features, **resources}


def figures_of_build(build: BuildReport | None) -> dict[str, float]:
    """Return the figures of a build's largest device kernel, by the instructions in its loops and then in all."""
    found = [figures for kernel in (build.kernels if build else []) if (figures := figures_of(kernel))]
    return max(found, key=lambda one: (one["loop_instructions"], one["instructions"]), default={})
