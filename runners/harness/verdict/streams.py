"""Read from texts whether a program may use more than one stream of a GPU.

A profiler says what uses several streams without being asked to (docs/evidence/gpu-verdicts.md, start 119: 250 problems
of KernelBench and 113 operations of torch): recurrent networks and grouped convolutions of cuDNN, and captured graphs.
Whatever is not understood counts as a program that may. A candidate that hides its streams slows down only itself; the
reference's text is not its to choose.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from runners.harness.verdict.library_calls import PYTHON
from runners.job import Baseline, JobSpec
from runners.problems.base import Problem
from runners.problems.modules import importable
from runners.problems.syntax import NOT_PYTHON, module_tree

# Packages whose calls do not use a second stream unless one of the words below asks for it.
_KNOWN_PACKAGES = frozenset({
    "__future__", "abc", "collections", "copy", "dataclasses", "einops", "enum", "functools", "itertools", "math",
    "numbers", "numpy", "operator", "os", "pathlib", "random", "string", "sys", "textwrap", "torch", "triton", "types",
    "typing", "typing_extensions", "warnings",
})  # fmt: skip
_WORD = re.compile(r"[A-Za-z_]\w*", re.ASCII)
# In lower case, anywhere in a word. Compiled functions may be captured, and `vmap` makes groups of convolutions.
_SEVERAL_STREAMS = ("stream", "graph", "rnn", "lstm", "gru", "compile", "dynamo", "vmap", "per_thread", "perthread")
_SEVERAL_STREAMS_WRITTEN = ("per-thread", "cuda::stream")
# Words with `stream` in them that create none.
_NO_NEW_STREAM = frozenset({
    "stream", "current_stream", "default_stream", "cuda_stream", "get_cuda_stream", "cudaStream_t", "CUstream",
    "CUDAStream", "getCurrentCUDAStream", "getDefaultCUDAStream", "iostream", "sstream", "ostream", "fstream",
    "stringstream", "ostringstream",
})  # fmt: skip
_CONVOLUTIONS = frozenset(
    f"{name}{dimensions}d"
    for name in ("Conv", "ConvTranspose", "conv", "conv_transpose")
    for dimensions in (1, 2, 3)
)
# A convolution's number of groups is its seventh argument, or named.
_GROUPS, _ARGUMENTS_BEFORE_GROUPS = "groups", 6
# Ways to reach a function that no text names.
_UNREADABLE = frozenset({"exec", "eval", "__import__", "import_module", "getattr", "globals", "vars", "__dict__"})


def stays_in_one_stream(spec: JobSpec, problem: Problem) -> bool:
    """Return whether neither the sides of a job nor the problem's modules that they may import use a second stream.

    A compiled baseline may.
    """
    if spec.baseline is not Baseline.EAGER:
        return False
    modules = importable(spec.problem.files)
    sides = [spec.candidate, *filter(None, [spec.parent])]
    native = {side.text for side in sides if side.language not in PYTHON}
    python = {side.text for side in sides if side.language in PYTHON} | set(modules.values())
    python.add(problem.reference_as_candidate(spec.target))
    return not (any(map(_has_telling_words, native)) or any(may_use_several(text, modules) for text in python))


def may_use_several(text: str, own_modules: Iterable[str] = ()) -> bool:
    """Return whether a Python program may use more than one stream. `own_modules` are read beside it."""
    if _has_telling_words(text, _GROUPS):
        return True
    try:
        nodes = list(ast.walk(module_tree(text)))
    except NOT_PYTHON:
        return True
    known = _KNOWN_PACKAGES.union(own_modules)
    ungrouped = {id(node.func) for node in nodes if isinstance(node, ast.Call) and _has_no_groups(node)}
    return any(
        _imports_unknown(node, known) or _is_unreadable(node) or _may_be_grouped(node, ungrouped) for node in nodes
    )


def _has_telling_words(text: str, another: str = "") -> bool:
    """Return whether a text names something that uses several streams, or holds another word."""
    words = any(word == another or _is_telling(word) for word in _WORD.findall(text))
    return words or any(part in text for part in _SEVERAL_STREAMS_WRITTEN)


def _is_telling(word: str) -> bool:
    return word not in _NO_NEW_STREAM and any(part in word.lower() for part in _SEVERAL_STREAMS)


def _imports_unknown(node: ast.AST, known: frozenset[str]) -> bool:
    """Return whether a node imports a package that is not known, or a convolution under another name."""
    if isinstance(node, ast.Import):
        return any(_outermost(alias.name) not in known for alias in node.names)
    if not isinstance(node, ast.ImportFrom):
        return False
    renamed = any(_is_like_convolution(name) for name in _names_beyond_convolutions(node))
    return renamed or bool(node.level) or _outermost(node.module or "") not in known


def _names_beyond_convolutions(node: ast.ImportFrom) -> Iterator[str]:
    yield from (alias.name for alias in node.names if alias.asname or alias.name not in _CONVOLUTIONS)


def _outermost(module: str) -> str:
    return module.partition(".")[0]


def _is_unreadable(node: ast.AST) -> bool:
    return isinstance(node, ast.Name | ast.Attribute) and _name_of(node) in _UNREADABLE


def _may_be_grouped(node: ast.AST, ungrouped: set[int]) -> bool:
    """Return whether a node is a convolution that is not called at once without groups, or something of such a name."""
    if isinstance(node, ast.Constant):
        return node.value in _CONVOLUTIONS if isinstance(node.value, str) else False
    if not isinstance(node, ast.Name | ast.Attribute) or id(node) in ungrouped:
        return False
    if _name_of(node) in _CONVOLUTIONS:
        return True
    # Attributes of `self` and names that the text itself defines are the program's own.
    if isinstance(node, ast.Name) or (isinstance(node.value, ast.Name) and node.value.id == "self"):
        return False
    return _is_like_convolution(node.attr)


def _has_no_groups(call: ast.Call) -> bool:
    """Return whether a call is that of a convolution with too few arguments to name a number of groups."""
    called = isinstance(call.func, ast.Name | ast.Attribute) and _name_of(call.func) in _CONVOLUTIONS
    unpacked = any(isinstance(one, ast.Starred) for one in call.args) or any(not one.arg for one in call.keywords)
    return called and not unpacked and len(call.args) <= _ARGUMENTS_BEFORE_GROUPS


def _is_like_convolution(name: str) -> bool:
    return "conv" in name.lower()


def _name_of(node: ast.Name | ast.Attribute) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr
