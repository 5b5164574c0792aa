"""Detect candidates whose work is done by torch or vendor libraries instead of a kernel of their own.

The text gives advice only, and is easily evaded: by a decoy launch, or a name put together at run time. Kernel names
that a profiler saw are the second source (`written_by_vendor`). Neither decides correctness or speed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from runners.job import Flag, Language, Source
from runners.problems.base import Problem, TorchPolicy
from runners.problems.syntax import NOT_PYTHON, module_tree

# What a candidate is called by; code that none of these reaches does no work.
ENTRIES = ("custom_kernel", "ModelNew", "Model")
PYTHON = (Language.PYTHON, Language.TRITON)

_BUILDERS = {
    "jit", "autotune",  # triton, numba
    "load_inline", "load", "CUDAExtension", "_compile_kernel",  # torch
    "CDLL", "PyDLL", "cdll",  # a library that the candidate built
    "RawKernel", "RawModule", "ElementwiseKernel", "ReductionKernel",  # cupy
    "SourceModule", "Program", "compile_source", "kernel", "prim_func",  # pycuda, cuda.core, tilelang, cute
}  # fmt: skip
_BUILDING_PACKAGES = re.compile(r"\b(triton|numba|ctypes|cupy|pycuda|cuda|cpp_extension|tilelang|cutlass)\b")
_NATIVE_VENDOR = re.compile(
    r"#\s*include\s*[<\"](cublas|cudnn|cufft|cusparse|cutensor|rocblas|hipblas|miopen|mkl|cblas|oneapi|dnnl|ATen|torch)"
    r"|\b(cublas|cudnn|rocblas|hipblas|miopen|cblas_|mkl_)\w*\s*\("
    # A path is short: without a limit, every `dlopen(` would be searched to the end of the text.
    r"|dlopen\s*\([^)]{0,300}?(cublas|cudnn|rocblas|hipblas|miopen|mkl|torch)",
    re.IGNORECASE,
)
_NATIVE_KERNEL = re.compile(r"\b__global__\b")
# Kernels of ATen, cuBLAS, cuDNN, rocBLAS (Tensile), MIOpen, and those that torch.compile generates.
_VENDOR_NAMES = re.compile(
    r"at::native|at_cuda_detail|cublas|cudnn|nvjet|cutlass_\d+_|^(sm\d+|ampere|volta|turing|hopper)_|^Cijk_|"
    r"rocblas|hipblas|miopen|^triton_(poi|red|per|tem|mm)_|Memcpy|Memset",
    re.IGNORECASE,
)


def lacks_own_kernel(source: Source) -> bool:
    """Return whether the text shows no kernel of its own. A text that can't be parsed counts as having one."""
    if source.language in PYTHON:
        try:
            return not _python_reaches_kernel(module_tree(source.text))
        except NOT_PYTHON:
            return False
    vendor = _NATIVE_VENDOR.search(source.text) is not None
    device = source.language in (Language.CUDA, Language.HIP)
    return vendor and not (device and _NATIVE_KERNEL.search(source.text))


def written_by_vendor(kernel_names: Iterable[str]) -> bool:
    """Return whether all kernels that a profiler saw come from torch or a vendor's library; False if it saw none."""
    names = list(kernel_names)
    return bool(names) and all(_VENDOR_NAMES.search(name) for name in names)


def seen(problem: Problem, kernel_names: Iterable[str], known: list[str]) -> list[str]:
    """Return the flag if the problem asks for it and a profiler saw only library kernels; nothing if it is set
    already."""
    wanted = problem.torch_policy is TorchPolicy.FLAG and Flag.NO_CUSTOM_KERNEL not in known
    return [Flag.NO_CUSTOM_KERNEL] if wanted and written_by_vendor(kernel_names) else []


def _python_reaches_kernel(module: ast.Module) -> bool:
    """Return whether anything that the entry point reaches by module-level names builds or launches a kernel."""
    # Only names and strings, since comments could name any package.
    if not any(_BUILDING_PACKAGES.search(word) for word in _words(module)):
        return False
    # Each statement is read once, however many names it defines: `a = b = c = …` defines thousands in a few bytes.
    definitions: dict[str, list[ast.stmt]] = {}
    for node in _statements(module.body):
        for name in _defined(node):
            definitions.setdefault(name, []).append(node)
    reached: set[int] = set()
    waiting = list(ENTRIES)
    while waiting:
        for node in definitions.pop(waiting.pop(), ()):
            if id(node) in reached:
                continue
            if _builds(node):
                return True
            reached.add(id(node))
            waiting += _names(node)
    return False


def _words(module: ast.Module) -> Iterator[str]:
    """Yield every name and string of a module."""
    for node in ast.walk(module):
        for _, value in ast.iter_fields(node):
            for word in value if isinstance(value, list) else [value]:
                if isinstance(word, str):
                    yield word


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield module-level statements, including those below `if`, `try` and `with`."""
    for node in body:
        yield node
        if not isinstance(node, ast.FunctionDef | ast.ClassDef):
            inner = [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)]
            yield from _statements(inner)


def _defined(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [(alias.asname or alias.name).split(".")[0] for alias in node.names]
    return []


def _names(node: ast.AST) -> set[str]:
    return {child.id for child in ast.walk(node) if isinstance(child, ast.Name)}


def _builds(node: ast.stmt) -> bool:
    """Return whether a decorator or a call's last name builds kernels. An import alone does not."""
    decorators = node.decorator_list if isinstance(node, ast.FunctionDef | ast.ClassDef) else []
    calls = [child.func for child in ast.walk(node) if isinstance(child, ast.Call)]
    return any(_last_name(expression) in _BUILDERS for expression in (*decorators, *calls))


def _last_name(expression: ast.expr) -> str:
    if isinstance(expression, ast.Call):
        return _last_name(expression.func)
    if isinstance(expression, ast.Attribute):
        return expression.attr
    return expression.id if isinstance(expression, ast.Name) else ""
