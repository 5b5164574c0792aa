"""Compile a kernel for a target that may be absent."""

from __future__ import annotations

from runners.backends import BuildRequest, backend_for
from runners.harness.building.sample_arguments import samples_of
from runners.job import BuildReport, Limits, Source
from runners.problems.base import Problem
from runners.sandbox import work_folder
from runners.targets import Target
from runners.verbs.errors import RefusedError


def build(source: Source, wanted: Target, problem: Problem | None) -> BuildReport:
    """Build for a target. Raises RefusedError for what the backend does not take, InfraFailure, SandboxError."""
    backend = backend_for(source.language)
    if complaints := backend.complaints(source):
        raise RefusedError("; ".join(complaints))
    samples = samples_of(problem, wanted.key) if problem else ()
    symbol = problem.symbol if problem else ""
    with work_folder("build-") as folder:
        return backend.build(BuildRequest(source, symbol, wanted.key, folder, Limits(), samples)).report
