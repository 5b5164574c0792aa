"""Test the table of variables in docs/operations.md against what the code reads."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from kernelsci_site import environment

ROOT = Path(settings.BASE_DIR)
READERS = {"text", "flag", "words", "count", "number", "days", "get", "getenv", "pop"}
# what the product sets for processes of its own, and what every program reads
INSIDE = {
    "KERNELSCI_DEVICE", "KERNELSCI_FLUSH_BYTES", "KERNELSCI_SCARCE_MEMORY", "KERNELSCI_STARTED",
    "DJANGO_SETTINGS_MODULE", "PATH", "HOME", "MAX_JOBS", "PYTHONPATH", "TMPDIR", "TORCHINDUCTOR_COMPILE_THREADS",
    "TRITON_INTERPRET", "KERNELSCI_PRETENDED_DEVICE", "TRITON_CACHE_DIR",
}  # fmt: skip


@cache
def trees() -> dict[Path, ast.Module]:
    paths = [
        path
        for room in ("kernelsci", "kernelsci_site", "optimizer", "runners")
        for path in (ROOT / room).rglob("*.py")
    ]
    return {path: ast.parse(path.read_text()) for path in paths}


def constants(found: dict[Path, ast.Module]) -> dict[str, str]:
    """Return the module constants that hold one string, by their name."""
    return {
        target.id: node.value.value
        for tree in found.values() for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for target in node.targets if isinstance(target, ast.Name)
    }  # fmt: skip


def asked(tree: ast.Module) -> Iterator[ast.expr]:
    """Yield the names asked of `os.environ` and of `kernelsci_site.environment`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "os.environ":
            yield node.slice
        if isinstance(node, ast.Compare) and ast.unparse(node.comparators[0]) == "os.environ":
            yield node.left
        if isinstance(node, ast.Call) and node.args and _reads(node.func):
            yield node.args[0]


def _reads(called: ast.expr) -> bool:
    owner, _, name = ast.unparse(called).rpartition(".")
    return name in READERS and owner in {"env", "os", "os.environ", ""}


def variables() -> set[str]:
    """Return every variable that the code reads by name."""
    found = trees()
    named = constants(found)
    words = {ast.unparse(name) for tree in found.values() for name in asked(tree)}
    spelled = {ast.literal_eval(word) if word[0] in "'\"" else named.get(word, "") for word in words}
    return {word for word in spelled if re.fullmatch(r"[A-Z][A-Z_]{3,}", word)} - INSIDE


def test_every_variable_that_the_code_reads_is_in_the_table() -> None:
    read, told = variables(), documented()
    assert {"DATABASE_URL", "OIDC_SECRET", "KERNELSCI_SANDBOX", "NO_COLOR"} <= read, (
        "the search finds what is there"
    )
    assert read - told == set()


def test_every_variable_in_the_table_is_read() -> None:
    code = "".join(path.read_text() for path in trees())
    assert {name for name in documented() if f'"{name}"' not in code} == set()


def documented() -> set[str]:
    text = (ROOT / "docs" / "operations.md").read_text()
    rows = text.partition("\n## Environment\n")[2].partition("\n## ")[0]
    return {name for row in rows.splitlines() if row.startswith("| `")
            for name in re.findall(r"`([A-Z_]+)`", row.split("|")[1])}  # fmt: skip


def test_a_secret_may_be_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("from the file\n")
    monkeypatch.setenv("SOME_SECRET_FILE", str(secret))
    assert environment.text("SOME_SECRET", "default") == "from the file"
    monkeypatch.setenv("SOME_SECRET", "from the variable")
    assert environment.text("SOME_SECRET") == "from the variable"
    monkeypatch.delenv("SOME_SECRET")
    secret.unlink()
    with pytest.raises(ImproperlyConfigured, match="cannot be read"):
        environment.text("SOME_SECRET")
