"""Consecutive parts of a ring, appended to an empty ring, give an equal ring."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storages.core.ring.ring import Ring
from storages.core.ring.snapshot import BEFORE, ROWS, ArrayKey, RowSpan, fill, spans
from tests.support.model import KINDS, STACKED_FRAMES, Stream, all_leaves, through_a_file
from tests.support.profiles import examples

SIZE = 7


def ring_for(kind: str) -> Ring:
    return Ring(SIZE, "Ring", stacked_frames=STACKED_FRAMES.get(kind, 0))


def copied(part: RowSpan) -> RowSpan:
    """A copy with contiguous arrays, which share no memory with the ring."""
    return RowSpan(
        part.first, part.steps, part.begins, part.since, {name: (part.array(*name).copy(),) for name in part.arrays}
    )


def bytes_in(ring: Ring) -> Any:
    live = np.arange(ring.start, ring.end)
    return [leaf.tobytes() for leaf in all_leaves(ring.gather(live))], ring.broken().tolist(), (ring.first, ring.steps)


@pytest.mark.long
@given(
    kind=st.sampled_from(KINDS),
    num_envs=st.sampled_from([1, 3]),
    lengths=st.lists(st.integers(0, SIZE - 1), min_size=1, max_size=12),
    seed=st.integers(0, 50),
)
@settings(max_examples=examples(120), deadline=None, derandomize=True)
def test_consecutive_parts_of_a_ring_together_equal_the_ring(
    kind: str, num_envs: int, lengths: list[int], seed: int
) -> None:
    stream, whole, parts = Stream(num_envs, kind, True, np.random.default_rng(seed)), ring_for(kind), ring_for(kind)
    taken = 0
    for number, length in enumerate([1, *lengths]):
        if number % 5 == 4:
            whole.reset()
        for _ in range(length):
            whole.insert(stream.step())
        if number % 4 == 3:
            whole.interrupt(None if number % 8 == 3 else np.arange(1), truncate=number % 8 == 3)
        part = copied(whole.snapshot(max(taken, whole.needed)))
        if not parts.layout:
            parts.prepare(whole.layout, whole.envs)
        parts.append_span(part)
        taken = whole.steps
        assert bytes_in(parts) == bytes_in(whole)
    for _ in range(SIZE + 2):
        sample = stream.step()
        whole.insert(sample)
        parts.insert(sample)
        assert bytes_in(parts) == bytes_in(whole)
    again = ring_for(kind)
    again.load_state_dict(through_a_file(parts.state_dict()))
    assert bytes_in(again) == bytes_in(whole)


def test_a_part_is_a_view_of_the_memory_of_the_ring() -> None:
    ring, stream = ring_for("vector"), Stream(2, "vector", False, np.random.default_rng(0))
    for _ in range(10):
        ring.insert(stream.step())
    pieces = ring.snapshot(6).arrays[ArrayKey(ROWS, ("Reward",))]
    assert [len(piece) for piece in pieces] == [2, 2]
    assert all(np.shares_memory(piece, ring.columns.data("Reward")) for piece in pieces)


@pytest.mark.parametrize(("first", "end", "places"), [(3, 3, []), (0, 5, [(0, 5)]), (6, 10, [(6, 8), (0, 2)])])
def test_spans_of_rows_are_contiguous_or_wrap_around(first: int, end: int, places: list[tuple[int, int]]) -> None:
    found = list(spans(first, end, 8))
    assert [(place.start, place.stop) for place in found] == places
    target = np.full(8, -1)
    fill(target, found, np.arange(first, end))
    assert [target[number % 8] for number in range(first, end)] == list(range(first, end))


def test_first_whole_skips_rows_whose_stacks_reach_back_before_the_part() -> None:
    before = np.array([[2, 0], [2, 1], [2, 2], [0, 2]], np.uint8)
    arrays = {ArrayKey(BEFORE, ("Observation",)): (before,)}
    assert RowSpan(10, 14, False, 0, arrays).first_whole(10) == 12
    assert RowSpan(10, 14, False, 0, {}).first_whole(10) == 10
