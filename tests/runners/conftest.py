"""Shorten what the harness learns about this machine, and give a module caches of its own where it asks for them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from runners.harness.oracle import pool as pools
from runners.harness.timing import noise


@pytest.fixture(autouse=True, scope="module")
def rough_noise_floor() -> Iterator[None]:
    """Measure the noise floor, which all evaluations of a test run share, by few comparisons.

    It comes out wider than by many, so that a verdict is rather too careful.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(noise, "MOST_COMPARISONS", 3)
        yield


@pytest.fixture(scope="module")
def fresh_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Have the module's evaluations find no build and no cache of earlier ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNELSCI_STATE", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="module")
def one_torch_for_all_problems() -> Iterator[None]:
    """Fork the oracles of the module's problems from the process that serves shipped ones and holds torch already.

    A problem of somebody else's has a process of its own, which imports torch again; those of a test are our own.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pools, "shares_process", lambda bundle: True)
        yield
