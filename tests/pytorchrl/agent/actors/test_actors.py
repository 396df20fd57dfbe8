"""Actors take every observation space, and heads fit every action space."""

import math
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import pytorchrl as prl
from pytorchrl.agent.actors.bodies import MLP
from pytorchrl.agent.actors.encoders import NatureCNN, features_of
from pytorchrl.agent.actors.heads import ActionScale, GaussianHead
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
def test_every_observation_space_reaches_the_heads(name: str) -> None:
    space = OBSERVATIONS[name]
    obs = batch_of(space, 3)
    on_policy = prl.OnPolicyActor.create_factory((8,))("cpu", spaces_of(space, spaces.Discrete(4)))
    on_policy.create_policy()
    on_policy.create_value_function()
    policy, value = on_policy.policy_and_value(obs)
    assert policy.mode().shape == (3, 1)
    assert value.shape == (3, 1)
    torch.testing.assert_close(on_policy.value(obs, None, torch.zeros(3, 1)), value)

    off_policy = prl.OffPolicyActor.create_factory((8,))("cpu", spaces_of(space, continuous(size=2)))
    off_policy.create_policy()
    off_policy.create_critics(3)
    action = off_policy.policy(obs).mode()  # type: ignore[union-attr]
    assert action.shape == (3, 2)
    assert [critic(obs, action).shape for critic in off_policy.critics] == [(3, 1)] * 3


def test_images_are_scaled_to_one_and_their_channels_found() -> None:
    last = NatureCNN(OBSERVATIONS["channels last"])
    first = NatureCNN(spaces.Box(0, 255, (3, 50, 60), np.uint8))
    first.load_state_dict(last.state_dict())
    image = torch.randint(0, 256, (2, 50, 60, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(last(image), first(image.movedim(-1, 1)))
    seen: list[torch.Tensor] = []
    last.convolutions.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    last(torch.full((1, 50, 60, 3), 255, dtype=torch.uint8))
    assert seen[0].max() == 1


def test_images_too_small_for_the_network_asked_for_are_refused() -> None:
    with pytest.raises(ValueError, match="NatureCNN: images must be at least 36 pixels"):
        features_of(spaces.Box(0, 255, (3, 20, 20), np.uint8), "uniform", "nature_cnn")


def test_a_discrete_observation_becomes_one_hot() -> None:
    features = features_of(spaces.Discrete(3, start=5), "uniform")
    assert torch.equal(features(torch.tensor([[5], [7]])), torch.tensor([[1.0, 0, 0], [0, 0, 1]]))


@pytest.mark.parametrize(("activation", "gain"), [("relu", math.sqrt(2)), ("tanh", 5 / 3)])
def test_orthogonal_weights_have_the_gain_of_their_activation(activation: Any, gain: float) -> None:
    weight = MLP(8, (8,), activation, "orthogonal").layers[0].weight
    torch.testing.assert_close(weight @ weight.T, gain**2 * torch.eye(8))  # type: ignore[operator]


@pytest.mark.parametrize("activation", ["relu", "tanh", "elu", "silu", "gelu"])
def test_every_activation_works(activation: Any) -> None:
    assert MLP(2, (4, 3), activation, "uniform")(torch.randn(5, 2)).shape == (5, 3)


def test_a_policy_is_almost_indifferent_at_first() -> None:
    actor = prl.OnPolicyActor.create_factory()("cpu", spaces_of(OBSERVATIONS["vector"], spaces.Discrete(4)))
    actor.create_policy()
    probabilities = actor.policy(torch.randn(100, 5)).log_probs.exp()  # type: ignore[union-attr]
    assert (probabilities - 0.25).abs().max() < 0.05


def test_a_shared_body_is_one_body() -> None:
    factory = prl.OnPolicyActor.create_factory((8,), shared_body=True)
    actor = factory("cpu", spaces_of(OBSERVATIONS["vector"], spaces.Discrete(4)))
    actor.create_policy()
    actor.create_value_function()
    assert actor.value_body is actor.policy_body
    assert actor.policy_and_value(torch.randn(3, 5))[1].shape == (3, 1)


def test_a_gaussian_begins_with_the_deviation_asked_for() -> None:
    head = GaussianHead(4, (2, 3), initial_log_std=-1.0)
    assert torch.all(head(torch.zeros(5, 4)).log_std == -1)
    assert head(torch.zeros(5, 4)).mean.shape == (5, 2, 3)


def test_a_deterministic_policy_gives_one_action_within_bounds() -> None:
    actor = prl.OffPolicyActor.create_factory((8,))("cpu", spaces_of(OBSERVATIONS["vector"], continuous(size=3)))
    actor.create_policy(deterministic=True)
    action = actor.policy(100 * torch.randn(6, 5))
    assert isinstance(action, torch.Tensor)
    assert action.shape == (6, 3)
    assert action.abs().max() <= 1


def test_actions_are_scaled_to_any_box_and_back() -> None:
    space = spaces.Box(np.array([[-2, 0], [0.1, -5]], np.float32), np.array([[2, 1], [0.3, 7]], np.float32))
    scale = ActionScale(space)
    unit = torch.tensor([[-1.0, -1, -1, -1], [1, 1, 1, 1], [0, 0.5, -0.5, 0.2]])
    action = scale.to_env(unit)
    assert action.shape == (3, 2, 2)
    assert all(space.contains(row) for row in action.numpy())
    torch.testing.assert_close(scale.from_env(action), unit)


def test_module_paths_that_users_know_give_the_same_classes() -> None:
    from pytorchrl.agent.storages import GAEBuffer
    from pytorchrl.agent.storages.off_policy import ReplayBuffer as ByPackage
    from pytorchrl.agent.storages.off_policy.replay_buffer import ReplayBuffer
    from pytorchrl.agent.storages.on_policy.gae_buffer import GAEBuffer as ByModule
    from pytorchrl.agent.storages.on_policy.vanilla_on_policy_buffer import VanillaOnPolicyBuffer

    assert prl.ReplayBuffer is ReplayBuffer is ByPackage
    assert prl.GAEBuffer is GAEBuffer is ByModule
    assert prl.VanillaOnPolicyBuffer is VanillaOnPolicyBuffer
