"""Test shared memory: placement, guards, and what a hostile process can't do to it."""

from __future__ import annotations

import itertools
import os
import random
import resource

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.candidate.mapping import mapped
from runners.harness.memory.shared_memory import (
    ALIGNMENT_BYTES,
    GUARD_BYTES,
    SharedMemory,
    aligned,
    place,
    slot_bytes,
)

calls = st.lists(st.lists(st.integers(0, 20_000), min_size=1, max_size=4), min_size=1, max_size=6)


@given(calls, st.integers(0, 2**32), st.integers(0, 1 << 20))
def test_buffers_are_aligned_apart_and_guarded_on_both_sides(sizes: list[list[int]], seed: int, spare: int) -> None:
    arena_bytes = sum(slot_bytes(call) for call in sizes) + spare
    placed = place(arena_bytes, sizes, random.Random(seed))
    ranges = sorted(
        (o, o + s) for call, where in zip(sizes, placed, strict=True) for s, o in zip(call, where, strict=True)
    )
    assert all(start % ALIGNMENT_BYTES == 0 for start, _ in ranges)
    assert ranges[0][0] >= GUARD_BYTES and ranges[-1][1] + GUARD_BYTES <= arena_bytes
    for (_, end), (start, _) in itertools.pairwise(ranges):
        assert aligned(end) + GUARD_BYTES <= start - GUARD_BYTES


def test_addresses_differ_from_request_to_request() -> None:
    generator = random.Random(1)
    seen = {tuple(map(tuple, place(1 << 20, [[1000, 1000]] * 2, generator))) for _ in range(20)}
    assert len(seen) == 20


def test_calls_that_do_not_fit_are_refused() -> None:
    with pytest.raises(MemoryError):
        place(1 << 12, [[1 << 13]], random.Random(1))


def test_holder_of_the_descriptor_can_neither_shrink_nor_grow_the_memory() -> None:
    memory = SharedMemory("test", 8192)
    for size in (0, 4096, 1 << 20):
        with pytest.raises(PermissionError):
            os.ftruncate(memory.descriptor, size)
    memory.close()


def test_bytes_are_moved_filled_and_compared_within_bounds_only() -> None:
    one, two = SharedMemory("one", 4096), SharedMemory("two", 4096)
    one.fill(10, 5, 7)
    two.copy_from(0, one, 8, 9)
    assert two.read(0, 9) == bytes([0, 0, 7, 7, 7, 7, 7, 0, 0])
    assert two.equals(0, one, 8, 9) and not two.equals(0, one, 9, 9)
    for offset, size in ((-1, 2), (4090, 7), (0, 5000)):
        with pytest.raises(ValueError, match="outside"):
            one.fill(offset, size, 1)


def test_discarded_pages_read_as_zeros() -> None:
    memory = SharedMemory("test", 1 << 16)
    memory.fill(0, 1 << 16, 1)
    memory.discard(100, (1 << 16) - 100)
    assert memory.read(0, 4096) == b"\1" * 4096
    assert memory.read(4096, 4096) == bytes(4096)


def test_an_arena_is_mapped_with_all_its_pages_so_that_no_call_meets_them_first() -> None:
    size = 4 << 20
    memory = SharedMemory("arena", size)
    memory.fill(0, size, 7)
    view = memoryview(mapped(memory.descriptor))
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
    assert sum(view[offset] for offset in range(0, size, 4096)) == 7 * (size // 4096)
    assert resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before < size // 4096 // 16
    view.release()
    memory.close()
