"""Find static files in packages that are no Django apps: plotly's from its wheel, others from npm."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import plotly
from django.contrib.staticfiles.finders import BaseFinder
from django.core.files.storage import FileSystemStorage

# What comes from npm (kernelsci_site/npm/package.json): `make install` installs it beside the Python packages, and a
# wheel brings it along (hatch_build.py).
_INSTALLED = Path(sys.prefix) / "browser" / "node_modules"
NPM_FOLDER = _INSTALLED if _INSTALLED.exists() else Path(__file__).parent / "npm" / "node_modules"
# Scripts by what they are for, each after those that it needs.
NPM_SCRIPTS = {
    "morph": ["idiomorph/dist/idiomorph-ext.min.js"],
    "zoom": [
        f"d3-{name}/dist/d3-{name}.min.js"
        for name in (
            "color", "dispatch", "ease", "interpolate", "selection", "timer", "drag", "transition", "zoom",
        )
    ],
}  # fmt: skip


class _PackageFinder(BaseFinder):
    """Serve some files of a package below a prefix. Files that are not there are left out."""

    prefix: str
    folder: Path
    names: Iterable[str]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.storage = FileSystemStorage(location=self.folder)
        self.storage.prefix = self.prefix  # type: ignore[attr-defined]  # how finders name a storage's folder

    def find(self, path: str, find_all: bool = False, **_kwargs: Any) -> Any:
        """Return the file's path when it is one of the package's, else nothing."""
        found = next((str(self.folder / name) for name in self._present() if path == f"{self.prefix}/{name}"), None)
        if find_all:
            return [found] if found else []
        return found or []

    def list(self, ignore_patterns: Iterable[str] | None) -> Iterable[tuple[str, FileSystemStorage]]:
        """Return the files for collectstatic and whitenoise."""
        return [(name, self.storage) for name in self._present()]

    def _present(self) -> Iterable[str]:
        return [name for name in self.names if (self.folder / name).exists()]


class PlotlyFinder(_PackageFinder):
    """Serve the plotly.js of the installed plotly package as `plotly/plotly.min.js`."""

    prefix, folder, names = "plotly", Path(plotly.__file__).parent / "package_data", ["plotly.min.js"]


class NpmFinder(_PackageFinder):
    """Serve the scripts that pages take from npm below `npm/`."""

    prefix, folder, names = "npm", NPM_FOLDER, [path for paths in NPM_SCRIPTS.values() for path in paths]
