"""PPO and TRPO learn from a rollout what stable-baselines3 and sb3-contrib do, with the same weights and actions."""

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import Tensor, nn

import pytorchrl as prl
from storages.transition import ACT, LOGP, OBS, OBS2, REW, TRUNC2

ROLLOUT, ROLLOUTS, EPISODE = 128, 3, 50
ENV = "Pendulum-v1"
EPOCHS = 5
COMMON: Mapping[str, Any] = {"gamma": 0.99, "test_every": 0}
OURS: Mapping[str, Any] = {
    "PPO": prl.PPO.create_factory(**COMMON, lr=3e-3, num_epochs=EPOCHS, num_mini_batch=1, value_loss_coef=1.0),
    "TRPO": prl.TRPO.create_factory(
        **COMMON, lr_value=3e-3, max_kl=0.01, damping=0.1, cg_iterations=15, backtracks=10, value_epochs=EPOCHS
    ),
}
THEIRS: Mapping[str, Mapping[str, Any]] = {
    "PPO": {"n_epochs": EPOCHS, "batch_size": ROLLOUT},
    "TRPO": {"n_critic_updates": EPOCHS, "batch_size": ROLLOUT},
}


class Replayed(gym.Env[Any, Any]):
    """Shows the transitions of a rollout, independent of the actions."""

    def __init__(self, first: Any) -> None:
        like = gym.make(ENV)
        self.observation_space, self.action_space = like.observation_space, like.action_space
        self.rows: list[tuple[Any, float, bool]] = []
        """Next observation, reward and truncation of the steps to come."""
        self.first = first
        """Observation that the next reset returns."""

    def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
        return self.first, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, truncated = self.rows.pop(0)
        return observation, reward, False, truncated, {}


def peer_named(name: str, env: gym.Env[Any, Any]) -> Any:
    sb3, contrib = pytest.importorskip("stable_baselines3"), pytest.importorskip("sb3_contrib")
    networks = {"net_arch": {"pi": [16, 16], "vf": [16, 16]}, "activation_fn": nn.Tanh}
    algorithm = sb3.PPO if name == "PPO" else contrib.TRPO
    return algorithm(
        "MlpPolicy", env, learning_rate=3e-3, n_steps=ROLLOUT, policy_kwargs=networks, device="cpu", **THEIRS[name]
    )


def pairs(algorithm: Any, policy: Any) -> list[tuple[Tensor, Tensor]]:
    """The parameters of policy and value function of both."""
    extractor = policy.mlp_extractor
    found = [(algorithm.pi.get_parameter("head.log_std"), policy.log_std)]
    for mine, hidden, last in (
        (algorithm.pi, extractor.policy_net, policy.action_net),
        (algorithm.value, extractor.value_net, policy.value_net),
    ):
        for name, layer in (
            ("body.hidden.layers.0", hidden[0]),
            ("body.hidden.layers.1", hidden[2]),
            ("head.layer", last),
        ):
            found += [(mine.get_parameter(f"{name}.{kind}"), getattr(layer, kind)) for kind in ("weight", "bias")]
    return found


def rollout_of(scheme: prl.Scheme, until: int) -> dict[str, Any]:
    """Collect to the next update phase; return what is stored, without the axis of environments."""
    while not scheme.collect(until)[1]:
        pass
    return {key: value[:, 0].numpy(force=True).copy() for key, value in scheme.storage.get_all_buffer_data().items()}


@pytest.mark.parametrize("name", OURS)
def test_rollouts_change_the_weights_as_those_of_the_peer(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    envs = prl.VecEnv.create_factory(ENV, env_kwargs={"max_episode_steps": EPISODE})
    actor = prl.OnPolicyActor.create_factory(hidden_sizes=(16, 16), activation="tanh")
    storage = prl.GAEBuffer.create_factory(size=ROLLOUT, gae_lambda=0.95)
    with prl.Scheme(OURS[name], actor, storage, envs, seed=3) as scheme:
        algorithm, steps = scheme.algorithm, ROLLOUT * ROLLOUTS
        scheme.set_progress(0, steps)
        data = rollout_of(scheme, steps)
        env = Replayed(data[OBS][0])
        peer = peer_named(name, env)
        with torch.no_grad():
            for mine, other in pairs(algorithm, peer.policy):
                other.copy_(mine)
        begin = [mine.detach().clone() for mine, _ in pairs(algorithm, peer.policy)]
        _, callback = peer._setup_learn(steps)
        for number in range(ROLLOUTS):
            actions = [torch.from_numpy(action)[None] for action in data[ACT]]
            monkeypatch.setattr(type(peer.policy.action_dist), "sample", lambda _, left=actions: left.pop(0))
            env.rows = list(zip(data[OBS2], data[REW][:, 0].tolist(), data[TRUNC2][:, 0] > 0, strict=True))
            # An episode that begins within the rollout begins with the observation stored for its first step.
            begins = np.flatnonzero(data[TRUNC2][:-1, 0]) + 1
            firsts = [data[OBS][row] for row in begins]
            monkeypatch.setattr(env, "reset", lambda left=firsts, **_: (left.pop(0), {}))
            peer.collect_rollouts(peer.env, callback, peer.rollout_buffer, ROLLOUT)
            assert number or data[TRUNC2].sum() == ROLLOUT // EPISODE
            np.testing.assert_allclose(peer.rollout_buffer.log_probs, data[LOGP], rtol=0, atol=1e-4)
            peer._update_current_progress_remaining(0, steps)
            peer.train()
            list(scheme.update())
            for mine, other in pairs(algorithm, peer.policy):
                torch.testing.assert_close(mine, other, rtol=0, atol=2e-5)
            if number < ROLLOUTS - 1:
                data = rollout_of(scheme, steps)
    for mine, first in zip((mine for mine, _ in pairs(algorithm, peer.policy)), begin, strict=True):
        assert (mine - first).abs().max() > 2e-3
