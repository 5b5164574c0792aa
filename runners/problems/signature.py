"""Read the C signature and work figures of a KernelBench problem, a generated file of its bundle.

`runners.problems.deriving` makes it, where problem code may run; everything else reads it here, without torch. The
file names the text from which it was derived, and is ignored beside any other, as is one of another format version.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field

from runners import wire
from runners.problems.base import Argument, ProblemError, Role, Work
from runners.problems.dtypes import ELEMENT_TYPES
from runners.problems.expressions import ExpressionError, evaluate

FILE = "signature.json"
FORMAT_VERSION = 1
SYMBOL = "kernel"
# ctypes passes at most 1,024.
MOST_ARGUMENTS = 1000
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SCALARS = ("float64", "int64", "bool")
_TENSORS = (Role.INPUT, Role.PARAMETER, Role.OUTPUT)


@dataclass(frozen=True)
class CaseFigures:
    """Hold what is known of one case.

    `sizes` are the values of sizes and fixed scalars by argument. `flops` is by dtype, empty if an operation's count
    is unknown; `uncounted` names those operations. `bytes` counts every input, parameter and output once.
    """

    sizes: dict[str, int | float]
    flops: dict[str, float]
    bytes: float
    uncounted: tuple[str, ...] = ()


@dataclass(frozen=True)
class Signature:
    """Hold the arguments and the figures of `cases` by name.

    `refused` says in a sentence why there is no C signature; `arguments` are empty then.
    """

    source_sha256: str
    refused: str = ""
    arguments: tuple[Argument, ...] = ()
    cases: dict[str, CaseFigures] = field(default_factory=dict)
    format: int = FORMAT_VERSION

    def work(self, case: str) -> Work | None:
        """Return the work figures of a case, or None if it could not be traced."""
        figures = self.cases.get(case)
        return None if figures is None else Work(dict(figures.flops), figures.bytes, traced=True)


def digest_of(source: str) -> str:
    """Return the digest that identifies a problem's text in its signature."""
    return hashlib.sha256(source.encode()).hexdigest()


def read_signature(files: dict[str, str], source: str) -> Signature | None:
    """Read the signature among a bundle's files, or return None if there is none for this source and version.

    Raises ProblemError for one that is malformed.
    """
    if FILE not in files:
        return None
    try:
        signature = wire.loads(Signature, files[FILE])
    except wire.WireError as error:
        raise ProblemError([f"{FILE}: {error}"]) from error
    if (signature.format, signature.source_sha256) != (FORMAT_VERSION, digest_of(source)):
        return None
    if complaints := _complaints(signature):
        raise ProblemError([f"{FILE}: {complaint}" for complaint in complaints])
    return signature


def _complaints(signature: Signature) -> list[str]:
    """Return what is wrong. The file comes from a process that ran problem code, so nothing in it is trusted."""
    names = [argument.name for argument in signature.arguments]
    if len(names) > MOST_ARGUMENTS or len(set(names)) < len(names):
        return [f"{len(names)} arguments, {len(set(names))} names; at most {MOST_ARGUMENTS}, all different"]
    found = [complaint for a in signature.arguments for complaint in _of_argument(a)]
    return found or [
        f"case {case}: {complaint}"
        for case, figures in signature.cases.items()
        for complaint in _of_case(signature, figures)
    ]


def _of_argument(argument: Argument) -> list[str]:
    if not _IDENTIFIER.fullmatch(argument.name):
        return [f"{argument.name!r} is not a C identifier"]
    known = ELEMENT_TYPES if argument.role in _TENSORS else _SCALARS
    if argument.dtype not in known or argument.order not in ("row", "column"):
        return [f"{argument.name}: {argument.dtype} in {argument.order} order is not known"]
    return []


def _of_case(signature: Signature, figures: CaseFigures) -> list[str]:
    found = []
    for argument in signature.arguments:
        if argument.role is Role.SIZE and not isinstance(figures.sizes.get(argument.name), int):
            found.append(f"no size {argument.name}")
        try:
            extents = [evaluate(text, figures.sizes) for text in argument.shape]
        except ExpressionError as error:
            found.append(f"{argument.name}: {error}")
            continue
        if any(not isinstance(extent, int) or extent < 0 for extent in extents):
            found.append(f"{argument.name}: a shape of {extents}")
    return found
