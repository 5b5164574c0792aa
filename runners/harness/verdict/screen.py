"""Screen a source before anything is built, and give advice from reading the text.

Only rules of form reject. Patterns in the text are advice, since the dynamic defences carry the weight. Texts are read
in a child process with limits, because a text for which a reader takes too long would hold the worker beyond the limit
of the evaluation.
"""

from __future__ import annotations

import re

from runners import wire
from runners.backends import REGISTRY
from runners.errors import CandidateFailure, InfraFailure
from runners.harness.verdict import second_opinion
from runners.job import JobSpec, Source, Status
from runners.limited_child import ExhaustedError, FailedError, LimitedChild, UnansweredError
from runners.problems.base import Problem

# A source of 1 MiB takes three seconds. The limits of wall time are for a busy machine.
MOST_CPU_S, MOST_WALL_S, MOST_WAIT_S = 10.0, 120.0, 240.0
READER = LimitedChild("runners.harness.verdict.reading", MOST_CPU_S, MOST_WALL_S, MOST_WAIT_S)

_MEASURING = re.compile(r"autotune|do_bench|\.benchmark\b|elapsed_time|perf_counter|monotonic", re.IGNORECASE)


def screened(spec: JobSpec, problem: Problem) -> list[str]:
    """Return what readers of the text advise, as flags.

    They say who does the work if the problem asks for it, that a reference's loops make any speedup over it
    meaningless, and what second readers found. Raises CandidateFailure for a source that is rejected, and InfraFailure
    if the machine is too busy to read it.
    """
    complaints = _misfits(spec, problem)
    found = {"flags": []} if complaints else _read(spec)
    if complaints := complaints or found["complaints"]:
        raise CandidateFailure(Status.REJECTED, "; ".join(complaints))
    return [*found["flags"], *second_opinion.opinions(spec.candidate)]


def _misfits(spec: JobSpec, problem: Problem) -> list[str]:
    """Return why the source is rejected without being read, or nothing."""
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
    return ["the source holds NUL bytes"] if "\0" in source.text else []


def _read(spec: JobSpec) -> dict[str, list[str]]:
    """Return the complaints and flags of `runners.harness.verdict.reading`.

    Nothing but the texts is looked at, so an exception is due to a text that no reader was prepared for.
    """
    try:
        found: dict[str, list[str]] = READER.ask("read", wire.dumps(spec))
    except UnansweredError as error:
        raise InfraFailure(f"the source was not read: {error}") from error
    except (ExhaustedError, FailedError) as error:
        raise CandidateFailure(Status.REJECTED, f"the source cannot be read: {error}") from error
    return found


def stays_in_one_stream(spec: JobSpec) -> bool:
    """Return whether no side of a job uses a second stream of a GPU, as far as the texts say. If in doubt, False."""
    try:
        return READER.ask("stays_in_one_stream", wire.dumps(spec)) is True
    except (UnansweredError, ExhaustedError, FailedError):
        return False


def measures_itself(source: Source) -> bool:
    """Return whether the text looks as if the kernel chose its own configuration by timing.

    No other process should use the device during that. A text that hides it harms only itself.
    """
    return _MEASURING.search(source.text) is not None
