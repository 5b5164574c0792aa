"""Read problem files from disk into memory, with size limits. Nothing outside the directory is followed."""

from __future__ import annotations

from pathlib import Path

from runners.problems.base import ProblemError

# A bundle travels whole with every job.
FILE_BYTES = 512 << 10
TOTAL_BYTES = 4 << 20
FILE_COUNT = 200
# Folders that tools leave behind; their content is not the problem's.
_IGNORED = {"__pycache__", "node_modules"}


def read_directory(root: Path, suffixes: tuple[str, ...] | None = None) -> dict[str, str]:
    """Return every UTF-8 text file below `root` by its relative POSIX path, without hidden files and binaries.

    Raises ProblemError naming each file that is a link or too large, and directories with too many files.
    """
    complaints: list[str] = []
    files: dict[str, str] = {}
    for path in _walk(root):
        relative = path.relative_to(root).as_posix()
        if suffixes is not None and path.suffix not in suffixes:
            continue
        if len(files) >= FILE_COUNT:
            complaints.append(f"{relative}: more than {FILE_COUNT} files in a problem directory")
            break
        _read_into(files, path, relative, complaints)
    if sum(len(text) for text in files.values()) > TOTAL_BYTES:
        complaints.append(f"{root.name}: the files are larger than {TOTAL_BYTES >> 20} MiB together")
    if complaints:
        raise ProblemError(complaints)
    return files


def read_file(path: Path, name: str | None = None) -> str:
    """Read one UTF-8 text file. Raises ProblemError."""
    complaints: list[str] = []
    files: dict[str, str] = {}
    label = name or path.name
    if not path.is_file():
        raise ProblemError([f"{label}: no such file"])
    _read_into(files, path, label, complaints, binary_is_fault=True)
    if complaints:
        raise ProblemError(complaints)
    return files[label]


def _walk(root: Path) -> list[Path]:
    found: list[Path] = []
    for path in sorted(root.iterdir()):
        if path.name.startswith(".") or path.name in _IGNORED:
            continue
        if path.is_dir() and not path.is_symlink():
            found += _walk(path)
        elif path.is_symlink() or path.is_file():
            found.append(path)
        if len(found) > 4 * FILE_COUNT:
            break
    return found


def _read_into(
    files: dict[str, str], path: Path, relative: str, complaints: list[str], *, binary_is_fault: bool = False
) -> None:
    try:
        if path.is_symlink():
            complaints.append(f"{relative}: links are not followed in a problem directory")
            return
        size = path.stat().st_size
        if size > FILE_BYTES:
            complaints.append(f"{relative}: {size} bytes; at most {FILE_BYTES} are read")
            return
        # The file may grow between the check and the reading.
        data = path.read_bytes()[: FILE_BYTES + 1]
    except OSError as error:
        complaints.append(f"{relative}: {error.strerror or error}")
        return
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        if binary_is_fault:
            complaints.append(f"{relative}: not UTF-8 text")
        return
    if "\0" not in text:
        files[relative] = text
    elif binary_is_fault:
        complaints.append(f"{relative}: holds NUL bytes")
