"""Call an exported kernel through torch: a custom operator, guarded, with the torch reference for everything else."""

from __future__ import annotations

import ctypes
import hashlib
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from .building import BuildError, load

# Memory that torch allocates is aligned to this much; vector loads of a kernel may rely on it.
ALIGNMENT = {"cpu": 64, "cuda": 256}
C_TYPES = {
    "int8": ctypes.c_int8, "int16": ctypes.c_int16, "int32": ctypes.c_int32, "int64": ctypes.c_int64,
    "uint8": ctypes.c_uint8, "bool": ctypes.c_bool, "float32": ctypes.c_float, "float64": ctypes.c_double,
}  # fmt: skip
SCHEMA_TYPES = {"bool": "bool", "float32": "float", "float64": "float"}
KERNEL = "kernel"


class Kernel:
    """Call a package's kernel where it was measured, and its torch reference elsewhere.

    `counts` says how often the kernel ran (`kernel`) and why the reference ran instead, by reason. `operator` is the
    custom operator, which has a fake implementation and refuses to be differentiated.
    """

    def __init__(
        self,
        declared: dict[str, Any],
        source: str,
        reference: Callable[..., Any],
        function: Callable[[], Callable[..., Any]] | None = None,
        ahead: Path | None = None,
    ) -> None:
        """Register the operator. Nothing is built or imported before the first covered call.

        `reference` takes inputs and scalars by name. `function` imports a kernel in Python or Triton; a compiled one
        is built from `source`, unless its library lies in the folder `ahead`.
        """
        self.declared, self.source, self.reference = declared, source, reference
        self.name: str = declared["name"]
        self._import, self._ahead = function, ahead
        self.counts: Counter[str] = Counter()
        self.parameters = [a for a in self.declared["arguments"] if a["role"] in ("input", "scalar")]
        self._cases = {_case_key(case): case for case in self.declared["cases"]}
        self._function: Callable[..., Any] | None = None
        self._broken = ""
        # The kernel computes what torch does under this autocast, or without any.
        self._autocast: str = declared.get("autocast", "")
        self._library, self.operator = self._register()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the reference returns for these inputs: one tensor, or a tuple of several.

        The reference itself computes wherever the kernel does not apply: another shape, dtype, device or layout, a
        gradient that is wanted, another autocast, tensor subclasses, or a machine that cannot build the kernel.
        """
        values = self.bound(args, kwargs)
        # While torch compiles, the operator is taken as it is; its implementation applies the guards at run time.
        if torch.compiler.is_compiling() and not _wants_gradient(values):
            return self.operator(*values)
        if reason := self.refused_above(values):
            return self.fall_back(reason, values)
        return self.operator(*values)

    def reason_against(self, *args: Any, **kwargs: Any) -> str:
        """Return why the kernel does not serve a call, or nothing if it does."""
        return self.refuses(self.bound(args, kwargs))

    def refuses(self, values: Sequence[Any]) -> str:
        """Return why the kernel does not serve values in the declared order, or nothing if it does.

        A kernel that was not needed yet is built here, so that a machine without compiler is known beforehand.
        """
        reason = self.refused_above(values) or self._broken or self._refused(values)
        return reason or (self._load() if self._function is None else "")

    def bound(self, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
        """Return inputs and scalars in the declared order. Raises TypeError."""
        names = [parameter["name"] for parameter in self.parameters]
        values = dict(zip(names, args, strict=False))
        if len(args) > len(names) or set(kwargs) - set(names) or set(kwargs) & set(values):
            raise TypeError(f"{self.name}({', '.join(names)}) got {len(args)} arguments and {sorted(kwargs)}")
        values |= kwargs
        if missing := [name for name in names if name not in values]:
            raise TypeError(f"{self.name}({', '.join(names)}) lacks {', '.join(missing)}")
        return [values[name] for name in names]

    def fall_back(self, reason: str, values: Sequence[Any]) -> Any:
        """Compute with the reference. The first time for each reason says so in a warning."""
        self.note(reason)
        return self._by_reference(values)

    def note(self, reason: str) -> None:
        """Count a call that the kernel did not serve."""
        if not self.counts[reason]:
            warnings.warn(f"{self.name}: torch computes instead of the kernel: {reason}", stacklevel=4)
        self.counts[reason] += 1

    def refused_above(self, values: Sequence[Any]) -> str:
        """Return why the operator itself must not be called: what only torch's own functions understand."""
        tensors = [value for value in values if isinstance(value, torch.Tensor)]
        if any(type(value) not in (torch.Tensor, torch.nn.Parameter) and not _is_fake(value) for value in tensors):
            return "a tensor subclass"
        if _wants_gradient(values):
            return "a gradient is wanted, and the kernel has no backward"
        # Asking for other kinds of device raises; the operator leaves those to torch anyway.
        kinds = {value.device.type for value in tensors} & set(ALIGNMENT)
        for cast in map(autocast_type, kinds):
            if cast != self._autocast:
                return f"autocast to {cast} is on" if cast else f"autocast to {self._autocast} is off"
        if torch._C._functorch.peek_interpreter_stack() is not None:
            return "a functorch transform"
        return ""

    def _refused(self, values: Sequence[Any]) -> str:
        """Return why the kernel does not serve these values, which the operator was given."""
        for parameter, value in zip(self.parameters, values, strict=True):
            if parameter["role"] == "input" and (reason := self._refused_tensor(parameter, value)):
                return reason
        case = self._cases.get(self._key(values))
        if case is None:
            return f"shapes that were not measured: {self._shown(values)}"
        if case["obstacle"]:
            return str(case["obstacle"])
        return self._refused_layout(case, values)

    def _refused_tensor(self, parameter: dict[str, Any], value: Any) -> str:
        name, device = parameter["name"], self.declared["device"]
        if not isinstance(value, torch.Tensor):
            return f"{name} is not a tensor"
        if value.device.type != device:
            return f"{name} is on {value.device.type}; the kernel is for {device}"
        if value.dtype != getattr(torch, parameter["dtype"]):
            return f"{name} is {str(value.dtype).removeprefix('torch.')}; the kernel takes {parameter['dtype']}"
        if value.layout is not torch.strided or value.is_neg() or value.is_conj():
            return f"{name} is not a plain strided tensor"
        return ""

    def _refused_layout(self, case: dict[str, Any], values: Sequence[Any]) -> str:
        devices = set()
        for parameter, value, layout in zip(self.parameters, values, case["layouts"], strict=True):
            if layout is None:
                continue
            name = parameter["name"]
            if not _same_strides(value, layout["strides"]):
                return f"{name} is not laid out as measured (strides {tuple(value.stride())})"
            if value.data_ptr() % ALIGNMENT[self.declared["device"]]:
                return f"{name} starts at an address that is not aligned"
            devices.add(value.device)
        return "inputs on several devices" if len(devices) > 1 else ""

    def _key(self, values: Sequence[Any]) -> Any:
        return tuple(tuple(v.shape) if isinstance(v, torch.Tensor) else v for v in values)

    def _shown(self, values: Sequence[Any]) -> str:
        pairs = zip(self.parameters, values, strict=True)
        return ", ".join(f"{p['name']} {list(v.shape) if isinstance(v, torch.Tensor) else v}" for p, v in pairs)

    def _run(self, *values: Any) -> Any:
        """Compute for the operator: the kernel if it serves the call, else the reference."""
        reason = self._broken or self._refused(values)
        if not reason and self._function is None:
            reason = self._load()
        if reason:
            return self.fall_back(reason, values)
        outputs = self._launched(self._cases[self._key(values)], values)
        self.counts[KERNEL] += 1
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def _load(self) -> str:
        """Build and load the kernel. Return why that is not possible here, which every later call will say too."""
        try:
            self._function = self._import() if self._import else load(self.source, self.declared, self._ahead)
        except (BuildError, ImportError) as error:
            self._broken = f"the kernel cannot be built or loaded here: {str(error).splitlines()[0]}"
        return self._broken

    def _launched(self, case: dict[str, Any], values: Sequence[Any]) -> list[torch.Tensor]:
        function = self._function or _not_loaded
        device = next(value.device for value in values if isinstance(value, torch.Tensor))
        if self._import:
            made = function(*values)
            return list(made) if isinstance(made, tuple | list) else [made]
        outputs = [_empty(layout, device) for layout in case["outputs"]]
        tensors = [value if isinstance(value, torch.Tensor) else None for value in values]
        arguments = [_argument(slot, tensors, outputs) for slot in case["slots"]]
        if device.type == "cpu":
            function(*arguments)
            return outputs
        # Kernels launch on the current device, which need not be that of the inputs.
        with torch.cuda.device(device):
            function(*arguments, ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
        return outputs

    def _fake(self, *values: Any) -> Any:
        """Return tensors without data in the layout of the outputs."""
        key = self._key(values)
        # Sizes that torch keeps symbolic have no value to look up; the reference then says what comes out.
        symbolic = any(type(extent) is not int for shape in key if isinstance(shape, tuple) for extent in shape)
        case = None if symbolic else self._cases.get(key)
        if case is None:
            return self._by_reference(values)
        device = next(value.device for value in values if isinstance(value, torch.Tensor))
        outputs = [_empty(layout, device) for layout in case["outputs"]]
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def _register(self) -> tuple[Any, Any]:
        """Define the operator in a namespace of its own: two versions of a package may be loaded beside each other."""
        digest = hashlib.sha256(self.source.encode()).hexdigest()[:8]
        namespace, number = f"{self.name}_{digest}", 1
        while hasattr(getattr(torch.ops, namespace), "run"):
            number += 1
            namespace = f"{self.name}_{digest}_{number}"
        library: Any = torch.library.Library(namespace, "FRAGMENT")  # type: ignore[no-untyped-call]
        library.define(f"run{self._schema()}")
        library.impl("run", self._run, "CompositeExplicitAutograd")
        name = f"{namespace}::run"
        torch.library.register_fake(name, self._fake, lib=library)
        torch.library.register_autograd(name, self._refuse_backward, lib=library)
        return library, getattr(torch.ops, namespace).run

    def _schema(self) -> str:
        given = [
            f"{'Tensor' if p['role'] == 'input' else SCHEMA_TYPES.get(p['dtype'], 'int')} {p['name']}"
            for p in self.parameters
        ]
        count = sum(argument["role"] == "output" for argument in self.declared["arguments"])
        return f"({', '.join(given)}) -> {'Tensor' if count == 1 else '(' + ', '.join(['Tensor'] * count) + ')'}"

    def _refuse_backward(self, ctx: Any, *gradients: Any) -> Any:
        raise NotImplementedError(
            f"the kernel {self.name} has no backward: call the package's function instead of the operator; it lets "
            "torch compute where a gradient is wanted"
        )

    def _by_reference(self, values: Sequence[Any]) -> Any:
        names = [parameter["name"] for parameter in self.parameters]
        return self.reference(**dict(zip(names, values, strict=True)))


def _is_fake(value: torch.Tensor) -> bool:
    """Return whether a tensor only stands for one, as while torch compiles a program."""
    return isinstance(value, torch._subclasses.fake_tensor.FakeTensor)


def _not_loaded(*arguments: Any) -> Any:
    raise RuntimeError("the kernel was called before it was loaded")


def autocast_type(device: str) -> str:
    """Return the type to which autocast converts on that kind of device, or nothing where it is off."""
    if not torch.is_autocast_enabled(device):
        return ""
    return str(torch.get_autocast_dtype(device)).removeprefix("torch.")


def _wants_gradient(values: Sequence[Any]) -> bool:
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    return torch.is_grad_enabled() and any(value.requires_grad for value in tensors)


def _case_key(case: dict[str, Any]) -> Any:
    return tuple(tuple(v["shape"]) if isinstance(v, dict) else v for v in case["values"])


def _same_strides(value: torch.Tensor, strides: Sequence[int]) -> bool:
    """Return whether a tensor lies in memory as declared; the stride of an extent of 1 says nothing."""
    return all(
        extent == 1 or mine == wanted
        for extent, mine, wanted in zip(value.shape, value.stride(), strides, strict=True)
    )


def _empty(layout: dict[str, Any], device: torch.device) -> torch.Tensor:
    return torch.empty_strided(
        layout["shape"], layout["strides"], dtype=getattr(torch, layout["dtype"]), device=device
    )


def _argument(slot: dict[str, Any], values: Sequence[Any], outputs: Sequence[torch.Tensor]) -> Any:
    if "input" in slot:
        return ctypes.c_void_p(values[slot["input"]].data_ptr())
    if "output" in slot:
        return ctypes.c_void_p(outputs[slot["output"]].data_ptr())
    return C_TYPES[slot["kind"]](slot["value"])
