"""Name the formats in which a kernel leaves, and write their files to a folder or into one archive."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from runners.export.layouts import flashinfer, huggingface
from runners.export.modelnew import modelnew
from runners.export.package import Exported, package

# The oldest time that the format knows: the same kernel gives the same bytes on every day.
EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Format:
    """Describe one format: its label on pages, and the files that it consists of."""

    label: str
    files: Callable[[Exported], dict[str, str]]


FORMATS = {
    "package": Format("Python package", package),
    "huggingface": Format("Hugging Face kernels", huggingface),
    "flashinfer": Format("flashinfer-bench trace set", flashinfer),
    "kernelbench": Format("KernelBench ModelNew", lambda kernel: {f"{kernel.name}.py": modelnew(kernel)}),
}


def write(files: dict[str, str], folder: Path) -> list[Path]:
    """Write files below a folder and return their paths. Raises FileExistsError rather than overwrite one."""
    taken = [path for path in files if (folder / path).exists()]
    if taken:
        raise FileExistsError(f"{folder / taken[0]} exists; choose another folder or remove it")
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return [folder / path for path in files]


def archive(files: dict[str, str], root: str) -> bytes:
    """Return the files as a zip archive with one folder at its top."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as packed:
        for path, text in sorted(files.items()):
            packed.writestr(zipfile.ZipInfo(f"{root}/{path}", EPOCH), text, zipfile.ZIP_DEFLATED)
    return made.getvalue()
