"""Consecutive parts of a ring, appended to an empty ring, give an equal ring."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storages.core.ring.ring import Ring
from storages.core.ring.snapshot import RowSpan
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
