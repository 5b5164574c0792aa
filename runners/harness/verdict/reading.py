"""Read the texts of a job: what speaks against the candidate, and what its author should know.

This is the child process of `runners.harness.verdict.screen`. Nothing is executed here.
"""

from __future__ import annotations

from runners import wire
from runners.backends import backend_for
from runners.harness.verdict import library_calls, streams
from runners.job import Flag, JobSpec
from runners.limited_child import serve
from runners.problems import open_bundle, slow_reference
from runners.problems.base import TorchPolicy


def read(job: str) -> dict[str, list[str]]:
    """Return the complaints about a job's candidate and the flags of its texts, for the job's JSON."""
    spec = wire.loads(JobSpec, job)
    problem, source = open_bundle(spec.problem), spec.candidate
    flags: list[str] = []
    if problem.torch_policy is not TorchPolicy.ALLOW and library_calls.lacks_own_kernel(source):
        if problem.torch_policy is TorchPolicy.FORBID:
            reason = "asks for a kernel of its own; this leaves the work to torch or a vendor's library"
            return {"complaints": [f"{problem.name} {reason}"], "flags": []}
        flags.append(Flag.NO_CUSTOM_KERNEL)
    if slow_reference.slow_loop(problem.reference_source):
        flags.append(Flag.SLOW_REFERENCE)
    return {
        "complaints": [*problem.complaints(source), *backend_for(source.language).complaints(source)],
        "flags": flags,
    }


def stays_in_one_stream(job: str) -> bool:
    """Return whether no side of a job uses a second stream of a GPU, for the job's JSON."""
    spec = wire.loads(JobSpec, job)
    return streams.stays_in_one_stream(spec, open_bundle(spec.problem))


TASKS = {"read": read, "stays_in_one_stream": stays_in_one_stream}


if __name__ == "__main__":
    serve(TASKS)
