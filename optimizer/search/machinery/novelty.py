"""Is a proposal new? Asked before it costs an evaluation.

Exact: same text, tunables and flags. Normalised: the same after comments and white space are gone. A third check,
the same binary, is the harness's: it needs a build (`JobSpec.known_artefacts`, `optimizer.loop.artefacts`).
"""

from __future__ import annotations

import re
from functools import lru_cache

from optimizer.search.base import History, KernelView
from runners.job import Language, Source

_C_TOKENS = re.compile(
    r"""(?P<keep>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|[A-Za-z_]\w*|\.?\d[\w.']*|\#[^\n]*|[^\s\w])"""
    r"""|(?P<drop>//[^\n]*|/\*.*?\*/|\s+)""",
    re.DOTALL,
)
_C_COMMENTS = re.compile(r"""("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|//[^\n]*|/\*.*?\*/""", re.DOTALL)
_PYTHON_COMMENTS = re.compile(
    r'''("""(?:\\.|[^\\])*?"""|\'\'\'(?:\\.|[^\\])*?\'\'\'|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|\#[^\n]*''',
    re.DOTALL,
)


@lru_cache(maxsize=4096)
def normalise(language: Language, text: str) -> str:
    """The text without comments and without white space that means nothing in that language. Two texts that agree
    after this build the same kernel; the reverse need not hold."""
    if language in {Language.PYTHON, Language.TRITON}:
        return _normalise_python(text)
    without = _C_COMMENTS.sub(lambda match: match.group(1) or " ", text)
    return "\x00".join(match.group() for match in _C_TOKENS.finditer(without) if match.group("keep"))


def same_kernel(left: Source, right: Source) -> bool:
    """True when both build the same kernel as far as the text can tell. Tunable declarations sit in comments, so a
    kernel that declares other tunables is compared by what it was built with."""
    return (
        left.language == right.language
        and left.tunables == right.tunables
        and left.flags == right.flags
        and normalise(left.language, left.text) == normalise(right.language, right.text)
    )


def twin_of(source: Source, history: History, own_key: str = "") -> KernelView | None:
    """An older kernel of the run that is the same, or None. `own_key` names the kernel that the source belongs to:
    only those before it count, so that a replay decides as it did the first time."""
    own = history.kernel(own_key) if own_key else None
    older = [kernel for kernel in history.kernels if own is None or kernel.number < own.number]
    return next((kernel for kernel in older if same_kernel(kernel.source, source)), None)


def _normalise_python(text: str) -> str:
    without = _PYTHON_COMMENTS.sub(lambda match: match.group(1) or "", text)
    lines = (line.rstrip() for line in without.splitlines())
    return "\n".join(line for line in lines if line)
