"""The static screen: what is refused before anything is built, and advice from reading the text.

Only rules of form reject; patterns in the text are advice, since the dynamic defences carry the weight.
"""

from __future__ import annotations

from runners.backends import REGISTRY, backend_for
from runners.job import JobSpec
from runners.problems.base import Problem


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
    return backend_for(source.language).complaints(source)
