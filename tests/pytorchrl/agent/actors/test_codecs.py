"""Codecs convert actions of every space between networks, storages and environments."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import pytorchrl as prl
from pytorchrl.agent.actors.codec import make_codec
from pytorchrl.agent.actors.heads import Policy, SquashedGaussianPolicy
from tests.support.by_hand import envs_with

CPU = torch.device("cpu")
UNEVEN = spaces.Box(np.array([[-2, 0], [0.1, -5]], np.float32), np.array([[2, 1], [0.3, 7]], np.float32))
BOUNDED: dict[str, Any] = {
    "one number": spaces.Box(-2, 2, (1,), np.float32),
    "no axes": spaces.Box(-1, 3, (), np.float32),
    "uneven matrix": UNEVEN,
    "unit": spaces.Box(-1, 1, (2,), np.float32),
    "double precision": spaces.Box(-0.3, 0.1, (2,), np.float64),
    "half precision": spaces.Box(-0.3, 0.1, (2,), np.float16),
}
OTHERS: dict[str, Any] = {
    "discrete": spaces.Discrete(4),
    "discrete with a start": spaces.Discrete(4, start=-3),
    "multidiscrete": spaces.MultiDiscrete([3, 4]),
    "multidiscrete matrix": spaces.MultiDiscrete([[3, 2], [2, 2]]),
    "multibinary": spaces.MultiBinary(3),
    "multibinary matrix": spaces.MultiBinary((2, 2)),
    "unbounded": spaces.Box(-np.inf, np.inf, (2,), np.float32),
    "bounded below": spaces.Box(np.array([0, -np.inf], np.float32), np.array([np.inf, np.inf], np.float32)),
}
ALL = BOUNDED | OTHERS


def uniform_actions(space: Any, number: int = 200) -> torch.Tensor:
    codec = make_codec(space, CPU, scaled=False)
    return codec.uniform(np.random.default_rng(0), number)


@pytest.mark.parametrize("name", BOUNDED)
def test_networks_get_actions_of_a_bounded_box_scaled_to_minus_one_to_one(name: str) -> None:
    space = BOUNDED[name]
    codec = make_codec(space, CPU, scaled=True)
    size = int(np.prod(space.shape))
    assert codec.size == size
    action = codec.uniform(np.random.default_rng(0), 300)
    assert action.shape == (300, size)
    assert action.dtype == torch.float32
    assert action.abs().max() <= 1
    assert action.min(0).values.max() < -0.9
    assert action.max(0).values.min() > 0.9
    in_env = codec.to_env(action)
    assert in_env.shape == (300, *(space.shape or (1,)))
    assert in_env.numpy().dtype == space.dtype
    assert all(space.contains(np.asarray(row)) for row in in_env.numpy().reshape(300, *space.shape))
    torch.testing.assert_close(
        codec.from_storage(in_env), action, atol=2e-3 if space.dtype == np.float16 else 1e-5, rtol=0
    )
    assert torch.equal(codec.features(action), action)
    assert torch.equal(codec.clip(3 * action), (3 * action).clamp(-1, 1))


@pytest.mark.parametrize("name", BOUNDED)
def test_the_environment_gets_actions_within_the_box_whatever_the_policy_samples(name: str) -> None:
    space = BOUNDED[name]
    codec = make_codec(space, CPU, scaled=True)
    sampled = 3 * torch.randn((300, codec.size), generator=torch.Generator().manual_seed(0))
    before = sampled.clone()
    in_env = codec.to_env(sampled).numpy().reshape(300, *space.shape)
    assert all(space.contains(np.asarray(row)) for row in in_env)
    assert torch.equal(sampled, before)


@pytest.mark.parametrize("end", [-1.0, 1.0])
@pytest.mark.parametrize("name", BOUNDED)
def test_minus_one_and_one_map_to_the_bounds_of_the_box(name: str, end: float) -> None:
    space = BOUNDED[name]
    codec = make_codec(space, CPU, scaled=True)
    bound = codec.to_env(torch.full((1, codec.size), end)).numpy().reshape(space.shape)
    np.testing.assert_allclose(bound, space.low if end < 0 else space.high, rtol=1e-3)
    assert space.contains(bound)


@pytest.mark.parametrize("name", ALL)
def test_uniform_actions_have_the_dtype_and_shape_of_policy_samples(name: str) -> None:
    space = ALL[name]
    actor = prl.OnPolicyActor.create_factory(hidden_sizes=())(CPU, envs_with(space))
    sampled = actor.make("policy", Policy())(actor.view(torch.randn(200, 3))).sample(torch.Generator())
    random = uniform_actions(space)
    assert random.dtype == sampled.dtype, "a storage keeps actions of one dtype"
    assert random.shape == sampled.shape
    codec = make_codec(space, CPU, scaled=False)
    for action in (sampled, random):
        assert codec.features(action).shape == (200, codec.size)
        assert codec.features(action).dtype == torch.float32
        assert codec.from_storage(action) is action
        assert codec.clip(action).shape == action.shape


@pytest.mark.parametrize("name", BOUNDED)
def test_scaled_uniform_actions_have_the_dtype_and_shape_of_policy_samples(name: str) -> None:
    space = BOUNDED[name]
    actor = prl.OffPolicyActor.create_factory(hidden_sizes=())(CPU, envs_with(space))
    sampled = actor.make("policy", SquashedGaussianPolicy())(actor.view(torch.randn(200, 3))).sample(torch.Generator())
    random = make_codec(space, CPU, scaled=True).uniform(np.random.default_rng(0), 200)
    assert (random.dtype, random.shape) == (sampled.dtype, sampled.shape)


@pytest.mark.parametrize(
    "name", ["discrete", "discrete with a start", "multidiscrete", "multidiscrete matrix", "multibinary"]
)
def test_networks_get_discrete_actions_as_concatenated_one_hot_vectors(name: str) -> None:
    space = OTHERS[name]
    codec = make_codec(space, CPU, scaled=False)
    action = uniform_actions(space)
    features = codec.features(action).numpy()
    choices = {
        "discrete": [4], "discrete with a start": [4], "multidiscrete": [3, 4], "multidiscrete matrix": [3, 2, 2, 2],
        "multibinary": [2, 2, 2],
    }[name]  # fmt: skip
    assert codec.size == sum(choices)
    parts = np.split(features, np.cumsum(choices)[:-1], axis=1)
    np.testing.assert_array_equal(np.stack([part.argmax(1) for part in parts], 1), action.flatten(1).numpy())
    np.testing.assert_array_equal(np.stack([part.sum(1) for part in parts]), 1)


@pytest.mark.parametrize("name", ["one number", "uneven matrix", "bounded below"])
def test_actions_beyond_bounds_are_clipped_for_the_environment_but_not_in_storage(name: str) -> None:
    space = ALL[name]
    codec = make_codec(space, CPU, scaled=False)
    action = 100 * torch.randn(200, *space.shape)
    in_env = codec.to_env(action)
    assert all(space.contains(row) for row in in_env.numpy())
    torch.testing.assert_close(in_env.numpy(), np.clip(action.numpy(), space.low, space.high))
    assert codec.from_storage(action) is action


def test_unbounded_actions_are_not_changed() -> None:
    codec = make_codec(OTHERS["unbounded"], CPU, scaled=False)
    action = 100 * torch.randn(5, 2)
    assert codec.to_env(action) is action
    assert codec.clip(action) is action
