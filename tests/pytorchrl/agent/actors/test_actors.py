"""Actors accept every observation space, and heads every action space."""

import math
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import pytorchrl as prl
from pytorchrl.agent.actors.codec import make_codec
from pytorchrl.agent.actors.encoders import features_of
from pytorchrl.agent.actors.heads import ActionValue, DeterministicPolicy, Policy, SquashedGaussianPolicy, StateValue
from pytorchrl.agent.actors.layers.mlp import MLP
from pytorchrl.agent.actors.view import Observations
from tests.support.toys import Counter, continuous


def spaces_of(observation: gym.Space[Any], action: gym.Space[Any]) -> Any:
    return SimpleNamespace(observation_space=observation, action_space=action)


def batch_of(space: gym.Space[Any], size: int) -> Any:
    if isinstance(space, spaces.Dict):
        return {key: batch_of(part, size) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Discrete):
        return torch.arange(size)[:, None] % int(space.n)
    return torch.zeros((size, *space.shape), dtype=getattr(torch, str(space.dtype)))


OBSERVATIONS = {
    "vector": spaces.Box(-1, 1, (5,), np.float64),
    "matrix": spaces.Box(-1, 1, (2, 3), np.float32),
    "channels first": spaces.Box(0, 255, (4, 84, 84), np.uint8),
    "channels last": spaces.Box(0, 255, (50, 60, 3), np.uint8),
    "discrete": spaces.Discrete(6),
    "binary": spaces.MultiBinary(4),
    "dict": Counter("dict").observation_space,
    "names with dots": spaces.Dict({"a.b": spaces.Discrete(3), "": spaces.Box(0, 1, (2,), np.float32)}),
}


@pytest.mark.parametrize("name", OBSERVATIONS)
def test_actors_and_heads_accept_every_observation_space(name: str) -> None:
    space = OBSERVATIONS[name]
    obs = batch_of(space, 3)
    on_policy = prl.OnPolicyActor.create_factory(hidden_sizes=(8,))("cpu", spaces_of(space, spaces.Discrete(4)))
    policy, value = on_policy.make("policy", Policy()), on_policy.make("value", StateValue())
    view = on_policy.view(obs)
    assert policy(view).mode().shape == (3, 1)
    assert value(view).shape == (3, 1)
    torch.testing.assert_close(on_policy.value(obs, None, torch.zeros(3, 1)), value(view))

    box = continuous(size=2)
    off_policy = prl.OffPolicyActor.create_factory(hidden_sizes=(8,))("cpu", spaces_of(space, box))
    codec = make_codec(box, off_policy.device, scaled=True)
    view = off_policy.view(obs)
    action = off_policy.make("policy", SquashedGaussianPolicy())(view).mode()
    assert action.shape == (3, 2)
    critics = off_policy.make_ensemble("critics", ActionValue(), 3, codec=codec)
    assert [value.mean.shape for value in critics(view, action)] == [(3, 1)] * 3


@pytest.mark.parametrize("memory", [None, "gru"])
def test_networks_of_vectors_take_these_in_place_of_observations(memory: Any) -> None:
    factory = prl.OffPolicyActor.create_factory(
        hidden_sizes=(8, 6), memory=memory, per_network={"late": {"late_action": 1}, "small": {"hidden_sizes": ()}}
    )
    actor = factory("cpu", spaces_of(OBSERVATIONS["dict"], continuous(size=2)))
    codec = make_codec(continuous(size=2), torch.device("cpu"), scaled=True)
    vectors, action = Observations(torch.randn(3, 4)), torch.zeros(3, 2)
    assert actor.make("policy", SquashedGaussianPolicy(), vectors=4)(vectors).mode().shape == (3, 2)
    assert actor.make("small", StateValue(), vectors=4)(vectors).shape == (3, 1)
    late = actor.make("late", ActionValue(), codec=codec, vectors=4)
    assert [tuple(layer.weight.shape) for part in (late.body.hidden, late.joint) for layer in part.layers] == [
        (8, 4),
        (6, 10),
    ]
    critics = actor.make_ensemble("critics", ActionValue(), 2, codec=codec, vectors=4)
    assert [value.mean.shape for value in critics(vectors, action)] == [(3, 1)] * 2
    if memory:
        # They have no recurrent states.
        assert actor.initial_memory(3).shape == (3, 0)


def test_a_discrete_observation_becomes_one_hot() -> None:
    features = features_of(spaces.Discrete(3, start=5), "uniform")
    assert torch.equal(features(torch.tensor([[5], [7]])), torch.tensor([[1.0, 0, 0], [0, 0, 1]]))


@pytest.mark.parametrize(("activation", "gain"), [("relu", math.sqrt(2)), ("tanh", 5 / 3)])
def test_orthogonal_weights_have_the_gain_of_their_activation(activation: Any, gain: float) -> None:
    weight = MLP(8, (8,), activation, "orthogonal").layers[0].weight
    torch.testing.assert_close(weight @ weight.T, gain**2 * torch.eye(8))  # type: ignore[operator]


@pytest.mark.parametrize("activation", ["relu", "tanh", "elu", "silu", "gelu", "mish"])
def test_every_activation_works(activation: Any) -> None:
    assert MLP(2, (4, 3), activation, "uniform")(torch.randn(5, 2)).shape == (5, 3)


def test_an_untrained_policy_is_almost_uniform() -> None:
    actor = prl.OnPolicyActor.create_factory()("cpu", spaces_of(OBSERVATIONS["vector"], spaces.Discrete(4)))
    probabilities = actor.make("policy", Policy())(actor.view(torch.randn(100, 5))).log_probs.exp()
    assert (probabilities - 0.25).abs().max() < 0.05


def test_a_gaussian_policy_starts_with_the_configured_standard_deviation() -> None:
    factory = prl.OnPolicyActor.create_factory(hidden_sizes=(8,), initial_log_std=-1.0)
    actor = factory("cpu", spaces_of(OBSERVATIONS["vector"], spaces.Box(-1, 1, (2, 3), np.float32)))
    policy = actor.make("policy", Policy())(actor.view(torch.zeros(5, 5)))
    assert torch.all(policy.log_std == -1)
    assert policy.mean.shape == (5, 2, 3)


@pytest.mark.parametrize("scale", [1.0, 0.05])
def test_a_deterministic_policy_gives_one_action_within_bounds(scale: float) -> None:
    factory = prl.OffPolicyActor.create_factory(hidden_sizes=(8,))
    actor = factory("cpu", spaces_of(OBSERVATIONS["vector"], continuous(size=3)))
    action = actor.make("policy", DeterministicPolicy(scale))(actor.view(100 * torch.randn(6, 5)))
    assert isinstance(action, torch.Tensor)
    assert action.shape == (6, 3)
    assert action.abs().max() <= scale
    assert action.abs().max() > 0.5 * scale
