"""Test the code itself: style, formatting, types and the direction of imports, as part of every full run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings

BIN = Path(sys.executable).parent
FOLDERS = ["kernelsci_site", "optimizer", "runners", "benchmarks", "tests", "manage.py"]


@pytest.mark.slow
@pytest.mark.split
@pytest.mark.parametrize(
    "command",
    [
        ["ruff", "check", *FOLDERS],
        ["ruff", "format", "--check", *FOLDERS],
        ["mypy"],
        ["lint-imports", "--no-logo"],
    ],
    ids=["style", "format", "types", "imports"],
)
def test_the_code_is_clean(command: list[str]) -> None:
    program, *arguments = command
    done = subprocess.run(
        [BIN / program, *arguments], cwd=settings.BASE_DIR, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
