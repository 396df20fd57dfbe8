"""Steps arrive bitwise equal, and observations are sent once."""

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from storages.sharded.compact_steps import Compact
from storages.transition import ACT, DONE2, OBS, OBS2, REW

DTYPES = (np.float32, np.uint8, np.int64, np.float16)


def sent(steps: Any) -> tuple[dict[str, Any], int]:
    """Return the steps as another process gets them, and the bytes of their message."""
    message = pickle.dumps(Compact(steps), 5)
    return pickle.loads(message), len(message)


def same_bits(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same_bits(one[name], other[name]) for name in one)
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


def walk(random: np.random.Generator, steps: int, envs: int, shape: tuple[int, ...], dtype: Any, ends: Any) -> Any:
    """Observations and next observations of episodes that end where ``ends`` (steps, E) is true."""
    seen = random.integers(0, 3, (steps + 1, envs, *shape)).astype(dtype)
    following = seen[1:].copy()
    following[ends] = random.integers(0, 3, (int(ends.sum()), *shape)).astype(dtype)
    return seen[:-1].copy(), following


def stacked(random: np.random.Generator, steps: int, envs: int, frames: int, ends: Any) -> Any:
    """Stacks of frames (steps, E, frames, 2, 3), which begin anew with each episode."""
    stacks, following = [], []
    stack = np.repeat(random.integers(0, 9, (envs, 1, 2, 3)), frames, 1).astype(np.uint8)
    for step in range(steps):
        stacks.append(stack)
        newest = random.integers(0, 9, (envs, 1, 2, 3)).astype(np.uint8)
        after = np.concatenate([stack[:, 1:], newest], 1)
        following.append(after)
        begun = np.repeat(random.integers(0, 9, (envs, 1, 2, 3)), frames, 1).astype(np.uint8)
        stack = np.where(ends[step].reshape(-1, 1, 1, 1), begun, after)
    return np.stack(stacks), np.stack(following)


@given(
    st.integers(0, 10_000),
    st.integers(1, 9),
    st.integers(1, 3),
    st.sampled_from([(), (1,), (3,), (8,), (0,), (2, 3), (2, 2, 2)]),
    st.sampled_from(DTYPES),
    st.floats(0, 1),
)
def test_steps_of_any_shape_arrive_as_they_were(
    seed: int, steps: int, envs: int, shape: tuple[int, ...], dtype: Any, share: float
) -> None:
    random = np.random.default_rng(seed)
    ends = random.random((steps, envs)) < share
    one, after = walk(random, steps, envs, shape, dtype, ends)
    other, after_other = walk(random, steps, envs, (2,), np.float32, ends)
    rewards = random.random((steps, envs, 1))
    flat = {OBS: one, OBS2: after, REW: rewards, DONE2: ends}
    nested = {OBS: {"a": one, "b": other}, OBS2: {"a": after, "b": after_other}, REW: rewards}
    for fields in (flat, nested, {OBS2: after, OBS: other}, {ACT: rewards}):
        assert same_bits(sent(fields)[0], fields)


@given(st.integers(0, 10_000), st.integers(1, 30), st.integers(1, 3), st.integers(1, 5), st.floats(0, 1))
def test_stacks_of_frames_arrive_as_they_were(seed: int, steps: int, envs: int, frames: int, share: float) -> None:
    random = np.random.default_rng(seed)
    stacks, following = stacked(random, steps, envs, frames, random.random((steps, envs)) < share)
    fields = {OBS: stacks, OBS2: following}
    assert same_bits(sent(fields)[0], fields)
    # Also where the layout in memory is not that of the shape.
    for view in (np.asfortranarray, lambda leaf: leaf[:, ::-1], lambda leaf: leaf[..., ::2]):
        turned = {OBS: view(stacks), OBS2: view(following)}
        assert same_bits(sent(turned)[0], {name: np.ascontiguousarray(leaf) for name, leaf in turned.items()})


def test_nan_and_zeros_of_both_signs_arrive_as_they_were() -> None:
    seen = np.array([0.0, -0.0, np.nan, np.inf, 1.0], np.float32).reshape(5, 1, 1)
    odd = seen.view(np.uint32).copy()
    odd[2] ^= 1
    fields = {OBS: seen[:-1], OBS2: odd.view(np.float32)[1:]}
    assert same_bits(sent(fields)[0], fields)
    signs = {OBS: np.zeros((5, 1, 1), np.float32), OBS2: np.full((5, 1, 1), -0.0, np.float32)}
    assert same_bits(sent(signs)[0], signs)


def test_each_observation_is_sent_once() -> None:
    random = np.random.default_rng(0)
    ends = random.random((1_000, 1)) < 0.01
    seen, following = walk(random, 1_000, 1, (17,), np.float32, ends)
    _, size = sent({OBS: seen, OBS2: following})
    assert size < 1.03 * seen.nbytes
    stacks, following = stacked(random, 500, 2, 4, random.random((500, 2)) < 0.01)
    _, size = sent({OBS: stacks, OBS2: following})
    assert size < 1.4 * stacks.nbytes / 4


def test_observations_that_follow_from_nothing_take_no_more_bytes() -> None:
    random = np.random.default_rng(0)
    always = np.ones((200, 2), bool)
    seen, following = walk(random, 200, 2, (9,), np.float32, always)
    stacks, after = stacked(random, 200, 2, 4, random.random((200, 2)) < 0.7)
    for fields in ({OBS: seen, OBS2: following}, {OBS: stacks, OBS2: after}):
        assert sent(fields)[1] < sum(leaf.nbytes for leaf in fields.values()) + 1_000


def test_images_whose_first_axis_is_no_stack_are_sent_as_they_are() -> None:
    images = np.random.default_rng(0).integers(0, 255, (21, 2, 3, 8, 8)).astype(np.uint8)
    fields = {OBS: images[:-1], OBS2: images[1:]}
    arrived, size = sent(fields)
    assert same_bits(arrived, fields)
    assert size == pytest.approx(images.nbytes, rel=0.05)


def test_tensors_arrive_as_tensors() -> None:
    seen = torch.arange(12.0).reshape(4, 1, 3)
    arrived, _ = sent({OBS: seen[:-1], OBS2: seen[1:].numpy(), REW: seen})
    assert all(torch.equal(arrived[name], leaf) for name, leaf in ((OBS, seen[:-1]), (REW, seen)))
    assert np.array_equal(arrived[OBS2], seen[1:].numpy())


def test_what_is_sent_is_not_changed() -> None:
    random = np.random.default_rng(0)
    stacks, following = stacked(random, 20, 2, 3, random.random((20, 2)) < 0.2)
    copies = stacks.copy(), following.copy()
    sent({OBS: stacks, OBS2: following})
    assert same_bits({OBS: stacks, OBS2: following}, dict(zip((OBS, OBS2), copies, strict=True)))
