"""Test that packages without bytecode are noticed: every sandboxed process would compile them anew."""

from __future__ import annotations

import compileall
from pathlib import Path

import pytest

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
