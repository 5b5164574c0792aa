"""Export a kernel for the benchmark its problem comes from, without asking any model.

KernelBench takes one Python file that defines `ModelNew`, GPU MODE one with `custom_kernel(data)`, and our own format
any source with fixed tunables. The tuned values are written into the file, because nobody else reads our comments.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from optimizer.models import Kernel
from runners.backends.base import chosen_tunables
from runners.backends.python import with_tunables
from runners.job import JobSpec, Language, Source
from runners.kernelbot.candidate import CandidateRefusedError, submission_of
from runners.problems import open_bundle
from runners.problems.base import Problem, ProblemError
from runners.tunables import TunablesError, parse

PYTHON = (Language.PYTHON, Language.TRITON)


class NoSubmissionError(ValueError):
    """Report that the kernel cannot be exported in this format; the message gives the reason."""


@dataclass(frozen=True)
class Submission:
    """Hold a file ready for submission."""

    name: str
    text: str


def offers_for(kernel: Kernel) -> dict[str, str]:
    """Return the formats in which a kernel can be exported, as name and label."""
    kinds = {
        "native": "The kernel, tunables settled",
        "gpumode": "GPU MODE submission.py",
        "kernelbench": "KernelBench ModelNew",
    }
    found = {}
    for kind, label in kinds.items():
        try:
            submission(kernel, kind)
        except NoSubmissionError:
            continue
        found[kind] = label
    return found


def submission(kernel: Kernel, kind: str) -> Submission:
    """Return the file for `native`, `gpumode` or `kernelbench`. Raises NoSubmissionError."""
    try:
        problem = open_bundle(kernel.run.problem_version.as_bundle())
        source = kernel.as_source()
        make = {"native": _native, "gpumode": _gpumode, "kernelbench": _kernelbench}[kind]
        return make(kernel, problem, source)
    except KeyError as error:
        raise NoSubmissionError(f"There is no format {kind!r}.") from error
    except (ProblemError, TunablesError, CandidateRefusedError, SyntaxError, ValueError) as error:
        raise error if isinstance(error, NoSubmissionError) else NoSubmissionError(str(error)) from error


def patch_against_seed(kernel: Kernel, seed: Kernel) -> str:
    """Return the changes as a unified diff that `patch -p1` applies to the seed's file."""
    name = f"kernel{Language(kernel.language).suffix}"
    old, new = seed.source.splitlines(keepends=True), kernel.source.splitlines(keepends=True)
    lines = difflib.unified_diff(old, new, f"a/{name}", f"b/{name}")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _native(kernel: Kernel, problem: Problem, source: Source) -> Submission:
    text = with_tunables(source) if source.language in PYTHON else _settled(source)
    return Submission(f"{problem.name}{source.language.suffix}", text)


def _gpumode(kernel: Kernel, problem: Problem, source: Source) -> Submission:
    spec = JobSpec("submission", kernel.run.problem_version.as_bundle(), kernel.run.target.key, source)
    return Submission("submission.py", submission_of(spec))


def _kernelbench(kernel: Kernel, problem: Problem, source: Source) -> Submission:
    if problem.format != "kernelbench":
        raise NoSubmissionError(f"{problem.name} is a {problem.format} problem.")
    if source.language not in PYTHON:
        raise NoSubmissionError("KernelBench takes one Python file.")
    return Submission(f"{problem.name}.py", with_tunables(source))


def _settled(source: Source) -> str:
    """Return C++, HIP or CUDA with the tunables defined at its head, so that any compiler builds what was measured."""
    space = parse(source.text)
    flags = source.flags or (space.flag_sets[0] if space.flag_sets else ())
    values = sorted(chosen_tunables(source).items())
    head = [f"// compile with: {' '.join(flags)}"] if flags else []
    for name, value in values:
        shown = int(value) if isinstance(value, bool) else value
        head += [f"#ifndef {name}", f"#define {name} {shown}", "#endif"]
    return "\n".join([*head, source.text]) if head else source.text
