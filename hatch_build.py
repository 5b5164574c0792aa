"""Give a package its dependencies: those of the requirement files, which stay the only list."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

ROOT = Path(__file__).resolve().parent
# GPU machines bring a torch of their own, built for their driver: a runner takes whichever one is there.
OF_THE_MACHINE = ("torch", "triton")


class Requirements(MetadataHookInterface):
    """Read the requirement files that `[tool.hatch.metadata.hooks.custom]` names."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the dependencies; without the versions of `OF_THE_MACHINE` where the package asks for that."""
        lines = [line for file in self.config["files"] for line in read(ROOT / file)]
        if self.config.get("any-torch"):
            lines = [name if (name := name_of(line)) in OF_THE_MACHINE else line for line in lines]
        metadata["dependencies"] = lines


def read(file: Path) -> list[str]:
    """Return the requirements of one file, without comments and included files."""
    lines = (line.partition(" #")[0].strip() for line in file.read_text().splitlines())
    return [line for line in lines if line and not line.startswith(("#", "-"))]


def name_of(requirement: str) -> str:
    """Return the package that a requirement names."""
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
