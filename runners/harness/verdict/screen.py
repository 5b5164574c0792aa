"""The static screen: what is refused before anything is built, and advice from reading the text.

Only rules of form reject; patterns in the text are advice, since the dynamic defences carry the weight.
"""

from __future__ import annotations

import re

from runners.backends import REGISTRY, backend_for
from runners.harness.verdict import library_calls, second_opinion
from runners.job import JobSpec, Source
from runners.problems import slow_reference
from runners.problems.base import Problem, TorchPolicy

_MEASURING = re.compile(r"autotune|do_bench|\.benchmark\b|elapsed_time|perf_counter|monotonic", re.IGNORECASE)


def complaints(spec: JobSpec, problem: Problem) -> list[str]:
    """Why the candidate is rejected; empty where it is not."""
    source = spec.candidate
    if source.language not in problem.languages:
        known = ", ".join(language.value for language in problem.languages)
        return [f"{problem.name} takes kernels in {known}, not in {source.language.value}"]
    if source.language not in REGISTRY:
        return [f"no backend for {source.language.value} on this machine"]
    size = len(source.text.encode(errors="replace"))
    if size > spec.limits.source_bytes:
        return [f"the source has {size} bytes; at most {spec.limits.source_bytes} are accepted"]
    if "\0" in source.text:
        return ["the source holds NUL bytes"]
    if problem.torch_policy is TorchPolicy.FORBID and library_calls.lacks_own_kernel(source):
        return [f"{problem.name} asks for a kernel of its own; this leaves the work to torch or a vendor's library"]
    return [*problem.complaints(source), *backend_for(source.language).complaints(source)]


def advice(spec: JobSpec, problem: Problem) -> list[str]:
    """Return flags from reading texts: who does the work, where the problem wants to know, a reference whose loops make
    any speedup over it meaningless, and second opinions."""
    wanted = problem.torch_policy is TorchPolicy.FLAG
    flags = [library_calls.FLAG] if wanted and library_calls.lacks_own_kernel(spec.candidate) else []
    flags += [slow_reference.FLAG] if slow_reference.slow_loop(problem.reference_source) else []
    return flags + second_opinion.opinions(spec.candidate)


def measures_itself(source: Source) -> bool:
    """Does the text look as if the kernel chose its own configuration by timing? Nobody else should then use the device
    while it does. A text that hides it harms itself alone."""
    return _MEASURING.search(source.text) is not None
