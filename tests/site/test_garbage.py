"""Test when a serving process freezes what it keeps."""

from __future__ import annotations

import gc
import itertools
import time

import pytest

from kernelsci_site.garbage import APART_S, MOST_FREEZES, FreezeSurvivors


def test_what_survives_a_full_collection_is_frozen_a_bounded_number_of_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    frozen: list[int] = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(1))
    freeze = FreezeSurvivors()
    for phase, generation in (("start", 2), ("stop", 0), ("stop", 1)):
        freeze(phase, {"generation": generation})
    assert not frozen
    collections = itertools.count()
    monkeypatch.setattr(time, "monotonic", lambda: next(collections) * APART_S / 2)
    for _ in range(4):
        freeze("stop", {"generation": 2})
    assert len(frozen) == 2  # every second one is too soon
    for _ in range(4 * MOST_FREEZES):
        freeze("stop", {"generation": 2})
    assert len(frozen) == MOST_FREEZES


def test_a_frozen_object_is_freed_as_ever_when_nothing_refers_to_it() -> None:
    freed: list[str] = []

    class Kept:
        def __del__(self) -> None:
            freed.append("freed")

    kept = [Kept()]
    before = gc.get_freeze_count()
    gc.callbacks.append(freeze := FreezeSurvivors())
    try:
        gc.collect()
        assert gc.get_freeze_count() > before
        kept.clear()
        assert freed == ["freed"]
    finally:
        gc.callbacks.remove(freeze)
