"""Import problems from disk: read them, run their reference once in its own process, store both."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from optimizer.actions.problem import do_import_problem
from optimizer.models import ProblemVersion
from runners.problems import shipped
from runners.problems.base import ProblemError
from runners.problems.commands import Finding, signature_of


@dataclass(frozen=True)
class Imported:
    """Hold the outcome of one finding: its version, new or known, or None when it could not be imported."""

    finding: Finding
    version: ProblemVersion | None = None
    is_new: bool = False


def import_finding(finding: Finding, target: str) -> Imported:
    """Store what could be read. A reference that does not run on `target` is a warning, as it may run elsewhere."""
    if finding.bundle is None:
        return Imported(finding)
    try:
        version, is_new = do_import_problem(finding.bundle, origin_of(finding.path), warnings_of(finding, target))
    except ProblemError as error:
        return Imported(replace(finding, complaints=tuple(error.complaints)))
    return Imported(finding, version, is_new)


def origin_of(path: Path) -> str:
    """Return `shipped`, or the path from which the problem was read."""
    # The end of a long path is what tells two problems apart.
    return "shipped" if str(path) in shipped() else str(path.resolve())[-300:]


def warnings_of(finding: Finding, target: str) -> tuple[str, ...]:
    """Return the warnings to keep with the version.

    These are the filters' warnings, why the reference did not run, and why kernels cannot be C functions where they
    could be.
    """
    seen = finding.examination
    if seen is None:
        return ("Not run at import: its outputs are unknown.",)
    failed = (f"The reference does not run on {target}: {seen.failure}",) if seen.failure else ()
    signature = signature_of(finding)
    refused = (f"No kernels in C++, HIP or CUDA: {signature.refused}",) if signature and signature.refused else ()
    return (*failed, *seen.warnings, *refused)
