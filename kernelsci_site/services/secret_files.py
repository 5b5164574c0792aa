"""Copy the installation's secrets to a file and back.

They are kept apart from the backup of the database: with both, its encrypted provider keys can be read. Without the
signing key, receipts that were issued before a loss can no longer be told to be this installation's.
"""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

from kernelsci_site.services.dump import DumpError

# A secret is a line of text. More is no file of ours.
MAX_FILES, MAX_BYTES = 50, 64 * 1024
# The passwords of this machine's own servers fit no others, and neither does the configuration of Redis.
LOCAL = frozenset({"postgres", "redis", "redis.conf"})


def save_secrets(folder: Path, receipt_key: Path, file: Path) -> list[str]:
    """Write every secret, and the signing key wherever it lies, to `file`, readable by its owner alone.

    Return their names. The file is written completely or not at all. Raises DumpError where there is nothing to save.
    """
    found = {path.name: path for path in sorted(folder.glob("[!.]*")) if path.is_file() and path.name not in LOCAL}
    if receipt_key.is_file():
        found[receipt_key.name] = receipt_key
    if not found:
        raise DumpError(f"{folder}: there are no secrets here")
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    handle = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        with os.fdopen(handle, "wb") as target, tarfile.open(fileobj=target, mode="w") as archive:
            for name, path in found.items():
                _add(archive, name, path.read_bytes())
            target.flush()
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)
    return list(found)


def restore_secrets(file: Path, folder: Path, receipt_key: Path) -> list[str]:
    """Write the secrets of `file` back, each readable by its owner alone, and return the names of those that changed.

    Every installation makes secrets of its own at its first command, so those here are replaced. Raises DumpError for a
    file that is none of ours, before anything is written.
    """
    found = _read(file)
    places = {name: receipt_key if name == receipt_key.name else folder / name for name in found}
    changed = {name: path for name, path in places.items() if not path.exists() or path.read_bytes() != found[name]}
    for name, path in changed.items():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        with os.fdopen(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as target:
            target.write(found[name])
        draft.replace(path)
    return sorted(changed)


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(data), 0o600
    archive.addfile(member, io.BytesIO(data))


def _read(file: Path) -> dict[str, bytes]:
    """Return the contents by name. Raises DumpError for anything but small files with plain names."""
    try:
        with tarfile.open(file) as archive:
            members = archive.getmembers()
            # Never extracted by path: a name with a slash, or a link, could lead anywhere.
            if len(members) > MAX_FILES or not all(_is_ours(member) for member in members):
                raise DumpError(f"{file}: not a backup of secrets")
            read = {member.name: archive.extractfile(member) for member in members}
            return {name: stream.read() for name, stream in read.items() if stream is not None}
    except (tarfile.TarError, OSError) as error:
        raise DumpError(f"{file}: not a backup of secrets") from error


def _is_ours(member: tarfile.TarInfo) -> bool:
    is_plain = member.isreg() and member.size <= MAX_BYTES
    return is_plain and Path(member.name).name == member.name and not member.name.startswith(".")
