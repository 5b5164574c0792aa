"""Wrap a candidate of one of our own problems: from KernelBot's tuple to our arguments and back."""

from __future__ import annotations

from collections.abc import Sequence

from runners.problems.base import Argument, Role
from runners.problems.expressions import names_in

# 16-bit floats travel as integers of their size, as in our own C signature.
_C_TYPES = {
    "float32": "float", "float64": "double", "int64": "int64_t", "int32": "int32_t", "int16": "int16_t",
    "int8": "int8_t", "uint8": "uint8_t", "bool": "uint8_t", "float16": "uint16_t", "bfloat16": "uint16_t",
}  # fmt: skip
_ADAPTER = '''
_on_arguments = custom_kernel


def custom_kernel(data):
    """KernelBot's entry point: inputs one by one, without the tensor that it offers for the output."""
    return _on_arguments(*data[:{count}])
'''
_MODULE = '''"""A HIP kernel for KernelBot: the source as it was written, a binding, and the entry point."""
import torch
from torch.utils.cpp_extension import load_inline

KERNEL = {kernel!r}

BINDING = {binding!r}

module = load_inline(
    name={name!r},
    cpp_sources=[BINDING],
    cuda_sources=[KERNEL],
    functions=["call"],
    extra_cuda_cflags={flags!r},
    with_cuda=True,
)


def ceil_div(a, b):
    return -(-a // b)


def rows(tensor):
    """Last dimension contiguous; no copy where it already is."""
    return tensor.contiguous()


def columns(tensor):
    """First dimension contiguous; no copy where it already is."""
    axes = tuple(reversed(range(tensor.dim())))
    return tensor.permute(axes).contiguous().permute(axes)


def custom_kernel(data):
    {unpack} = data[:{count}]
{body}
    return {result}
'''


class SignatureError(ValueError):
    """Report that a signature can't be called through KernelBot's tuple. The message says why."""


def python_adapter(arguments: Sequence[Argument]) -> str:
    """Return code that turns our `custom_kernel(*inputs)` into KernelBot's `custom_kernel(data)`; it follows the
    candidate."""
    return _ADAPTER.format(count=len(_handed_over(arguments)))


def hip_module(symbol: str, arguments: Sequence[Argument], kernel: str, flags: list[str]) -> str:
    """Return a module that compiles `kernel` with load_inline and calls its C function. Raises SignatureError."""
    inputs = _handed_over(arguments)
    return _MODULE.format(
        kernel=kernel,
        binding=_binding(symbol, arguments),
        name=f"kernel_{symbol}",
        flags=flags,
        unpack="".join(f"{argument.name}, " for argument in inputs).strip(),
        count=len(inputs),
        body="\n".join(f"    {line}" for line in _body(arguments)),
        result=", ".join(a.name for a in arguments if a.role is Role.OUTPUT),
    )


def _handed_over(arguments: Sequence[Argument]) -> list[Argument]:
    return [argument for argument in arguments if argument.role in (Role.INPUT, Role.SCALAR)]


def _body(arguments: Sequence[Argument]) -> list[str]:
    """Return the body: sizes from the inputs' shapes, inputs in their declared layout, outputs allocated, the call."""
    return [
        *_sizes(arguments),
        *(f"{a.name} = {_laid_out(a)}({a.name})" for a in arguments if a.role is Role.INPUT),
        *(f"{a.name} = {_empty(a, arguments)}" for a in arguments if a.role is Role.OUTPUT),
        f"module.call({', '.join(argument.name for argument in arguments)})",
    ]


def _sizes(arguments: Sequence[Argument]) -> list[str]:
    inputs = [argument for argument in arguments if argument.role is Role.INPUT]
    places = {
        text: f"{argument.name}.shape[{axis}]"
        for argument in reversed(inputs)
        for axis, text in reversed(list(enumerate(argument.shape)))
        if text.isidentifier()
    }
    needed = {a.name for a in arguments if a.role is Role.SIZE}
    needed |= {name for a in arguments if a.role is Role.OUTPUT for text in a.shape for name in names_in(text)}
    if unknown := sorted(needed - set(places)):
        raise SignatureError(f"size {unknown[0]} is not a dimension of an input, so a submission can't know it")
    return [f"{name} = {places[name]}" for name in sorted(needed)]


def _laid_out(argument: Argument) -> str:
    return "columns" if argument.order == "column" else "rows"


def _empty(argument: Argument, arguments: Sequence[Argument]) -> str:
    device = next(a.name for a in arguments if a.role is Role.INPUT)
    shape = "".join(f"({text}), " for text in argument.shape)
    empty = f"torch.empty(({shape}), dtype=torch.{argument.dtype}, device={device}.device)"
    return f"columns({empty})" if argument.order == "column" else empty


def _binding(symbol: str, arguments: Sequence[Argument]) -> str:
    """Return C++ that torch compiles: the kernel's declaration, and `call` from tensors to pointers."""
    declared = ", ".join(f"{_c_type(a)} {a.name}" for a in arguments)
    taken = ", ".join(f"{_binding_type(a)} {a.name}" for a in arguments)
    passed = ", ".join(_passed(a) for a in arguments)
    return (
        "#include <torch/extension.h>\n#include <cstdint>\n"
        f'extern "C" void {symbol}({declared}, void*);\n'
        f"void call({taken}) {{ {symbol}({passed}, nullptr); }}\n"
    )


def _element(argument: Argument) -> str:
    return "uint8_t" if argument.dtype.startswith("float8") else _C_TYPES[argument.dtype]


def _c_type(argument: Argument) -> str:
    if argument.role is Role.INPUT:
        return f"const {_element(argument)}*"
    return f"{_element(argument)}*" if argument.role is Role.OUTPUT else _element(argument)


def _binding_type(argument: Argument) -> str:
    if argument.role in (Role.INPUT, Role.OUTPUT):
        return "torch::Tensor"
    return "double" if argument.dtype.startswith("float") else "int64_t"


def _passed(argument: Argument) -> str:
    if argument.role in (Role.INPUT, Role.OUTPUT):
        return f"({_c_type(argument)}){argument.name}.data_ptr()"
    return f"({_element(argument)}){argument.name}"
