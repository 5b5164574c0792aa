"""Provide one folder for what the harness learns and caches about this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True, scope="module")
def harness_state() -> Iterator[None]:
    """Have every module's evaluations use one state folder, in which the noise floor is measured once.

    A test about the folder itself sets its own.
    """
    folder = Path(os.environ["KERNELSCI_TEST_VAR"]) / "harness"
    folder.mkdir(mode=0o700, exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNELSCI_STATE", str(folder))
        yield


@pytest.fixture(scope="module")
def fresh_state(harness_state: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Have the module's evaluations find no build and no cache of earlier ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNELSCI_STATE", str(tmp_path_factory.mktemp("state")))
        yield
