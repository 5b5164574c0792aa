"""Detect proposals that repeat an existing kernel, before they cost an evaluation.

Two kernels are duplicates when text, tunables and flags are equal, also after comments and insignificant white space
are removed. A third check, equal binaries, needs a build and is done by the harness (`JobSpec.known_artefacts`,
`optimizer.runs.artefacts`).
"""

from __future__ import annotations

import re
from functools import lru_cache

from optimizer.search.base import History, KernelView
from runners.job import Language, Source

# What has no end reaches to the end of its line or of the text: looking for one at every quote would take quadratic
# time.
_C_TOKENS = re.compile(
    r"""(?P<keep>"(?:\\.|[^"\\\n])*+"?|'(?:\\.|[^'\\\n])*+'?|[A-Za-z_]\w*|\.?\d[\w.']*|\#[^\n]*|[^\s\w])"""
    r"""|(?P<drop>//[^\n]*|/\*.*?(?:\*/|\Z)|\s+)""",
    re.DOTALL,
)
_C_COMMENTS = re.compile(r"""("(?:\\.|[^"\\\n])*+"?|'(?:\\.|[^'\\\n])*+'?)|//[^\n]*|/\*.*?(?:\*/|\Z)""", re.DOTALL)
_PYTHON_COMMENTS = re.compile(
    r'''("""(?:\\.|[^\\])*?(?:"""|\Z)|\'\'\'(?:\\.|[^\\])*?(?:\'\'\'|\Z)|"(?:\\.|[^"\\\n])*+"?'''
    r"""|'(?:\\.|[^'\\\n])*+'?)|\#[^\n]*""",
    re.DOTALL,
)


@lru_cache(maxsize=4096)
def normalise(language: Language, text: str) -> str:
    """Return the text without comments and without white space that has no meaning in the language.

    Equal results build the same kernel; the reverse need not hold.
    """
    if language in {Language.PYTHON, Language.TRITON}:
        return _normalise_python(text)
    without = _C_COMMENTS.sub(lambda match: match.group(1) or " ", text)
    # Join with a character that no source contains: `a b` and `ab` are different tokens.
    return "\x00".join(match.group() for match in _C_TOKENS.finditer(without) if match.group("keep"))


def same_kernel(left: Source, right: Source) -> bool:
    """Return True when both build the same kernel, as far as the text shows.

    Tunable declarations are comments, so kernels that declare different tunables are compared by the values with
    which they were built.
    """
    return (
        left.language == right.language
        and left.tunables == right.tunables
        and left.flags == right.flags
        and normalise(left.language, left.text) == normalise(right.language, right.text)
    )


def find_duplicate(source: Source, history: History, own_key: str = "") -> KernelView | None:
    """Return an older kernel of the run that is a duplicate of the source, or None.

    `own_key` names the kernel to which the source belongs. Only kernels before it count, so that a replay decides as
    it did the first time.
    """
    own = history.kernel(own_key) if own_key else None
    older = [kernel for kernel in history.kernels if own is None or kernel.number < own.number]
    return next((kernel for kernel in older if same_kernel(kernel.source, source)), None)


def _normalise_python(text: str) -> str:
    # Strings are matched first and kept, as they may contain a `#`.
    without = _PYTHON_COMMENTS.sub(lambda match: match.group(1) or "", text)
    # Indentation has a meaning in Python and stays.
    lines = (line.rstrip() for line in without.splitlines())
    return "\n".join(line for line in lines if line)
