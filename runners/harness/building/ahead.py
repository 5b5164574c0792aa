"""Compile variants of a kernel in parallel, to know which can run and what their machine code tells."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace

from runners.backends import BuildRequest, backend_for
from runners.job import AheadBuild, BuildReport, Variant
from runners.static_features.figures import figures_of_build
from runners.targets import Target

# Characters of a compiler's complaint that are kept for each variant.
REASON_CHARS = 400


@dataclass(frozen=True)
class AheadOrder:
    """Hold what is to be compiled: `request` is that of the text with its own values, for the device `target`."""

    request: BuildRequest
    target: Target
    variants: Sequence[Variant]


def compile_ahead(order: AheadOrder, on_step: Callable[[str], None]) -> list[AheadBuild]:
    """Compile every variant and return its build, in their order.

    `on_step` is told of every build that ends, and may raise to stop. Raises InfraFailure where no compiler is there.
    """
    with ThreadPoolExecutor(os.cpu_count() or 1, "ahead") as pool:
        futures = [pool.submit(_compiled, order, number) for number in range(len(order.variants))]
        try:
            _watch(futures, on_step)
        finally:
            pool.shutdown(cancel_futures=True)
    return [future.result() for future in futures]


def _watch(futures: Sequence[Future[AheadBuild]], on_step: Callable[[str], None]) -> None:
    for done, future in enumerate(as_completed(futures), start=1):
        future.result()
        on_step(f"{done} of {len(futures)} variants compiled\n")


def _compiled(order: AheadOrder, number: int) -> AheadBuild:
    request = _request(order, number)
    backend = backend_for(request.source.language)
    if complaints := backend.complaints(request.source):
        return AheadBuild(refused="; ".join(complaints)[:REASON_CHARS])
    artefact = backend.build(request)
    report = artefact.report
    # The folder of the build says nothing to a reader.
    failure = _failure(report).replace(f"{request.folder}/", "")
    refused = failure if artefact.path is None else _exceeded(report, order.target)
    return AheadBuild(
        report.seconds, report.cached, refused[:REASON_CHARS], report.artefact_hash, figures_of_build(report)
    )


def _request(order: AheadOrder, number: int) -> BuildRequest:
    """Return the build of one variant, in a folder of its own."""
    variant, plain = order.variants[number], order.request
    folder = plain.folder / f"ahead-{number}"
    folder.mkdir(mode=0o755)
    source = replace(plain.source, tunables=variant.tunables, flags=variant.flags)
    return replace(plain, source=source, folder=folder)


def _failure(report: BuildReport) -> str:
    """Return the first line of the log that names an error, or else its first line."""
    lines = [line.strip() for line in report.log.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line.lower()), lines[0] if lines else "the build failed")


def _exceeded(report: BuildReport, target: Target) -> str:
    """Return which limit of the device a built variant exceeds, empty for none."""
    shared = max((kernel.lds_bytes or 0 for kernel in report.kernels), default=0)
    if 0 < target.lds_bytes < shared:
        return f"needs {shared} bytes of shared memory; {target.title} has {target.lds_bytes}"
    return ""
