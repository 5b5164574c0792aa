"""Provide a team with one of everything, made once for a module."""

from __future__ import annotations

import pytest

from tests.site.access_world import World, make_world


@pytest.fixture(scope="module")
def world_rows(module_rows: None) -> World:
    """Make the rows of `world` once for the module. Tests ask for `world`."""
    return make_world()


@pytest.fixture
def world(world_rows: World, db: None) -> World:
    """Return a team with one of everything and a person for every way of standing to it, as they were made."""
    return world_rows
