"""Test that bytes which differ are found wherever they lie, in pieces and in words."""

from __future__ import annotations

import random

import pytest
import torch

from runners.harness.oracle import oracle
from runners.harness.oracle.gpu_oracle import uncovered
from runners.harness.oracle.oracle import differs


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oracle, "PIECE_BYTES", 64)


def random_bytes(count: int) -> torch.Tensor:
    """Return the same bytes for the same count."""
    return torch.randint(0, 256, (count,), dtype=torch.uint8, generator=torch.Generator().manual_seed(count))


@pytest.mark.parametrize("count", [1, 7, 8, 63, 64, 65, 200])
def test_one_changed_byte_is_found_at_every_place(count: int) -> None:
    found = random_bytes(count)
    assert not differs(found, found.clone())
    for place in range(count):
        other = found.clone()
        other[place] ^= 0x80
        assert differs(found, other)


@pytest.mark.parametrize("value", [0, 1, 0x7F, 0x80, 0xFF])
def test_a_byte_that_is_not_the_wanted_value_is_found_at_every_place(value: int) -> None:
    found = torch.full((75,), value, dtype=torch.uint8)
    assert not differs(found, value)
    for place in range(len(found)):
        other = found.clone()
        other[place] ^= 1
        assert differs(other, value)


@pytest.mark.parametrize(("start", "other_start"), [(1, 0), (0, 3), (5, 2), (8, 1)])
def test_bytes_that_do_not_begin_at_a_word_are_compared_too(start: int, other_start: int) -> None:
    values = random_bytes(100)
    one, other = (torch.cat([torch.zeros(n, dtype=torch.uint8), values])[n:] for n in (start, other_start))
    assert not differs(one, other)
    other[99] ^= 1
    assert differs(one, other)


def test_what_lies_between_pieces_is_found_whatever_their_order() -> None:
    generator = random.Random(4)
    for _ in range(200):
        pieces = [(generator.randrange(60), generator.randrange(9)) for _ in range(generator.randrange(8))]
        covered = {place for start, size in pieces for place in range(start, start + size)}
        left = [place for start, size in uncovered(pieces, 70) for place in range(start, start + size)]
        assert left == [place for place in range(70) if place not in covered]
