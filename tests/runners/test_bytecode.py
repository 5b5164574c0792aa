"""Test that packages without bytecode are noticed: every sandboxed process would compile them anew."""

from __future__ import annotations

import compileall
from pathlib import Path

import pytest

from runners.harness.oracle import zygote
from runners.harness.oracle.zygote import _lacks_bytecode


def test_a_package_without_bytecode_lacks_it_until_it_is_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "plain_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert _lacks_bytecode("plain_package")
    compileall.compile_dir(package, quiet=2)
    assert not _lacks_bytecode("plain_package")
    assert not _lacks_bytecode("no_such_package")


def test_our_modules_are_compiled_once_and_the_shipped_problems_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, shipped = (
        tmp_path / "problems" / "base.py",
        tmp_path / "problems" / "shipped" / "softmax" / "reference.py",
    )
    shipped.parent.mkdir(parents=True)
    for file in (module, shipped):
        file.write_text("")
    monkeypatch.setattr(zygote, "PACKAGE", tmp_path)
    monkeypatch.setattr(zygote, "_lacks_bytecode", lambda package: False)
    zygote._compile_once.__wrapped__()
    assert (module.parent / "__pycache__").is_dir() and not (shipped.parent / "__pycache__").exists()
