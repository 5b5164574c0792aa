"""Call a Python candidate on an arena in device memory."""

from __future__ import annotations

from typing import Any

import torch

from . import insight
from .caches import name_architecture
from .device_bytes import DeviceBytes
from .device_clock import DeviceClock, Reached
from .module import ModuleCallee, WrongOutput, saved
from .structure import tensors_in


class GpuModuleCallee(ModuleCallee):
    """Call `custom_kernel` or `ModelNew` on tensors in device memory."""

    def __init__(self, path: str, arena: DeviceBytes, setups: str, device_clock: DeviceClock) -> None:
        torch.cuda.init()  # type: ignore[no-untyped-call]
        name_architecture(torch.cuda.get_device_properties(0))
        super().__init__(path, arena, setups)
        self._clock = device_clock

    def run(self, prepared: dict[str, Any]) -> int:
        """Make one call that is not held, and return the time between its events in ns."""
        elapsed, prepared["result"] = self._clock.time(self._function, prepared["values"])
        return elapsed

    def save(self, prepared: dict[str, Any]) -> None:
        """Replace what a call returned by copies, if all of it is plain tensors, which copying makes no work for."""
        prepared["result"] = saved(prepared["result"])

    def arm(self, prepared: dict[str, Any]) -> int:
        """Enqueue one call behind the gate, and return the host's time for that in ns."""
        enqueued, prepared["result"] = self._clock.arm(self._function, prepared["values"])
        return enqueued

    def reach(self) -> Reached:
        """Wait for the call that was armed."""
        return self._clock.reach()

    def steady(self, calls: list[dict[str, Any]], warm_ns: int, repeats: int) -> list[int]:
        """Make calls in a loop, and return the two times of `DeviceClock.steady`."""
        values = [prepared["values"] for prepared in calls]
        # Whoever calls such a function in a loop and wants all outputs has to copy them as well.
        function = self._saving if self.overwrites else self._function
        times, results = self._clock.steady(function, values, warm_ns, repeats)
        for prepared, result in zip(calls, results, strict=True):
            prepared["result"] = result
        return times

    def _saving(self, *values: Any) -> Any:
        return saved(self._function(*values))

    def finish(self, prepared: dict[str, Any], call: dict[str, list[float]]) -> None:
        """Check the outputs, copy them into the arena and wait for that. Raises WrongOutput."""
        for tensor in tensors_in(prepared["result"]):
            if isinstance(tensor, torch.Tensor) and tensor.device.type != DeviceBytes.device:
                raise WrongOutput(f"expected a tensor on the GPU, got one on {tensor.device}")
        super().finish(prepared, call)
        self._clock.settle()

    def replays_ns(self, prepared: dict[str, Any]) -> list[int]:
        """Return device times in ns of replays from a graph. Raises what torch raises if that is impossible."""
        return insight.replays_ns(insight.torch_graph(lambda: self._function(*prepared["values"])), self._clock)

    def repeat(self, prepared: dict[str, Any], count: int) -> None:
        """Call the function and nothing else, for a profiler."""
        insight.repeat(lambda: self._function(*prepared["values"]), count, self._clock)

    def kernels(self, prepared: dict[str, Any]) -> list[tuple[str, int, float]]:
        """Return what a call launches (see `insight.kernels`)."""
        return insight.kernels(lambda: self._function(*prepared["values"]))

    def floor_ns(self) -> list[int]:
        """Return device times in ns of the smallest possible launch."""
        return self._clock.floor_ns()

    def release(self) -> int:
        """Give back the memory that torch keeps for later calls. Return the most bytes that it held so far."""
        held_bytes = torch.cuda.max_memory_reserved()
        torch.cuda.empty_cache()
        return held_bytes
