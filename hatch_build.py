"""Give a package its dependencies, those of the requirement files, and the scripts that its pages take from npm."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

ROOT = Path(__file__).resolve().parent
NPM = ROOT / "kernelsci_site" / "npm"
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


class BrowserScripts(BuildHookInterface[Any]):
    """Put the scripts of pages into the wheel, with their licences (ISC, BSD, 0BSD), which ask for no more than that.

    They are not in the repository. Where npm's registry cannot be reached, the package goes without, as pages can.
    """

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """Return what the build needs: npm, where the machine has none."""
        return [] if shutil.which("npm") else read(NPM / "requirements.txt")

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Install the scripts into a folder that lasts as long as the build, and name them for the wheel."""
        if version == "editable":
            return
        self.folder = tempfile.TemporaryDirectory()
        folder = Path(self.folder.name)
        for file in NPM.glob("package*.json"):
            shutil.copy(file, folder)
        command = ["npm", "ci", "--silent", "--ignore-scripts", "--prefix", str(folder)]
        try:
            # A company's certificate authority is known to the system alone, which node has to be told to ask.
            environment = {**os.environ, "NODE_USE_SYSTEM_CA": "1"}
            subprocess.run([*command, "--cache", str(folder / "cache")], check=True, env=environment)
        except (OSError, subprocess.CalledProcessError) as error:
            self.app.display_warning(
                f"Pages go without morphing and zoom: their scripts could not be had ({error})"
            )
            return
        for file in browser_files(folder / "node_modules"):
            build_data["force_include"][str(file)] = f"kernelsci_site/npm/{file.relative_to(folder)}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the folder."""
        if version != "editable":
            self.folder.cleanup()


def browser_files(modules: Path) -> list[Path]:
    """Return what browsers load of npm's packages, and the packages' licences."""
    return sorted([*modules.glob("*/dist/*.min.js"), *modules.glob("*/LICENSE*")])


def read(file: Path) -> list[str]:
    """Return the requirements of one file, without comments and included files."""
    lines = (line.partition(" #")[0].strip() for line in file.read_text().splitlines())
    return [line for line in lines if line and not line.startswith(("#", "-"))]


def name_of(requirement: str) -> str:
    """Return the package that a requirement names."""
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
