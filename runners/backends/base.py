"""Define a backend: it turns a source into an artefact that the candidate can load, or a log that says why not."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from runners.job import BuildReport, Language, Limits, Source, TunableValue
from runners.problems.base import TensorSpec
from runners.tunables import DeclaredSpace, TunablesError, parse

# Kinds of artefacts that export a C function.
LIBRARIES = ("native", "emulated")


@dataclass(frozen=True)
class SampleArgument:
    """Describe one argument of a representative call: a tensor's layout, or a plain number."""

    spec: TensorSpec | None = None
    scalar: float | int | None = None


@dataclass(frozen=True)
class BuildRequest:
    """Ask for a source to be built for a target.

    `symbol` is the C function that the artefact must export, "" for modules. `folder` is the job's own directory,
    readable by everybody; artefacts are left there. `samples` are representative calls, for languages whose kernels
    only a call determines: the arguments of each, or the text of a module whose `get_inputs` and `get_init_inputs` make
    them. `for_target` names the GPU target for which the kernel is written where it is interpreted on a CPU.
    """

    source: Source
    symbol: str
    target: str
    folder: Path
    limits: Limits
    samples: tuple[tuple[SampleArgument, ...] | str, ...] = ()
    for_target: str = ""


@dataclass(frozen=True)
class Artefact:
    """Describe the outcome of a build.

    `kind` says how the candidate's process loads `path`: `native` through ctypes, `emulated` too but with its
    device emulated, `module` by importing it, `static` not at all. `path` is None if the build failed. `env` is
    what the process that loads it needs in its environment. An artefact that is not `timed` is only checked.
    `caches` is a packed file of what the module compiled in its build (see `runners.candidate.caches`), from which
    every later process starts; None if there is none. `scratch` names the temporary directory that the caches
    belong to, if paths are not private. `one_stream` says that a process of it needs one work queue of a GPU (see
    `runners.harness.processes.work_queues`).
    """

    kind: str
    path: Path | None
    symbol: str
    report: BuildReport
    env: Mapping[str, str] = field(default_factory=dict)
    timed: bool = True
    caches: Path | None = None
    scratch: str = ""
    one_stream: bool = False

    @property
    def is_library(self) -> bool:
        """Return whether it is called through a C signature, on buffers that it writes in place."""
        return self.kind in LIBRARIES

    @property
    def shown(self) -> tuple[Path, ...]:
        """Return the paths that a sandbox must show to load the artefact. Raises ValueError for a build that failed."""
        return (self.loadable, *([self.caches] if self.caches else []))

    @property
    def loadable(self) -> Path:
        """Return `path`. Raises ValueError for a build that failed."""
        if self.path is None:
            raise ValueError("a failed build has nothing to load")
        return self.path


class Backend(ABC):
    """Build the sources of one language."""

    language: ClassVar[Language]
    kind: ClassVar[str]

    def complaints(self, source: Source) -> list[str]:
        """Return why a source is not even built: malformed tunables, unknown choices, flags off the list."""
        try:
            space = parse(source.text)
        except TunablesError as error:
            return error.complaints
        return [*space.complaints(source.tunables), *self.refused_flags(source, space)]

    def refused_flags(self, source: Source, space: DeclaredSpace) -> list[str]:
        """Return a complaint for each flag that is not on the backend's list; a backend without flags refuses all."""
        return [f"flag {flag} is not allowed" for flag in source.flags]

    @abstractmethod
    def build(self, request: BuildRequest) -> Artefact:
        """Build a source, or take the result from the cache.

        A build that fails is a result. Only a missing tool raises InfraFailure.
        """


def chosen_tunables(source: Source) -> dict[str, TunableValue]:
    """Return the value of every tunable: the declared defaults, overridden by the source's choice."""
    return {**parse(source.text).defaults(), **source.tunables}
