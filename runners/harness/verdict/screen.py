"""Screen a source before anything is built, and give advice from reading the text.

Only rules of form reject. Patterns in the text are advice, since the dynamic defences carry the weight.
"""

from __future__ import annotations

import re

from runners.backends import REGISTRY, backend_for
from runners.harness.verdict import library_calls, second_opinion
from runners.job import Flag, JobSpec, Source
from runners.problems import slow_reference
from runners.problems.base import Problem, TorchPolicy

_MEASURING = re.compile(r"autotune|do_bench|\.benchmark\b|elapsed_time|perf_counter|monotonic", re.IGNORECASE)


def complaints(spec: JobSpec, problem: Problem) -> list[str]:
    """Return why the candidate is rejected, or nothing."""
    source = spec.candidate
    if source.language not in problem.languages:
        known = ", ".join(language.value for language in problem.languages)
        return [f"{problem.name} takes kernels in {known}, not in {source.language.value}"]
    if source.language not in REGISTRY:
        return [f"no backend for {source.language.value} on this machine"]
    # Lone surrogates can't be encoded, and a hostile text may hold some.
    size = len(source.text.encode(errors="replace"))
    if size > spec.limits.source_bytes:
        return [f"the source has {size} bytes; at most {spec.limits.source_bytes} are accepted"]
    if "\0" in source.text:
        return ["the source holds NUL bytes"]
    if problem.torch_policy is TorchPolicy.FORBID and library_calls.lacks_own_kernel(source):
        return [f"{problem.name} asks for a kernel of its own; this leaves the work to torch or a vendor's library"]
    return [*problem.complaints(source), *backend_for(source.language).complaints(source)]


def advice(spec: JobSpec, problem: Problem) -> list[str]:
    """Return flags from reading texts.

    They say who does the work if the problem asks for it, that a reference's loops make any speedup over it
    meaningless, and what second readers found.
    """
    wanted = problem.torch_policy is TorchPolicy.FLAG
    flags = [Flag.NO_CUSTOM_KERNEL] if wanted and library_calls.lacks_own_kernel(spec.candidate) else []
    flags += [Flag.SLOW_REFERENCE] if slow_reference.slow_loop(problem.reference_source) else []
    return flags + second_opinion.opinions(spec.candidate)


def measures_itself(source: Source) -> bool:
    """Return whether the text looks as if the kernel chose its own configuration by timing.

    No other process should use the device during that. A text that hides it harms only itself.
    """
    return _MEASURING.search(source.text) is not None
