"""Describe configurations that are compiled ahead: the step that asks for them, and what came back.

A batch of variants of one kernel is compiled without being run, on any machine with the compiler. What cannot run
then costs no evaluation, and what can is chosen by its machine code too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from runners.job import AheadBuild, Language, Source, Variant

# Languages that can be compiled for a device on a machine without it.
DEVICE_LANGUAGES = frozenset({Language.HIP, Language.CUDA, Language.TRITON})


@dataclass(frozen=True)
class CompileAhead:
    """Request that variants of a kernel are compiled and not run."""

    key: str
    basis_key: str
    variants: tuple[Variant, ...]


@dataclass(frozen=True)
class CompiledBatch:
    """Describe a request to compile ahead, as a strategy sees it.

    `builds` are in the order of `variants`, empty until the batch has `finished`. `error` says why nothing was
    compiled: no compiler is there, or the machine failed.
    """

    key: str
    variants: tuple[Variant, ...]
    finished: bool = False
    error: str = ""
    builds: tuple[AheadBuild, ...] = ()


@dataclass(frozen=True)
class Upcoming:
    """Describe a kernel that a strategy would have measured next if nothing new became known.

    `figures` are the static features of its build, where it was compiled ahead.
    """

    title: str
    why: str
    figures: Mapping[str, float] = field(default_factory=dict)


def is_built_first(target: str, source: Source) -> bool:
    """Return whether a kernel is compiled on another machine before a device measures it.

    On this processor a compiler would disturb the timing.
    """
    return is_compiled_ahead(target, source.language) or (target != "cpu" and source.compiles_extension)


def is_compiled_ahead(target: str, language: Language) -> bool:
    """Return whether many variants of a kernel can be compiled before any is measured.

    An extension of torch takes too long for that: ten seconds, of which torch's headers take eight.
    """
    return target != "cpu" and language in DEVICE_LANGUAGES
