"""From a candidate to the one Python file that KernelBot takes.

KernelBot calls `custom_kernel(data)` with the tuple that the leaderboard's generator makes. For a GPU MODE problem a
candidate is written that way already. Our own problems hand over the inputs one by one and expect the output back, so
a small adapter is added; a HIP kernel is compiled there by torch's `load_inline`, around our C signature.

KernelBot refuses every source with the word "stream" and runs everything on the default one. A HIP kernel's last
argument is therefore a null pointer there, and the two places where our signature makes kernels say the word, the
parameter and the launch, lose it; whatever else says it is refused here, before anybody's time is spent.
"""

from __future__ import annotations

import re

from runners.backends.base import chosen_tunables
from runners.backends.python import with_tunables
from runners.job import JobSpec, Language, Source
from runners.kernelbot.wrapper import hip_module, python_adapter
from runners.problems import open_bundle
from runners.problems.base import Problem, ProblemError
from runners.tunables import TunablesError, parse

MOST_BYTES = 1_000_000
FORBIDDEN = "stream"
_HANDLE = r"(?:\(\s*hipStream_t\s*\)\s*stream|(?:static|reinterpret)_cast\s*<\s*hipStream_t\s*>\s*\(\s*stream\s*\))"
_LAUNCH = re.compile(rf",\s*{_HANDLE}\s*>>>")
_PARAMETER = re.compile(r",\s*void\s*\*\s*stream\s*\)")


class CandidateRefusedError(ValueError):
    """KernelBot would not take, or not understand, this candidate; the message says why."""


def submission_of(spec: JobSpec) -> str:
    """The file's text. Raises CandidateRefusedError."""
    try:
        problem = open_bundle(spec.problem)
        text = _converted(problem, spec.candidate)
    except (ProblemError, TunablesError, SyntaxError, ValueError, RecursionError) as error:
        raise error if isinstance(error, CandidateRefusedError) else CandidateRefusedError(str(error)) from error
    _check(text)
    return text


def _converted(problem: Problem, source: Source) -> str:
    if problem.format not in ("native", "gpumode"):
        raise CandidateRefusedError(f"KernelBot judges GPU MODE problems; {problem.name} is a {problem.format} one")
    if source.language in (Language.PYTHON, Language.TRITON):
        text = with_tunables(source)
        return text if problem.format == "gpumode" else f"{text}\n\n{python_adapter(problem.arguments)}"
    if source.language is not Language.HIP:
        raise CandidateRefusedError(f"KernelBot takes Python, Triton and HIP kernels, not {source.language.value}")
    if not problem.symbol:
        raise CandidateRefusedError(f"{problem.name} declares no C signature; hand in Python that uses load_inline")
    return hip_module(problem.symbol, problem.arguments, without_stream(source.text), _macros(source))


def without_stream(text: str) -> str:
    """HIP source with the stream taken out of signature and launches: everything runs on the default one."""
    return _PARAMETER.sub(", void*)", _LAUNCH.sub(">>>", text))


def _macros(source: Source) -> list[str]:
    space = parse(source.text)
    flags = source.flags or (space.flag_sets[0] if space.flag_sets else ())
    values = sorted(chosen_tunables(source).items())
    return [*flags, *(f"-D{name}={int(value) if isinstance(value, bool) else value}" for name, value in values)]


def _check(text: str) -> None:
    if len(text.encode(errors="replace")) > MOST_BYTES:
        raise CandidateRefusedError(f"{len(text.encode())} bytes; KernelBot takes {MOST_BYTES}")
    for number, line in enumerate(text.splitlines(), 1):
        if FORBIDDEN in line.lower():
            raise CandidateRefusedError(
                f'KernelBot refuses the word "{FORBIDDEN}" anywhere in a source, comments included; '
                f"line {number} of the submission says: {line.strip()[:120]}"
            )
