"""Stand in for the target's GPU while a kernel's host code runs on a machine without it.

Host code asks for the number of multiprocessors, the compute capability and the device of its tensors, and makes
tensors on "cuda". This module answers with the properties of the target. Triton's interpreter uses it for kernels of a
GPU target, and so does the static build (`runners.backends.triton_record`), which loads this file by its path. Needs
only torch and triton.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from operator import attrgetter
from types import SimpleNamespace
from typing import Any, ClassVar

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._device import _device_constructors
from torch.utils.weak import WeakIdKeyDictionary
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
    """Tell Triton that its device is this CPU. Without a driver, asking for the device raises "0 active drivers"."""
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
    answers: dict[str, Any] = {
        "is_available": True,
        "current_device": 0,
        "device_count": 1,
        "get_device_properties": properties,
        "get_device_capability": (properties.major, properties.minor),
        "get_device_name": properties.name,
        "get_arch_list": [f"sm_{properties.major}{properties.minor}"],
        "synchronize": None,
        "set_device": None,
        "current_stream": OnlyStream(),
        "is_current_stream_capturing": False,
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, partial(_answer, answer))
    for name in ("device", "device_of"):
        setattr(torch.cuda, name, Switched)
    # Its tracer asks the device for random numbers, and kernels that it writes are not the candidate's.
    setattr(torch, "compile", uncompiled)  # noqa: B010 - not its type, on purpose


def _answer(answer: Any, *_: Any, **__: Any) -> Any:
    return answer


class OnlyStream:
    """Stand for the one stream that there is."""

    cuda_stream = 0

    def synchronize(self) -> None:
        return

    def __getattr__(self, name: str) -> Any:
        raise NotImplementedError(f"`{name}` of a stream needs the device, which is not on this machine")


class Switched(nullcontext[None]):
    """Switch to the one device that there is."""

    def __init__(self, device: Any = None) -> None:
        super().__init__()


def uncompiled(function: Any = None, **_: Any) -> Any:
    """Stand for torch.compile, as a call or as a decorator with or without arguments, and compile nothing."""
    return (lambda inner: inner) if function is None else function


class OnTheCpu(TorchFunctionMode):
    """Keep tensors that are meant for the absent device on the CPU, and remember which ones are not on it.

    A tensor is on the host if it was made without naming a device (unless `makes_on_device`), was copied to the host,
    or was computed from host tensors only. All other tensors report that they are on the device.
    """

    on_host: ClassVar[WeakIdKeyDictionary] = WeakIdKeyDictionary()

    def __init__(self, *, makes_on_device: bool) -> None:
        super().__init__()
        self._makes_on_device = makes_on_device

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Do what was asked for, on the CPU."""
        named = kwargs or {}
        if func in _SAID:
            return _SAID[func][is_on_host(args[0])]
        if func in _NAMES_DEVICES:
            return func(*args, **named)
        # A default of the candidate's, as in `with torch.device("cuda")`, would be asked for below this mode.
        if (
            named.get("device") is None
            and torch.get_default_device().type == ABSENT.type
            and func in _device_constructors()
        ):
            named = {**named, "device": ABSENT}
        wanted = _wanted(func, args, named)
        found = args[0] if func is torch.Tensor.cuda else func(*_here_all(func, args), **_named_here(named))
        if func in _DATA_SET:
            self._mark(args[0], is_on_host(args[1]))
            return found
        inputs = [value for value in pytree.tree_leaves((args, named)) if isinstance(value, torch.Tensor)]
        made = [value for value in pytree.tree_leaves(found) if isinstance(value, torch.Tensor)]
        if wanted is None:
            host = all(map(is_on_host, inputs)) if inputs else not self._makes_on_device
        else:
            host = wanted.type != ABSENT.type and not self._makes_on_device
            # A tensor that moves is another one, though both lie in this memory.
            if any(one is other and is_on_host(other) != host for one in made for other in inputs):
                found, made = (copy := made[0].clone()), [copy]
        for tensor in made:
            if all(tensor is not other for other in inputs):
                self._mark(tensor, host)
        return found

    def _mark(self, tensor: torch.Tensor, host: bool) -> None:
        if host:
            self.on_host[tensor] = True
        elif tensor in self.on_host:
            del self.on_host[tensor]


def is_on_host(value: Any) -> bool:
    """Return whether the tensor would not be on the absent device."""
    return isinstance(value, torch.Tensor) and value in OnTheCpu.on_host


def _wanted(func: Any, args: Sequence[Any], named: Mapping[str, Any]) -> torch.device | None:
    """Return the device that a call names, None if it names none."""
    if func is torch.Tensor.cuda:
        return ABSENT
    if func is torch.Tensor.cpu:
        return PRESENT
    value = named.get("device", args[1] if func in _MOVES and len(args) > 1 else None)
    if isinstance(value, torch.Tensor):
        return PRESENT if is_on_host(value) else ABSENT
    if _is_number(value):
        return ABSENT
    return torch.device(value) if isinstance(value, str | torch.device) else None


# Answers for a tensor on the device and for one on the host, by the property or method that asks.
_SAID: dict[Any, tuple[Any, Any]] = {
    attrgetter("is_cuda.__get__")(torch.Tensor): (True, False),
    attrgetter("is_cpu.__get__")(torch.Tensor): (False, True),
    attrgetter("device.__get__")(torch.Tensor): (ABSENT, PRESENT),
    torch.Tensor.get_device: (ABSENT.index, -1),
}
# What makes or reads the name of a device: no tensor is made by it.
_NAMES_DEVICES = (torch.device, torch._C._nn._parse_to)
# What moves a tensor to where its second argument is, or to the device that it names.
_MOVES = (torch.Tensor.to, torch.Tensor.type_as)
_DATA_SET = (attrgetter("data.__set__")(torch.Tensor),)


def on_the_cpu(function: Callable[..., Any], *, makes_on_device: bool = False) -> Callable[..., Any]:
    """Return the function with `OnTheCpu` around each of its calls."""
    return partial(_within, function, makes_on_device)


def _within(function: Callable[..., Any], makes_on_device: bool, *args: Any, **kwargs: Any) -> Any:
    with OnTheCpu(makes_on_device=makes_on_device):
        found = function(*args, **kwargs)
    if any(map(is_on_host, pytree.tree_leaves(found))):
        raise ValueError("expected a tensor on the GPU, got one on cpu")
    return found


def _is_number(value: Any) -> bool:
    """Return whether the value can be a device's number, which True and False cannot."""
    return isinstance(value, int) and not isinstance(value, bool)


def _here_all(func: Any, args: Sequence[Any]) -> list[Any]:
    """Return positional arguments with the CPU in place of the absent device."""
    return [_here(value, is_device=func is torch.Tensor.to and place == 1) for place, value in enumerate(args)]


def _named_here(named: Mapping[str, Any]) -> dict[str, Any]:
    """Return named arguments with the CPU in place of the absent device. Memory is not pinned without one."""
    return {name: _here(value, is_device=name == "device") for name, value in named.items() if name != "pin_memory"}


def _here(value: Any, *, is_device: bool = False) -> Any:
    """Return the CPU in place of the absent device; any other value as it is. A device may be given as its number."""
    if isinstance(value, torch.device):
        return PRESENT if value.type == ABSENT.type else value
    if is_device and _is_number(value):
        return PRESENT
    return PRESENT if isinstance(value, str) and value.split(":")[0] == ABSENT.type else value
