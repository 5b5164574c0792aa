"""Answer for a GPU that is absent while a kernel's host code runs on the CPU.

Host code asks how many multiprocessors the device has, which capability it is of and whether its tensors are on it, and
makes tensors on "cuda". Here it is told the facts of the target that the kernel is written for. Used where Triton's
interpreter runs a kernel of a GPU target, and by the static build (`runners.backends.triton_record`), which loads this
file by its path. Needs torch and triton alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

ABSENT, PRESENT = torch.device("cuda", 0), torch.device("cpu")


class AbsentDriver:
    """Stand in for Triton's driver: it names a target, its tensors' device and its properties, and launches nothing."""

    def __init__(self, target: GPUTarget, device: torch.device, properties: Mapping[str, int]) -> None:
        self._target, self._device = target, device
        self.utils = SimpleNamespace(get_device_properties=lambda _: properties)

    def get_current_target(self) -> GPUTarget:
        return self._target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int = 0) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        return

    def get_active_torch_device(self) -> torch.device:
        return self._device

    def get_device_interface(self) -> Any:
        return torch.cuda if self._device.type == ABSENT.type else torch.cpu


def name_cpu(processors: int) -> None:
    """Let Triton answer that its device is this CPU, which without a driver ends in "0 active drivers"."""
    driver.set_active(
        AbsentDriver(GPUTarget("cpu", 0, 1), PRESENT, {"multiprocessor_count": processors, "warpSize": 1})
    )


def pretend(target: Sequence[Any], device: Mapping[str, Any]) -> None:
    """Let torch and Triton answer questions about the device with its properties, without asking a driver.

    `target` is Triton's name for it: backend, architecture and threads of a warp. `device` is what
    `torch.cuda.get_device_properties` returns.
    """
    told = {
        "max_shared_mem": device["shared_memory_per_block_optin"],
        "max_num_regs": device["regs_per_multiprocessor"],
        "multiprocessor_count": device["multi_processor_count"],
        "warpSize": device["warp_size"],
    }
    driver.set_active(AbsentDriver(GPUTarget(*target), torch.device(ABSENT.type), told))
    properties = SimpleNamespace(**device)
    answers: dict[str, Callable[..., Any]] = {
        "is_available": lambda: True,
        "current_device": lambda: 0,
        "device_count": lambda: 1,
        "get_device_properties": lambda *_: properties,
        "get_device_capability": lambda *_: (properties.major, properties.minor),
        "get_device_name": lambda *_: properties.name,
        "get_arch_list": lambda: [f"sm_{properties.major}{properties.minor}"],
        "synchronize": lambda *_: None,
        "current_stream": lambda *_: SimpleNamespace(cuda_stream=0),
        "device": lambda *_: nullcontext(),
        "device_of": lambda *_: nullcontext(),
        "is_current_stream_capturing": lambda: False,
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, answer)


class OnTheCpu(TorchFunctionMode):
    """Keep tensors that are meant for the absent device on the CPU, and say that all of them are on the device."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Do what was asked for, on the CPU."""
        if func in _SAID:
            return _SAID[func]
        if func is torch.Tensor.cuda:
            return args[0]
        return func(*map(_here, args), **{name: _here(value) for name, value in (kwargs or {}).items()})


# What is said of every tensor, by the property or method that asks.
_SAID: dict[Any, Any] = {
    attrgetter("is_cuda.__get__")(torch.Tensor): True,
    attrgetter("is_cpu.__get__")(torch.Tensor): False,
    attrgetter("device.__get__")(torch.Tensor): ABSENT,
    torch.Tensor.get_device: ABSENT.index,
}


def on_the_cpu(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with `OnTheCpu` around each of its calls."""
    return partial(_within, function)


def _within(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    with OnTheCpu():
        return function(*args, **kwargs)


def _here(value: Any) -> Any:
    """Return the CPU in place of the absent device; any other value as it is."""
    if isinstance(value, torch.device):
        return PRESENT if value.type == ABSENT.type else value
    return PRESENT if isinstance(value, str) and value.split(":")[0] == ABSENT.type else value
