"""Read and try a problem that somebody uploaded: unpack, parse and run it in sandboxes, never in the caller.

Two processes, one after the other. The first unpacks and parses, and executes nothing of the problem's; the second
runs its reference (`runners.problems.filters`). What they answer is checked like anything from outside.
"""

from __future__ import annotations

import base64
import io
import json
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from runners import wire
from runners.job import ProblemBundle
from runners.problems import find, load, open_bundle
from runners.problems.base import Case, Problem, ProblemError, Purpose
from runners.problems.confined import marked_line, run_module
from runners.problems.files import FILE_BYTES, FILE_COUNT, TOTAL_BYTES
from runners.problems.filters import Examination, examine, signed
from runners.problems.signature import read_signature

READ_S = 30.0
READ_BYTES = 1 << 30
RUN_S = 60.0
RUN_BYTES = 6 << 30
MOST_COMPLAINTS = 20
ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz")
_ANSWER = "kernel-scientist-reading "


@dataclass(frozen=True)
class Upload:
    """Hold what was sent: the content of one Python file or archive, and the name that the problem is to have."""

    name: str
    file_name: str
    content: bytes


@dataclass(frozen=True)
class ShownCase:
    """Describe one case for people."""

    name: str
    purpose: str
    sizes: dict[str, str]
    targets: tuple[str, ...]
    inputs: tuple[str, ...]
    reduced: str = ""


@dataclass(frozen=True)
class Reading:
    """Hold what parsing an upload showed: complaints, or the bundle and its description."""

    complaints: tuple[str, ...] = ()
    bundle: ProblemBundle | None = None
    title: str = ""
    description: str = ""
    languages: tuple[str, ...] = ()
    cases: tuple[ShownCase, ...] = ()


@dataclass(frozen=True)
class Inspection:
    """Hold everything that is known of an upload before it is added. It can be added if `complaints` is empty."""

    complaints: tuple[str, ...]
    reading: Reading = field(default_factory=Reading)
    examination: Examination | None = None
    no_signature: str = ""


def inspect(upload: Upload, run_s: float = RUN_S, run_bytes: int = RUN_BYTES) -> Inspection:
    """Unpack, parse and run an upload. Raises runners.sandbox.SandboxError where this machine has no sandbox."""
    reading = _read_apart(upload)
    if reading.bundle is None:
        return Inspection(reading.complaints or ("This holds no problem.",))
    examination = examine(reading.bundle, timeout_s=run_s, memory_bytes=run_bytes)
    if examination.failure is not None:
        return Inspection((f"The reference does not run: {examination.failure}.",), examination=examination)
    bundle = signed(reading.bundle, examination.signature)
    # A signature lets kernels be C functions too. The text was parsed before, apart: parsing it again is safe.
    languages = _languages(open_bundle(bundle))
    return Inspection((), replace(reading, bundle=bundle, languages=languages), examination, _no_signature(bundle))


def _no_signature(bundle: ProblemBundle) -> str:
    """Return why kernels cannot be C functions where they could be, or an empty text."""
    signature = read_signature(bundle.files, bundle.files.get(bundle.entry, ""))
    return signature.refused if signature is not None else ""


def _read_apart(upload: Upload) -> Reading:
    """Unpack and parse an upload in a sandbox of its own."""
    content = base64.b64encode(upload.content).decode()
    request = {"name": upload.name, "file_name": upload.file_name, "content": content}
    ended = run_module("runners.problems.uploading", request, READ_S, READ_BYTES)
    line = marked_line(ended.stdout, _ANSWER)
    if ended.killed_reason is not None or not line:
        return Reading(("This could not be read: it is too large or too deeply nested.",))
    try:
        return wire.loads(Reading, line)
    except wire.WireError:
        return Reading(("This could not be read.",))


def read_upload(upload: Upload, folder: Path) -> Reading:
    """Unpack an upload into an empty folder and parse it. This runs in the reading process; nothing is executed."""
    try:
        _unpack(upload, folder)
        found = [path for _, path in zip(range(3), find(folder), strict=False)]
        if len(found) > 1:
            names = ", ".join(path.relative_to(folder).as_posix() for path in found[:2])
            raise ProblemError([f"The archive holds several problems ({names}, …). Upload one at a time."])
        bundle = load(found[0] if found else _only_entry(folder))
        return _described(replace(bundle, name=upload.name))
    except ProblemError as error:
        return Reading(tuple(complaint[:400] for complaint in error.complaints[:MOST_COMPLAINTS]))
    except (RecursionError, MemoryError):
        return Reading(("This is too large or too deeply nested to be read.",))


def _only_entry(folder: Path) -> Path:
    """Return the folder's only entry, whose reading then says what is missing, or the folder."""
    entries = list(folder.iterdir())
    return entries[0] if len(entries) == 1 else folder


def _unpack(upload: Upload, folder: Path) -> None:
    """Write the files of an upload below a folder. Raises ProblemError."""
    if not upload.file_name.endswith(ARCHIVES):
        (folder / f"{upload.name}.py").write_bytes(upload.content[: FILE_BYTES + 1])
        return
    count = total = 0
    for name, content in _members(upload):
        count, total = count + 1, total + len(content)
        if count > FILE_COUNT or total > TOTAL_BYTES:
            raise ProblemError([f"More than {FILE_COUNT} files or {TOTAL_BYTES >> 20} MiB in the archive."])
        path = folder / _safe(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def _safe(name: str) -> PurePosixPath:
    """Return the path of an archive's member. Raises ProblemError for one that leaves the folder or is no file name."""
    path = PurePosixPath(name)
    plain = all(character.isalnum() or character in "._- +/" for character in name)
    if path.is_absolute() or ".." in path.parts or not path.parts or not plain or len(name) > 200:
        raise ProblemError([f"{name[:80]!r}: names of files have letters, digits, “.”, “_”, “-” and “+” only."])
    return path


def _members(upload: Upload) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of every plain file, without the hidden ones. Links and devices are left out."""
    try:
        if upload.file_name.endswith(".zip"):
            yield from _zipped(upload.content)
        else:
            yield from _tarred(upload.content)
    except (zipfile.BadZipFile, tarfile.TarError, EOFError, OSError, NotImplementedError, RuntimeError) as error:
        raise ProblemError([f"The archive cannot be opened: {' '.join(str(error).split())[:200]}."]) from error


def _zipped(content: bytes) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for member in archive.infolist():
            if not member.is_dir() and not _is_left_out(member.filename):
                with archive.open(member) as file:
                    # Read only up to the limit: the size that an archive declares may be a lie.
                    yield member.filename, file.read(FILE_BYTES + 1)


def _tarred(content: bytes) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for member in archive:
            file = archive.extractfile(member) if member.isreg() else None
            if file is not None and not _is_left_out(member.name):
                yield member.name, file.read(FILE_BYTES + 1)


def _is_left_out(name: str) -> bool:
    parts = PurePosixPath(name).parts
    # A way up is no hidden folder: it is refused later, with a reason.
    return any((part[0] == "." and part != "..") or part in ("__MACOSX", "__pycache__") for part in parts)


def _described(bundle: ProblemBundle) -> Reading:
    problem = open_bundle(bundle)
    if problem.obstacles:
        raise ProblemError(list(problem.obstacles))
    cases: dict[tuple[str, str], ShownCase] = {}
    for target in ("cpu", "gpu"):
        for purpose in Purpose:
            for case in problem.cases(target, purpose):
                known = cases.get((purpose, case.name))
                cases[purpose, case.name] = _joined(known, case) if known else _shown(case, purpose)
    shown = tuple(cases.values())
    return Reading((), bundle, problem.title[:200], problem.description, _languages(problem), shown)


def _joined(known: ShownCase, case: Case) -> ShownCase:
    """Return the known case with the targets of another of the same name added."""
    return replace(known, targets=tuple(dict.fromkeys([*known.targets, *case.targets])))


def _languages(problem: Problem) -> tuple[str, ...]:
    return tuple(language.value for language in problem.languages)


def _shown(case: Case, purpose: Purpose) -> ShownCase:
    sizes = {str(name)[:80]: str(value)[:80] for name, value in case.sizes.items()}
    return ShownCase(case.name, purpose.value, sizes, case.targets, case.distributions, case.reduced)


def main() -> None:
    """Answer a request on stdin with one marked line on stdout."""
    request = json.load(sys.stdin)
    upload = Upload(request["name"], request["file_name"], base64.b64decode(request["content"]))
    with tempfile.TemporaryDirectory() as scratch:
        # Complaints name this folder.
        folder = Path(scratch, upload.name)
        folder.mkdir()
        reading = read_upload(upload, folder)
    print(_ANSWER + json.dumps(wire.to_plain(reading)), flush=True)
