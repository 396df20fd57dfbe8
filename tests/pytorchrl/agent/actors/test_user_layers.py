"""Layers of users and of torch, in networks, heads and layers of one's own: their mode, and their random numbers."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

import pytorchrl as prl
from pytorchrl.agent.explorers import Exploration
from storages.transition import ADV, LOGP, RET, REW, VAL
from tests.support.by_hand import envs_with, replayed
from tests.support.comparison import assert_equal
from tests.support.toys import Noise
from tests.support.training import saved_and_loaded, train


class DropoutEncoder(nn.Module):
    def __init__(self, space: gym.Space[Any]) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Dropout(0.5))

    def forward(self, observation: Tensor) -> Tensor:
        features: Tensor = self.layers(observation)
        return features


def plain_torch(space: gym.Space[Any]) -> nn.Module:
    return nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Dropout(0.5))


@dataclass(frozen=True)
class DropoutPolicy(prl.heads.DistributionHead):
    def build(self, features: int, actor: Any) -> nn.Module:
        return DropoutLayers(nn.Sequential(nn.BatchNorm1d(features), nn.Dropout(0.5), actor.linear(features, 2)))


class DropoutLayers(nn.Module):
    def __init__(self, layers: nn.Module) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, features: Tensor) -> prl.outputs.Categorical:
        return prl.outputs.Categorical(self.layers(features))


class SpectralActor(prl.OnPolicyActor):
    def linear(self, inputs: int, outputs: int) -> nn.Module:
        return spectral_norm(super().linear(inputs, outputs))


class OldSpectralActor(prl.OnPolicyActor):
    def linear(self, inputs: int, outputs: int) -> nn.Module:
        return nn.utils.spectral_norm(super().linear(inputs, outputs))


def ppo(seed: int = 0, distribution: Any = None, actor: Any = prl.OnPolicyActor, **settings: Any) -> prl.Scheme:
    chosen = {} if distribution is None else {"distribution": distribution}
    return prl.Scheme(
        prl.PPO.create_factory(num_epochs=2, num_mini_batch=2, test_every=0, **chosen),
        actor.create_factory(hidden_sizes=(8,), **settings),
        prl.GAEBuffer.create_factory(size=16),
        prl.VecEnv.create_factory(Noise, num_envs=2),
        seed=seed,
    )


WITH_DROPOUT = pytest.mark.parametrize(
    "parts",
    [{"feature_extractor": DropoutEncoder}, {"feature_extractor": plain_torch}, {"distribution": DropoutPolicy()}],
    ids=["network", "plain torch", "head"],
)


@WITH_DROPOUT
def test_dropout_of_torch_follows_the_seed_of_the_run_alone(parts: Any) -> None:
    weights = []
    for number in range(2):
        scheme = ppo(**parts)
        torch.manual_seed(number)
        before = torch.get_rng_state()
        weights.append(train(scheme, 128).algorithm.get_weights())
        assert torch.equal(torch.get_rng_state(), before)
        scheme.close()
    assert_equal(weights[0], weights[1])


@WITH_DROPOUT
def test_a_resumed_run_continues_the_random_numbers_of_torchs_dropout(parts: Any) -> None:
    whole = train(ppo(**parts), 64)
    state = saved_and_loaded(whole.state_dict())
    resumed = ppo(**parts)
    resumed.load_state_dict(state)
    assert_equal(train(resumed, 128).algorithm.get_weights(), train(whole, 128).algorithm.get_weights())
    whole.close()
    resumed.close()


@pytest.mark.usefixtures("linear_class")
@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize(
    ("actor", "distribution"),
    [(prl.OnPolicyActor, DropoutPolicy()), (SpectralActor, None), (OldSpectralActor, None)],
    ids=["head", "layers", "layers with hooks"],
)
def test_heads_and_layers_of_ones_own_act_in_evaluation_mode(
    actor: Any, distribution: Any, deterministic: bool
) -> None:
    envs: Any = SimpleNamespace(observation_space=Noise.observation_space, action_space=Noise.action_space)
    chosen = {} if distribution is None else {"distribution": distribution}
    algorithm = prl.PPO.create_factory(**chosen)("cpu", actor.create_factory()("cpu", envs), envs)
    weights = algorithm.get_weights()
    obs, done = torch.randn(50, 3, generator=torch.Generator().manual_seed(0)), torch.zeros(50, 1)
    actions = []
    for _ in range(3):
        exploration = Exploration(algorithm.codec, 50, "cpu", seed=0, deterministic=deterministic)
        actions.append(algorithm.acting_step(obs, None, done, exploration).action)
    assert torch.equal(actions[0], actions[1])
    assert torch.equal(actions[0], actions[2])
    assert_equal(algorithm.get_weights(), weights)
    assert all(module.training for module in algorithm.actor.modules())


class WithoutBias:
    def linear(self, inputs: int, outputs: int) -> nn.Module:
        return nn.Linear(inputs, outputs, bias=False)


class OnPolicyWithoutBias(WithoutBias, prl.OnPolicyActor):
    pass


class OffPolicyWithoutBias(WithoutBias, prl.OffPolicyActor):
    pass


@pytest.mark.parametrize("kind", [prl.PPO, prl.TRPO, prl.DQN, prl.TD3, prl.SAC, prl.CQL, prl.MBPO])
def test_heads_of_linear_layers_without_a_bias_are_trained(kind: Any) -> None:
    action = spaces.Discrete(3) if kind is prl.DQN else spaces.Box(-1, 1, (2,))
    envs = envs_with(action)
    on_policy = issubclass(kind, prl.PolicyGradient)
    actor = (OnPolicyWithoutBias if on_policy else OffPolicyWithoutBias).create_factory(hidden_sizes=(8,))
    algorithm = kind.create_factory()("cpu", actor("cpu", envs), envs)
    before = algorithm.get_weights()
    taken = np.zeros((6, 1), np.int64) if kind is prl.DQN else np.zeros((6, 2), np.float32)
    batch = replayed(taken)
    if on_policy:
        batch |= {LOGP: torch.zeros(6, 1), VAL: torch.zeros(6, 1), RET: batch[REW], ADV: batch[REW]}
    assert not algorithm.update(batch).stop
    after = algorithm.get_weights()
    assert before.keys() == after.keys()
    assert any("head" in name and not torch.equal(after[name], before[name]) for name in after)
