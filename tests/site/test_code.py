"""Test the code itself: style, formatting, types and the direction of imports, as part of every full run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings

BIN = Path(sys.executable).parent
TEMPLATE_CHARS, SCRIPT_LINES = 120, 200
FOLDERS = ["kernelsci", "kernelsci_site", "optimizer", "runners", "benchmarks", "tests", "manage.py"]


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


def test_every_line_of_a_template_has_fewer_than_120_characters() -> None:
    long = [
        f"{template.relative_to(settings.BASE_DIR)}:{number} has {len(line)}"
        for template in (settings.BASE_DIR / "templates").rglob("*.*")
        for number, line in enumerate(template.read_text().splitlines(), 1)
        if len(line) >= TEMPLATE_CHARS
    ]
    assert long == []


def test_no_script_of_ours_is_longer_than_200_lines() -> None:
    scripts = {
        script.name: len(script.read_text().splitlines()) for script in settings.BASE_DIR.glob("static/js/*")
    }
    assert {name: lines for name, lines in scripts.items() if lines > SCRIPT_LINES} == {}
