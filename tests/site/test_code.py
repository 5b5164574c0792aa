"""Test the code itself: style, formatting and types, as part of every full run."""

from __future__ import annotations

import subprocess
import sys

import pytest
from django.conf import settings

FOLDERS = ["kernelsci_site", "optimizer", "runners", "benchmarks", "tests", "manage.py"]


@pytest.mark.slow
@pytest.mark.split
@pytest.mark.parametrize(
    "command",
    [["ruff", "check", *FOLDERS], ["ruff", "format", "--check", *FOLDERS], ["mypy"]],
    ids=["style", "format", "types"],
)
def test_the_code_is_clean(command: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=settings.BASE_DIR, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
