"""Problems from disk into the database: read, run once in a process of its own, stored with what that showed."""

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
    """What became of one finding: a version, new or known before; or none, for the finding's complaints."""

    finding: Finding
    version: ProblemVersion | None = None
    is_new: bool = False


def import_finding(finding: Finding, target: str) -> Imported:
    """Store what could be read. A reference that does not run on `target` is a warning: it may run elsewhere."""
    if finding.bundle is None:
        return Imported(finding)
    try:
        version, is_new = do_import_problem(finding.bundle, origin_of(finding.path), warnings_of(finding, target))
    except ProblemError as error:
        return Imported(replace(finding, complaints=tuple(error.complaints)))
    return Imported(finding, version, is_new)


def origin_of(path: Path) -> str:
    """`shipped`, or the place it was read from."""
    return "shipped" if str(path) in shipped() else str(path.resolve())[-300:]


def warnings_of(finding: Finding, target: str) -> tuple[str, ...]:
    """Return what to keep with the version: the filters' warnings, why the reference did not run, and why kernels
    cannot be C functions where they could be."""
    seen = finding.examination
    if seen is None:
        return ("Not run at import: nothing is known of its outputs.",)
    failed = (f"The reference does not run on {target}: {seen.failure}",) if seen.failure else ()
    signature = signature_of(finding)
    refused = (f"No kernels in C++, HIP or CUDA: {signature.refused}",) if signature and signature.refused else ()
    return (*failed, *seen.warnings, *refused)
