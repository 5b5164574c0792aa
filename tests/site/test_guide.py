"""The developers' guide names files, functions and rooms that exist."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings

ROOT: Path = settings.BASE_DIR
GUIDES = ("docs/development.md", "CONTRIBUTING.md")
FOLDERS = "optimizer|runners|kernelsci_site|tests|benchmarks|docs|templates|static"
# Placeholders (NAME, KEY, ROLE, *) stand for what a reader adds.
PATH = re.compile(rf"`((?:{FOLDERS})/[a-z0-9_./-]+)(?::([A-Za-z_.]+))?`")
PICTURED = {"optimizer": "o", "runners": "r"}


def named() -> list[tuple[str, str]]:
    """Return (path, name in it or "") of everything that the guides name."""
    return sorted({found for guide in GUIDES for found in PATH.findall((ROOT / guide).read_text())})


def definitions(tree: ast.AST, prefix: str = "") -> Iterator[str]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{prefix}{node.name}"
            if isinstance(node, ast.ClassDef):
                yield from definitions(node, f"{prefix}{node.name}.")


@pytest.mark.parametrize(("path", "name"), named())
def test_what_the_guide_names_exists(path: str, name: str) -> None:
    assert (ROOT / path).exists()
    assert not name or name in set(definitions(ast.parse((ROOT / path).read_text())))


@pytest.mark.parametrize("package", PICTURED)
def test_the_picture_shows_the_layers_of_the_import_contracts(package: str) -> None:
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    contract = next(one for one in tool["contracts"] if one.get("containers") == [package])
    node = re.compile(rf'^ +{PICTURED[package]}\d+\["(.*)"\]$', re.MULTILINE)
    drawn = node.findall((ROOT / "docs/development.md").read_text())
    assert [set(line.split(" | ")) for line in drawn] == [set(line.split(" | ")) for line in contract["layers"]]


def test_the_readme_leads_to_both_guides() -> None:
    readme = (ROOT / "README.md").read_text()
    assert all(f"]({guide})" in readme for guide in GUIDES)
