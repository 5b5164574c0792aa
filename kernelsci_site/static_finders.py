"""Find static files in packages that are no Django apps."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import plotly
from django.contrib.staticfiles.finders import BaseFinder
from django.core.files.storage import FileSystemStorage

PLOTLY_PATH = "plotly/plotly.min.js"


class PlotlyFinder(BaseFinder):
    """Serve the plotly.js of the installed plotly package as `plotly/plotly.min.js`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.folder = Path(plotly.__file__).parent / "package_data"
        self.storage = FileSystemStorage(location=self.folder)
        self.storage.prefix = "plotly"  # type: ignore[attr-defined]  # how finders name a storage's folder

    def find(self, path: str, find_all: bool = False, **_kwargs: Any) -> Any:
        """Return the file's path when it is the requested one, else nothing."""
        found = str(self.folder / "plotly.min.js") if path == PLOTLY_PATH else None
        if find_all:
            return [found] if found else []
        return found or []

    def list(self, ignore_patterns: Iterable[str] | None) -> Iterable[tuple[str, FileSystemStorage]]:
        """Return the file for collectstatic and whitenoise."""
        return [("plotly.min.js", self.storage)]
