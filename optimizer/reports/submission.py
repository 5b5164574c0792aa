"""Export a kernel for other people's programs and benchmarks, without asking any model.

`runners.export` makes packages and guarded files; GPU MODE takes one file with `custom_kernel(data)`; our own format
takes any source with fixed tunables. The tuned values are written into the file, because nobody else reads our
comments.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from optimizer.models import Kernel
from runners.export.declaration import PYTHON, ExportError, settled_text
from runners.export.formats import FORMATS, archive
from runners.export.package import Exported, exported
from runners.export.provenance import Origin
from runners.job import JobSpec, Language, Source
from runners.kernelbot.candidate import CandidateRefusedError, submission_of
from runners.problems.base import ProblemError
from runners.tunables import TunablesError, parse


class NoSubmissionError(ValueError):
    """Report that the kernel cannot be exported in this format; the message gives the reason."""


@dataclass(frozen=True)
class Submission:
    """Hold one file to download: a text, or the bytes of an archive."""

    name: str
    text: str = ""
    data: bytes = b""


@dataclass(frozen=True)
class Offer:
    """Describe a format on the page of exports."""

    kind: str
    label: str
    note: str


OFFERS = (
    Offer("package", "Python package", "pip installs it. A torch operator with guards, tests and the measurement."),
    Offer(
        "kernelbench", "KernelBench ModelNew", "One file. Torch computes what was not measured, gradients included."
    ),
    Offer("huggingface", "Hugging Face kernels", "A repository that get_local_kernel loads and the Hub serves."),
    Offer("flashinfer", "flashinfer-bench", "A trace set: definition, solution and workloads."),
    Offer("gpumode", "GPU MODE submission.py", "One file with custom_kernel(data)."),
    Offer("native", "Kernel source", "As measured, with its tunables set. Nothing guards it."),
)


def offers_for(kernel: Kernel) -> list[Offer]:
    """Return the formats in which a kernel can be exported."""
    return [offer for offer in OFFERS if _is_offered(kernel, offer.kind)]


def submission(kernel: Kernel, kind: str) -> Submission:
    """Return the file of a format named in OFFERS. Raises NoSubmissionError."""
    try:
        whole = _exported(kernel)
        if kind in FORMATS:
            return _files(FORMATS[kind].files(whole), f"{whole.name}-{kind}")
        make = {"native": _native, "gpumode": _gpumode}[kind]
        return make(kernel, whole, whole.source)
    except KeyError as error:
        raise NoSubmissionError(f"There is no format {kind!r}.") from error
    except (ProblemError, TunablesError, ExportError, CandidateRefusedError, SyntaxError, ValueError) as error:
        raise error if isinstance(error, NoSubmissionError) else NoSubmissionError(str(error)) from error


def _is_offered(kernel: Kernel, kind: str) -> bool:
    try:
        submission(kernel, kind)
    except NoSubmissionError:
        return False
    return True


def _exported(kernel: Kernel) -> Exported:
    """Return the kernel with its measurement, where there is one that can still be read."""
    evaluation = getattr(kernel, "evaluation", None)  # a kernel that was just proposed has none
    result = evaluation.as_readable_result() if evaluation is not None else None
    bundle = kernel.run.problem_version.as_bundle()
    return exported(bundle, kernel.as_source(), kernel.run.target.key, result, Origin())


def _files(files: dict[str, str], name: str) -> Submission:
    """Return a single file as it is, and several in one archive."""
    if len(files) == 1:
        ((only, text),) = files.items()
        return Submission(only, text)
    return Submission(f"{name}.zip", data=archive(files, name))


def patch_against_seed(kernel: Kernel, seed: Kernel) -> str:
    """Return the changes as a unified diff that `patch -p1` applies to the seed's file."""
    name = f"kernel{Language(kernel.language).suffix}"
    old, new = seed.source.splitlines(keepends=True), kernel.source.splitlines(keepends=True)
    lines = difflib.unified_diff(old, new, f"a/{name}", f"b/{name}")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _native(kernel: Kernel, whole: Exported, source: Source) -> Submission:
    text = settled_text(source) if source.language in PYTHON else _settled(source)
    return Submission(f"{whole.name}{source.language.suffix}", text)


def _gpumode(kernel: Kernel, whole: Exported, source: Source) -> Submission:
    spec = JobSpec("submission", whole.bundle, whole.target, source)
    return Submission("submission.py", submission_of(spec))


def _settled(source: Source) -> str:
    """Return C++, HIP or CUDA with the tunables defined at its head, so that any compiler builds what was measured."""
    space = parse(source.text)
    flags = source.flags or (space.flag_sets[0] if space.flag_sets else ())
    head = f"// compile with: {' '.join(flags)}\n" if flags else ""
    return head + settled_text(source)
