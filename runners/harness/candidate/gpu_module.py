"""Calling a Python candidate on an arena in device memory."""

from __future__ import annotations

from typing import Any

import torch

from . import insight
from .device_bytes import DeviceBytes
from .device_clock import DeviceClock
from .module import ModuleCallee, WrongOutput
from .structure import tensors_in


class GpuModuleCallee(ModuleCallee):
    """`custom_kernel` or `ModelNew` on tensors in device memory."""

    def __init__(self, path: str, arena: DeviceBytes, setups: str, device_clock: DeviceClock) -> None:
        torch.cuda.init()  # type: ignore[no-untyped-call]
        super().__init__(path, arena, setups)
        self._clock = device_clock

    def run(self, prepared: dict[str, Any]) -> int:
        """One call; nanoseconds of device time."""
        elapsed, prepared["result"] = self._clock.time(self._function, prepared["values"])
        return elapsed

    def finish(self, prepared: dict[str, Any], call: dict[str, list[float]]) -> None:
        """Check the outputs, copy them into the arena and wait for that. Raises WrongOutput."""
        for tensor in tensors_in(prepared["result"]):
            if isinstance(tensor, torch.Tensor) and tensor.device.type != DeviceBytes.device:
                raise WrongOutput(f"expected a tensor on the GPU, got one on {tensor.device}")
        super().finish(prepared, call)
        self._clock.settle()

    def replays_ns(self, prepared: dict[str, Any]) -> list[int]:
        """Device time of replays from a graph. Raises what torch raises where the call can't be captured."""
        return insight.replays_ns(insight.torch_graph(lambda: self._function(*prepared["values"])), self._clock)

    def repeat(self, prepared: dict[str, Any], count: int) -> None:
        """The function alone, for a profiler."""
        insight.repeat(lambda: self._function(*prepared["values"]), count, self._clock)

    def kernels(self, prepared: dict[str, Any]) -> list[tuple[str, int, float]]:
        """What a call launches."""
        return insight.kernels(lambda: self._function(*prepared["values"]))

    def report(self) -> dict[str, Any]:
        """What the device's clock saw beside the times."""
        return self._clock.take()
