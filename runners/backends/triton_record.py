"""Compile a Triton candidate for a device that is absent: `triton_record.py SPEC OUT`, inside the sandbox.

The candidate's entry point runs on fake tensors (shapes and types, no memory), and launching a kernel compiles it for
the target instead. The record is written to OUT as JSON: for each compiled variant its name, signature and assembly,
and the texts of extensions that `load_inline` or `load` would compile (see `extensions`).

The record misses kernels that are chosen by the content of a tensor, and code behind values that only a device has. A
model whose host code needs either ends early and is no failure, unless the compiler refused a kernel: its inputs, too,
come from code that was not written for fake tensors. Pointers are assumed to be aligned to 16 bytes, as torch
allocates. Needs the standard library, torch and triton only.
"""

from __future__ import annotations

import ctypes
import gc
import importlib.util
import inspect
import json
import math
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
import torch.utils.cpp_extension as cpp_extension
import triton
from torch._C._autograd import DeviceType
from torch._subclasses import fake_tensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from triton.compiler import CompiledKernel
from triton.errors import TritonError
from triton.runtime.autotuner import Autotuner
from triton.runtime.errors import OutOfResources
from triton.runtime.jit import JITFunction, MockTensor

# Each variant is a compilation, and an autotuner may list hundreds of configurations.
MOST_VARIANTS, MOST_CONFIGS = 64, 4
ASSEMBLIES = ("amdgcn", "ptx")
MADE_OF_VALUES = (torch.tensor, torch.as_tensor)
DEVICE = torch.device("cuda", 0)
GUARDS = "_ZN3c104impl26device_guard_impl_registryE"  # c10::impl::device_guard_impl_registry
# As `PythonBackend` names it.
CANDIDATE_FILE = "kernel.py"


class OnDevice(TorchFunctionMode):
    """Take "cuda" for device 0, and make tensors from given values without a driver.

    Torch would ask the driver which device is meant (`ask_no_driver` answers with one of another kind), and copies
    values to the device itself, past the fake tensors.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Do what was asked for, on the device 0."""
        named = {name: numbered(value) for name, value in (kwargs or {}).items()}
        if func is torch.Tensor.cuda:
            return args[0].to(DEVICE)
        if func in MADE_OF_VALUES and named.get("device") == DEVICE:
            return placed(func(*args, **{**named, "device": "cpu"}))
        return func(*map(numbered, args), **named)


def numbered(value: Any) -> Any:
    """Return the device 0 for a device without a number; any other value as it is."""
    if isinstance(value, str | torch.device) and str(value) == DEVICE.type:
        return DEVICE
    return value


class Recorder:
    """Compile and record every launch instead of running it.

    `most_shared` are the bytes of shared memory that a program may have on the device.
    """

    def __init__(self, most_shared: int) -> None:
        self._most_shared = most_shared
        self.variants: dict[str, dict[str, Any]] = {}
        self.extensions: list[dict[str, Any]] = []
        self._compile = JITFunction.run

    def launch(self, function: JITFunction, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        """Compile a launch for the target; the same variant is recorded once.

        Raises OutOfResources, as Triton does at the launch, if the kernel needs more shared memory than there is.
        """
        mocked = [mock(arg) for arg in args]
        kernel = self._compile(function, *mocked, grid=grid, warmup=True, **{k: mock(v) for k, v in kwargs.items()})
        kernel = kernel.result() if hasattr(kernel, "result") else kernel
        if kernel is not None:
            self._record(kernel, kwargs, programs_of(function, args, grid, kwargs))
            # A candidate that only compiles may ask how much the kernel needs.
            if not warmup and kernel.metadata.shared > self._most_shared:
                raise OutOfResources(kernel.metadata.shared, self._most_shared, "shared memory")
        return kernel

    def _record(self, kernel: Any, kwargs: dict[str, Any], programs: int) -> None:
        # The hash names a variant, so that repeated launches are described once, with the programs of the largest.
        if kernel.hash not in self.variants and len(self.variants) < MOST_VARIANTS:
            self.variants[kernel.hash] = {**described(kernel, kwargs), "programs": programs}
        elif variant := self.variants.get(kernel.hash):
            variant["programs"] = max(variant["programs"], programs)

    def tune(self, tuner: Autotuner, *args: Any, **kwargs: Any) -> Any:
        """Compile the first few configurations, since only the device can say which is fastest.

        Configurations that need more shared memory than there is are skipped, as Triton's tuner does. If all that were
        compiled need more, raises OutOfResources, or NotHereError where the tuner may use others: it has more of them,
        or a function of the candidate selects them.
        """
        tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
        result, refused = None, []
        for config in tuner.configs[:MOST_CONFIGS]:
            try:
                result = tuner.fn.run(*args, **kwargs, **config.all_kwargs())
            except OutOfResources as failure:
                refused.append(failure)
        if refused and len(refused) == min(len(tuner.configs), MOST_CONFIGS):
            if len(tuner.configs) > MOST_CONFIGS or tuner.early_config_prune is not None:
                raise NotHereError("the tuner's other configurations are compiled on the device")
            raise refused[-1]
        return result

    def noting(self, compiles: Callable[..., Any]) -> Callable[..., Any]:
        """Return what stands for torch's `load_inline` or `load`: it notes the CUDA sources and compiles nothing.

        They are compiled when this process has ended.
        """
        signature = inspect.signature(compiles)

        def note(*args: Any, **kwargs: Any) -> NotRun:
            told = signature.bind(*args, **kwargs).arguments
            files = [Path(source) for source in listed(told.get("sources") or ())]
            texts = [file.read_text() for file in files if file.suffix == ".cu"]
            texts += listed(told.get("cuda_sources") or ())
            extra = listed(told.get("extra_cuda_cflags") or ())
            flags = [*cpp_extension.COMMON_NVCC_FLAGS, *extra, *architectures(extra)]
            self.extensions.append({"name": told["name"], "texts": texts, "flags": flags})
            return NotRun()

        return note


class NotHereError(RuntimeError):
    """Report that the host code called a function that only runs on the device, which is not the candidate's fault."""


class NotRun:
    """Replace the module of an extension, whose functions cannot run without the device."""

    def __getattr__(self, name: str) -> Any:
        """Return a function that raises NotHereError when it is called."""
        if name.startswith("__"):
            raise AttributeError(name)

        def absent(*_: Any, **__: Any) -> None:
            raise NotHereError(f"{name} of an extension runs on the device only")

        return absent


def architectures(flags: list[str]) -> list[str]:
    """Return the flags by which torch would name the NVIDIA architectures, none where a candidate's flags do."""
    if torch.cuda.get_device_properties(0).gcnArchName:
        return []
    return list(cpp_extension._get_cuda_arch_flags(flags))


def listed(value: Any) -> list[str]:
    """Return the texts of one or several."""
    return [value] if isinstance(value, str) else [str(one) for one in value]


def programs_of(function: JITFunction, args: Sequence[Any], grid: Any, kwargs: Mapping[str, Any]) -> int:
    """Return how many programs a launch has, 0 where the candidate's grid cannot be computed without a device."""
    try:
        defaults = {one.name: one.default for one in function.params if one.has_default}
        told = {**defaults, **kwargs, **dict(zip(function.arg_names, args, strict=False))}
        return math.prod(int(extent) for extent in (grid(told) if callable(grid) else grid))
    except Exception:
        return 0


def mock(value: Any) -> Any:
    """Replace a tensor by its type; return any other value as it is."""
    return MockTensor(value.dtype, list(value.shape)) if isinstance(value, torch.Tensor) else value


def described(kernel: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the record of one compiled variant."""
    metadata = kernel.metadata
    plain = {name: value for name, value in kwargs.items() if isinstance(value, int | float | bool | str)}
    return {
        "name": metadata.name,
        "constants": plain,
        "num_warps": metadata.num_warps,
        "num_stages": getattr(metadata, "num_stages", None),
        "shared_bytes": metadata.shared,
        "assembly": {kind: kernel.asm[kind] for kind in ASSEMBLIES if kind in kernel.asm},
        **disassembled(kernel.asm.get("cubin")),
    }


def disassembled(cubin: bytes | None) -> dict[str, str]:
    """Return the registers and machine code of an NVIDIA binary, by the tool in Triton's own wheel."""
    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    if cubin is None or not tool.exists():
        return {}
    with tempfile.NamedTemporaryFile(suffix=".cubin") as handle:
        handle.write(cubin)
        handle.flush()
        return {
            name: subprocess.run([tool, option, handle.name], capture_output=True, text=True, check=False).stdout
            for name, option in (("usage", "-res-usage"), ("sass", "-sass"))
        }


def ask_no_driver() -> None:
    """Make torch switch between "cuda" devices without asking the driver, as it does for "meta" devices.

    Indexing, copying and making a tensor switch to its device first, even if it is a fake one, and fail without a
    driver. Torch looks the switch up in this table of c10, by the type of the device.
    """
    c10 = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    guards = (ctypes.c_void_p * len(DeviceType.__members__)).in_dll(c10, GUARDS)
    guards[DeviceType.CUDA.value] = guards[DeviceType.Meta.value]


def apply(module: Any, change: Any, recurse: bool = True) -> Any:
    """Change the tensors of a module, as `torch.nn.Module._apply` does, which cannot swap fake ones."""
    for child in module.children() if recurse else ():
        child._apply(change)
    for name, value in module._parameters.items():
        if value is not None and (changed := change(value)) is not value:
            module._parameters[name] = torch.nn.Parameter(changed, requires_grad=False)
    for name, value in module._buffers.items():
        if value is not None:
            module._buffers[name] = change(value)
    return module


def pretend(spec: dict[str, Any]) -> Recorder:
    """Put the absent device and the recorder in place."""
    ask_no_driver()
    setattr(torch.nn.Module, "_apply", apply)  # noqa: B010 - not its type, on purpose
    skip_hash_of_installation()
    recorder = Recorder(spec["device"]["shared_memory_per_block_optin"])
    # A candidate that asks whether an address is aligned is told that it is.
    warnings.filterwarnings("ignore", message="Accessing the data pointer of FakeTensor")
    # This torch may be one for CPUs, and its layers tell the user so.
    warnings.filterwarnings("ignore", module=r"torch\.")
    JITFunction.run = lambda self, *args, **kwargs: recorder.launch(self, *args, **kwargs)
    Autotuner.run = lambda self, *args, **kwargs: recorder.tune(self, *args, **kwargs)
    # A candidate may keep what a launch returns and launch that the next time, which is faster.
    setattr(CompiledKernel, "run", launch_again)  # noqa: B010 - not its type, on purpose
    setattr(CompiledKernel, "__getitem__", lambda *_: launch_again)  # noqa: B010 - likewise
    for name in ("load_inline", "load"):
        setattr(cpp_extension, name, recorder.noting(getattr(cpp_extension, name)))
    # Fake tensors on "cuda" initialise the device, which is not there.
    setattr(fake_tensor, "init_gpu_context", lambda *_: None)  # noqa: B010 - not its type, on purpose
    load(spec["pretended_device"], "pretended_device").pretend(spec["target"], spec["device"])
    return recorder


def skip_hash_of_installation() -> None:
    """Replace the hash of Triton's installation, half a second of reading, in the keys of its cache.

    The cache is this process's own and goes with it, so no other version will ever read it.
    """
    # Modules that use the function have imported it by its name.
    for name, module in list(sys.modules.items()):
        if name.startswith("triton.") and hasattr(module, "triton_key"):
            vars(module)["triton_key"] = lambda: ""


def call(module: Any, arguments: tuple[list[Any], list[Any]]) -> None:
    """Call the entry point once on fake tensors."""
    init, values = arguments
    with fake_tensor.FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad(), OnDevice():
        entry = entry_of(module, on_device(init))
        entry(*on_device(values))


def launch_again(*_: Any, **__: Any) -> None:
    """Replace the launch of a kernel that was recorded when it was compiled."""


def made(sample: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    """Return the arguments of the constructor and of a call, with a layout in the place of each tensor."""
    if "maker" not in sample:
        return [], [SimpleNamespace(**a) if "shape" in a else a["scalar"] for a in sample["arguments"]]
    try:
        with fake_tensor.FakeTensorMode():
            return made_by(sample["maker"])
    # Some inputs depend on the content of others, such as a table of pages in random order.
    except Exception:
        return made_by(sample["maker"])


def made_by(text: str) -> tuple[list[Any], list[Any]]:
    """Run a problem's own functions that make its arguments, and keep their layouts."""
    maker = ModuleType("problem")
    exec(compile(text, "problem.py", "exec"), maker.__dict__)  # noqa: S102 - in the sandbox
    both = (maker.get_init_inputs(), maker.get_inputs())
    init, inputs = ([pytree.tree_map(layout_of, value) for value in values] for values in both)
    return init, inputs


def layout_of(value: Any) -> Any:
    """Return the layout of a tensor; any other value as it is."""
    if not isinstance(value, torch.Tensor):
        return value
    dtype = str(value.dtype).removeprefix("torch.")
    return SimpleNamespace(shape=tuple(value.shape), strides=tuple(value.stride()), dtype=dtype)


def on_device(values: list[Any]) -> list[Any]:
    """Return the values with a fake tensor on the device in the place of each layout."""
    return [pytree.tree_map(placed, value) for value in values]


def placed(value: Any) -> Any:
    """Return a fake tensor on the device for a layout or a tensor elsewhere; any other value as it is."""
    layout = layout_of(value)
    if not isinstance(layout, SimpleNamespace):
        return value
    return torch.empty_strided(layout.shape, layout.strides, dtype=getattr(torch, layout.dtype), device=DEVICE)


def entry_of(module: Any, init: list[Any]) -> Any:
    """Return the callable of a candidate: its function, or its model with weights on the device."""
    if (function := getattr(module, "custom_kernel", None)) is not None:
        return function
    cls = getattr(module, "ModelNew", None) or module.Model
    with DEVICE:
        model = cls(*init)
    return model.to(DEVICE) if isinstance(model, torch.nn.Module) else model


def is_refusal(failure: BaseException) -> bool:
    """Return whether the compiler refused a kernel."""
    return isinstance(failure, TritonError) or "PassManager::run failed" in str(failure)


def is_fault(failure: BaseException, spec: dict[str, Any]) -> bool:
    """Return whether an exception is the candidate's fault: what the compiler refuses always is.

    Any other exception is one for a Triton kernel on a problem that describes its calls by layouts, where only the
    candidate's host code runs. Other modules may need a device for what they compute, and other problems make their
    inputs with code that expects one.
    """
    is_strict = spec["strict"] and not any("maker" in sample for sample in spec["calls"])
    return is_refusal(failure) or (is_strict and not isinstance(failure, NotHereError))


def load(path: str, name: str = "candidate_kernel") -> ModuleType:
    """Import a file, the candidate's or one of ours, as a module of its own."""
    found = importlib.util.spec_from_file_location(name, path)
    if found is None or found.loader is None:
        raise ImportError(f"{path} is no Python module")
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module
    found.loader.exec_module(module)
    return module


def main(spec_path: str, out: str) -> None:
    """Record every call of the spec. An exception is recorded with what was compiled before it."""
    spec = json.loads(Path(spec_path).read_text())
    recorder, error, unfinished = pretend(spec), "", ""
    samples: list[dict[str, Any]] = spec["calls"]
    # Stands if this process is stopped while it makes the inputs, which is not the candidate's fault.
    write(out, unfinished="the problem's inputs were not made in time")
    try:
        # Before the candidate is imported, since a task's own modules come with its inputs.
        arguments = [made(sample) for sample in samples]
        Path(out).unlink()
        module = load(spec["module"])
        for those in arguments:
            try:
                call(module, those)
            except Exception as failure:
                if is_fault(failure, spec):
                    raise
                # Another shape may take another way.
                unfinished = unfinished or described_failure(failure)
    # A candidate may raise SystemExit or KeyboardInterrupt; the record must be written nevertheless.
    except BaseException as failure:
        if is_fault(failure, spec):
            error = told(failure)
        else:
            unfinished = described_failure(failure)
    write(out, list(recorder.variants.values()), error, unfinished, recorder.extensions)


def write(
    out: str,
    variants: Sequence[dict[str, Any]] = (),
    error: str = "",
    unfinished: str = "",
    extensions: Sequence[dict[str, Any]] = (),
) -> None:
    """Write the record."""
    answer = {"variants": list(variants), "error": error, "unfinished": unfinished, "extensions": list(extensions)}
    Path(out).write_text(json.dumps({**answer, "triton": triton.__version__}))


def told(failure: BaseException) -> str:
    """Return the frames of the candidate's file and the error, or the whole traceback if none is of that file.

    The frames of torch, Triton and this module would come first, and nobody would read as far as the error.
    """
    own = frames_of_the_candidate(failure)
    for frame in own:
        frame.filename = CANDIDATE_FILE
    if not own:
        return "".join(traceback.format_exception(failure))[-8000:]
    lines = [*traceback.StackSummary.from_list(own).format(), *traceback.format_exception_only(failure)]
    return "".join(lines)[-8000:]


def frames_of_the_candidate(failure: BaseException) -> list[traceback.FrameSummary]:
    """Return the frames of a traceback that are of the candidate's file, the outermost first."""
    frames = traceback.extract_tb(failure.__traceback__)
    return [frame for frame in frames if Path(frame.filename).name == CANDIDATE_FILE]


def described_failure(failure: BaseException) -> str:
    """Return what was raised and the line of the candidate's file at which it was, if there is one."""
    own = frames_of_the_candidate(failure)
    where = f" (line {own[-1].lineno})" if own else ""
    kind = "" if isinstance(failure, NotHereError) else f"{type(failure).__name__}: "
    return f"{kind}{str(failure)[:1000]}{where}"


if __name__ == "__main__":
    main(*sys.argv[1:3])
    gc.freeze()  # an interpreter that ends collects garbage several times over, here in vain
