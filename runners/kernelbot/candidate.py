"""Convert a candidate to the one Python file that KernelBot takes.

KernelBot calls `custom_kernel(data)` with the tuple that the leaderboard's generator makes. A candidate for a GPU
MODE problem is written that way already. Our own problems pass the inputs one by one and expect the output back, so a
small adapter is added; torch's `load_inline` compiles a HIP kernel there, around our C signature.

KernelBot refuses every source with the word "stream" and runs everything on the default one. A HIP kernel's last
argument is therefore a null pointer there. The parameter and the launch, where our signature makes kernels use the
word, are rewritten without it; any other use is refused here, before it costs anybody's time.
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

# KernelBot's own limit for a submission.
MOST_BYTES = 1_000_000
FORBIDDEN = "stream"
# Casts of `stream` to HIP's type, in C and in C++ style.
_HANDLE = r"(?:\(\s*hipStream_t\s*\)\s*stream|(?:static|reinterpret)_cast\s*<\s*hipStream_t\s*>\s*\(\s*stream\s*\))"
_LAUNCH = re.compile(rf",\s*{_HANDLE}\s*>>>")
_PARAMETER = re.compile(r",\s*void\s*\*\s*stream\s*\)")


class CandidateRefusedError(ValueError):
    """Report that KernelBot would refuse or misread this candidate. The message says why."""


def submission_of(spec: JobSpec) -> str:
    """Return the file's text. Raises CandidateRefusedError."""
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
    """Remove the stream from signature and launches of a HIP source, so that everything runs on the default one."""
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
