"""Read a kernel from a file: its text, and the language that its first line or its suffix names."""

from __future__ import annotations

import re
from pathlib import Path

from runners.job import Language, Limits, Source
from runners.verbs.errors import RefusedError

SUFFIXES = {
    ".cpp": Language.CPP,
    ".cc": Language.CPP,
    ".cxx": Language.CPP,
    ".hip": Language.HIP,
    ".cu": Language.CUDA,
    ".py": Language.PYTHON,
}
_MARKER = re.compile(r"^\s*(?://|#)\s*@language\s+(\w+)\s*$")
_TRITON = re.compile(r"^[ \t]*(import triton|from triton)\b", re.MULTILINE)


def read_source(path: Path) -> Source:
    """Read the kernel of a file. Raises RefusedError.

    The language comes from a first line `// @language NAME`, else from the suffix. A Python file that imports triton
    is a Triton kernel.
    """
    try:
        data = path.read_bytes()
        text = data.decode()
    except OSError as error:
        raise RefusedError(f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise RefusedError(f"{path}: not UTF-8 text (byte {error.start})") from error
    # The same limit as for jobs, so that the command accepts what a run would.
    if len(data) > Limits().source_bytes:
        raise RefusedError(f"{path}: {len(data)} bytes; at most {Limits().source_bytes} are accepted")
    return Source(language_of(path, text), text)


def language_of(path: Path, text: str) -> Language:
    """Return the language of a file. Raises RefusedError if neither the first line nor the suffix tells."""
    if marker := _MARKER.match(text.partition("\n")[0]):
        try:
            return Language(marker[1])
        except ValueError:
            raise RefusedError(f"{path}: {marker[1]} is not one of {', '.join(Language)}") from None
    if path.suffix not in SUFFIXES:
        raise RefusedError(
            f"{path}: name the language by a suffix ({', '.join(SUFFIXES)}) or a first line @language"
        )
    language = SUFFIXES[path.suffix]
    return Language.TRITON if language is Language.PYTHON and _TRITON.search(text) else language
