"""Decide how many work queues of an NVIDIA GPU the processes of an evaluation have: one, or the driver's usual eight.

A stream is mapped to a queue, so the number decides which streams overlap, and matters only to a program that uses
several. Every process that has opened the device, with all of its queues, makes opening and closing it slower for the
others: with one queue, evaluations of small problems take three quarters of the time, and their kernels exactly as
long as with eight (docs/evidence/gpu-verdicts.md, start 119).

So all processes of an evaluation have one queue if none of its sources can use a second stream, as far as their texts
tell, and eight otherwise. A profiler says what uses several streams without being asked to (start 119, 250 problems of
KernelBench and 113 operations of torch, `benchmarks/streams.py`): recurrent networks and grouped convolutions of cuDNN,
and captured graphs. A text that is not understood counts as one that may. A candidate that hides its streams slows down
only itself; the reference's text is not its to choose.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from runners.backends.base import Artefact
from runners.job import ProblemBundle, Source

ONE_QUEUE: Mapping[str, str] = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}

# Packages whose calls do not use a second stream unless one of the words below asks for it.
_KNOWN_PACKAGES = frozenset({
    "__future__", "abc", "collections", "copy", "dataclasses", "einops", "enum", "functools", "itertools", "math",
    "numbers", "numpy", "operator", "os", "pathlib", "random", "string", "sys", "textwrap", "torch", "triton", "types",
    "typing", "typing_extensions", "warnings",
})  # fmt: skip
_IMPORT = re.compile(r"^[ \t]*(?:import|from)[ \t]+([\w., \t]+)", re.MULTILINE)
_WORD = re.compile(r"[A-Za-z_]\w*", re.ASCII)
# In lower case, anywhere in a word.
_SEVERAL_STREAMS = ("stream", "graph", "rnn", "lstm", "gru", "compile", "per_thread", "perthread")
# Words with `stream` in them that create none.
_NO_NEW_STREAM = frozenset({
    "stream", "current_stream", "default_stream", "cuda_stream", "get_cuda_stream", "cudaStream_t", "CUstream",
    "CUDAStream", "getCurrentCUDAStream", "getDefaultCUDAStream", "iostream", "sstream", "ostream", "fstream",
    "stringstream", "ostringstream",
})  # fmt: skip
# A convolution's number of groups is its seventh argument, or named.
_CONVOLUTION = re.compile(r"conv\w{0,40}", re.IGNORECASE)
_GROUPS, _ARGUMENTS_BEFORE_GROUPS = "groups", 6
# More convolutions, and more characters between the parentheses of one, are not looked at.
_MOST_CONVOLUTIONS, _MOST_ARGUMENT_CHARS = 500, 1000


def environment_for(artefact: Artefact) -> dict[str, str]:
    """Return what a process that loads an artefact needs in its environment."""
    return {**artefact.env, **(ONE_QUEUE if artefact.one_stream else {})}


def stay_in_one_stream(sources: Iterable[Source], bundle: ProblemBundle) -> bool:
    """Return whether none of the sources, nor the problem's own modules that they may import, uses a second stream."""
    modules = {name: text for name, text in bundle.files.items() if name.endswith(".py")}
    own = {name.removesuffix(".py").split("/")[-1] for name in modules}
    texts = [*(source.text for source in sources), *modules.values()]
    return not any(may_use_several_streams(text, own) for text in texts)


def may_use_several_streams(text: str, own_modules: Iterable[str] = ()) -> bool:
    """Return whether a program may use more than one stream. `own_modules` are read beside it."""
    known = _KNOWN_PACKAGES.union(own_modules)
    return (
        any(package not in known for package in _packages(text))
        or any(map(_is_telling, _WORD.findall(text)))
        or "per-thread" in text
        or _has_groups(text)
    )


def _packages(text: str) -> Iterable[str]:
    """Yield the outermost package of each import, also of those that stand in a string or a comment."""
    for found in _IMPORT.finditer(text):
        for name in found[1].partition(" import ")[0].split(","):
            yield name.split(" as ")[0].strip().partition(".")[0]


def _is_telling(word: str) -> bool:
    if word == _GROUPS:
        return True
    return word not in _NO_NEW_STREAM and any(part in word.lower() for part in _SEVERAL_STREAMS)


def _has_groups(text: str) -> bool:
    """Return whether a convolution is given enough arguments by position to have groups, or is not called at once."""
    found = list(_CONVOLUTION.finditer(text))
    if len(found) > _MOST_CONVOLUTIONS:
        return True
    return any(_reaches_groups(text[one.end() : one.end() + _MOST_ARGUMENT_CHARS]) for one in found)


def _reaches_groups(after: str) -> bool:
    """Return whether arguments that stand at the start of a text reach a convolution's seventh by position."""
    if not after.startswith("("):
        return False
    depth = commas = 0
    for char in after:
        if char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
            if not depth:
                return False
        elif depth == 1 and char == ",":
            commas += 1
        if depth == 1 and char in "=*":
            return char == "*"
        if commas >= _ARGUMENTS_BEFORE_GROUPS:
            return True
    return True
