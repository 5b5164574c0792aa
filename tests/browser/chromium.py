"""Choose the browser and its options: the system's own Chromium, quietly, without calling home."""

from __future__ import annotations

import os
import shutil
from typing import Any

_QUIET = ["--disable-gpu", "--disable-background-networking", "--disable-component-update", "--no-first-run"]

LAUNCH: dict[str, Any] = {
    "executable_path": shutil.which("chromium") or shutil.which("google-chrome"),
    "args": [*_QUIET, *(["--no-sandbox"] if os.geteuid() == 0 else [])],  # its own sandbox refuses to work for root
}
