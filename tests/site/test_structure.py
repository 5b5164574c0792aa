"""The count of import cycles: it finds those that exist, and there are none in the product."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.conf import settings

from benchmarks.structure import PACKAGES, Structure, structure_of


def package(folder: Path, **files: str) -> Structure:
    """Write modules, named with `__` for a slash, below a package `shop`, and return its structure."""
    for name, text in files.items():
        path = folder / "shop" / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return structure_of(folder / "shop")


def test_two_files_that_import_each_other_are_one_cycle(tmp_path: Path) -> None:
    found = package(tmp_path, a="from shop import b", b="def f():\n    from shop.a import g", c="import shop.a")
    assert found.between_files == [["shop.a", "shop.b"]]
    assert found.at_top == ["a.py", "b.py", "c.py"]


def test_an_import_by_name_counts(tmp_path: Path) -> None:
    found = package(tmp_path, a="import shop.b", b="from importlib import import_module\nimport_module('shop.a')")
    assert found.between_files == [["shop.a", "shop.b"]]


def test_two_folders_may_be_in_a_cycle_without_a_cycle_of_files(tmp_path: Path) -> None:
    found = package(tmp_path, x__a="from shop.y.b import n", x__c="", y__b="n = 1", y__d="from ..x import c")
    assert found.between_files == []
    assert found.between_folders == [["shop.x", "shop.y"]]


def test_a_folder_may_import_what_lies_beside_it(tmp_path: Path) -> None:
    found = package(tmp_path, base="", deep__a="from shop.base import x", top="from shop.deep import a")
    assert (found.between_files, found.between_folders) == ([], [])


@pytest.mark.parametrize("name", PACKAGES)
def test_the_product_has_no_cycle_and_few_modules_at_the_top(name: str) -> None:
    found = structure_of(settings.BASE_DIR / name)
    assert (found.between_files, found.between_folders) == ([], [])
    if name == "optimizer":
        assert len(found.at_top) <= 8, found.at_top
