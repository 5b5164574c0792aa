"""Shorten what the harness learns about this machine, and give a module caches of its own where it asks for them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

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
