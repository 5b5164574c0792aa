"""Test a second reader of a candidate's text, where it is installed; nothing rests on its advice."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from runners.harness.verdict.second_opinion import opinions
from runners.job import Language, Source

CHEAT = Source(
    Language.PYTHON, "import torch\ntorch.cuda.synchronize = lambda *a: None\ndef custom_kernel(x): return x\n"
)
READER = """
def analyze_code(text, compute_structural_hash):
    {body}
    found = [{{"pattern": "TIMER_MONKEYPATCH", "severity": "critical"}}, {{"pattern": "STYLE", "severity": "low"}}]
    return {{"matched_patterns": found if "synchronize =" in text else []}}
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Provide a folder on the import path, for a KernelGuard of one's own."""
    folder = tmp_path / "installed"
    folder.mkdir(mode=0o755)
    for parent in (tmp_path, *tmp_path.parents):
        if str(parent).startswith("/tmp/pytest"):
            parent.chmod(parent.stat().st_mode | 0o055)
    monkeypatch.syspath_prepend(folder)
    return folder / "kernelguard.py"


def test_without_a_reader_there_is_no_second_opinion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert opinions(CHEAT) == []


def test_grave_rules_that_match_become_flags(install: Path) -> None:
    install.write_text(READER.format(body="pass"))
    assert opinions(CHEAT) == ["kernelguard:TIMER_MONKEYPATCH"]
    assert opinions(Source(Language.PYTHON, "def custom_kernel(x): return x + 1")) == []


@pytest.mark.parametrize("body", ["raise RuntimeError", "import os; os._exit(0)", "print('[\"x\", 3')"])
def test_a_reader_that_fails_has_no_opinion(install: Path, body: str) -> None:
    install.write_text(READER.format(body=body) if "print" not in body else READER.format(body=f"{body}; return 1"))
    assert opinions(CHEAT) == []


def test_kernelguard_itself_sees_a_replaced_synchronisation() -> None:
    pytest.importorskip("kernelguard")
    assert "kernelguard:TIMER_MONKEYPATCH" in opinions(CHEAT)
