"""Updates and runs equal those of stable-baselines3 and sb3-contrib, given the same weights, batches and noise."""

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

import pytorchrl as prl
from storages.transition import ACT, DISCOUNT, DONE, DONE2, INDICES, OBS, OBS2, REW, TRUNC2, WEIGHTS

ACTION, ROWS, UPDATES = 2, 32, 6
START = 50
"""Random steps at the beginning of a run."""
COMMON: dict[str, Any] = {"lr_pi": 1e-3, "lr_q": 1e-3, "polyak": 0.995, "gamma": 0.99}
OURS: Mapping[str, Any] = {
    "SAC": prl.SAC.create_factory(**COMMON, lr_alpha=1e-3),
    "TQC": prl.TQC.create_factory(**COMMON, lr_alpha=1e-3, num_critics=2),
    "TD3": prl.TD3.create_factory(**COMMON),
    "DDPG": prl.DDPG.create_factory(**COMMON),
}
"""With the hyper-parameters that are the peers' defaults."""
ACTOR = prl.OffPolicyActor.create_factory(hidden_sizes=(16, 16))


RUN: Mapping[str, Any] = {"start_steps": START, "mini_batch_size": ROWS, "test_every": 0}


class Still(gym.Env[Any, Any]):
    """Spaces for the peers; nothing is collected."""

    observation_space = spaces.Box(-10, 10, (5,), np.float32)
    action_space = spaces.Box(-1, 1, (ACTION,), np.float32)

    def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
        return self.observation_space.low * 0, {}


class Noise:
    """Standard normal noise, given to ours and to the peers in the order in which they ask for it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._queue: list[Tensor] = []
        original = torch.Tensor.normal_

        def normal_(tensor: Tensor, mean: float = 0, std: float = 1, **given: Any) -> Tensor:
            if not self._queue:
                return original(tensor, mean, std, **given)
            return tensor.copy_(mean + std * self._queue.pop(0))

        monkeypatch.setattr(torch.Tensor, "normal_", normal_)
        monkeypatch.setattr("torch.distributions.normal._standard_normal", lambda *_, **__: self._queue.pop(0))

    def give(self, *queue: Tensor) -> None:
        self._queue = list(queue)


def layers_of(network: nn.Module) -> list[Tensor]:
    """Weights and biases of the layers of one of our networks, from the first to the last."""
    named = sorted(network.named_parameters(), key=lambda named: ("head" in named[0], named[0].rpartition(".")[0]))
    return [
        parameter
        for layer in dict.fromkeys(name.rpartition(".")[0] for name, _ in named)
        for kind in ("weight", "bias")
        for name, parameter in named
        if name == f"{layer}.{kind}"
    ]


def layers_of_peer(network: nn.Module) -> list[Tensor]:
    """As :func:`layers_of`; the layers of mean and standard deviation are one layer in ours."""
    parts = dict(network.named_parameters())
    if "log_std.weight" not in parts:
        return list(parts.values())
    body = [parameter for name, parameter in parts.items() if not name.startswith(("mu.", "log_std."))]
    return body + [torch.cat([parts[f"mu.{kind}"], parts[f"log_std.{kind}"]]) for kind in ("weight", "bias")]


def peer_named(name: str, env: gym.Env[Any, Any] | None = None) -> Any:
    sb3, contrib = pytest.importorskip("stable_baselines3"), pytest.importorskip("sb3_contrib")
    networks = {"net_arch": [16, 16], "activation_fn": nn.ReLU}
    algorithm = getattr(contrib if name == "TQC" else sb3, name)
    model = algorithm("MlpPolicy", env or Still(), learning_rate=1e-3, policy_kwargs=networks, seed=1, device="cpu")
    model._setup_learn(1)
    with torch.no_grad():
        # So large that values depend on actions as much as on rewards.
        for parameter in model.critic.parameters():
            parameter.mul_(3)
    model.critic_target.load_state_dict(model.critic.state_dict())
    if name in ("SAC", "TQC"):
        # The peers add it to the derivative of the tanh, ours is exact.
        model.actor.action_dist.epsilon = 0.0
    return model


def ours_with_weights_of(peer: Any, name: str) -> Any:
    envs: Any = SimpleNamespace(observation_space=Still.observation_space, action_space=Still.action_space)
    algorithm = OURS[name]("cpu", ACTOR("cpu", envs), envs)
    algorithm.seed(0)
    copy_weights(peer, algorithm)
    return algorithm


def copy_weights(peer: Any, algorithm: Any) -> None:
    with torch.no_grad():
        for mine, other in pairs(algorithm, peer):
            mine.copy_(other)
    for target in algorithm.training.targets.values():
        target.update(0)


def pairs(algorithm: Any, peer: Any) -> list[tuple[Tensor, Tensor]]:
    """The parameters of policies and critics of both."""
    critics = [parameter for critic in algorithm.critics for parameter in layers_of(critic)]
    of_peer = layers_of_peer(peer.actor) + list(peer.critic.parameters())
    return list(zip([*layers_of(algorithm.pi), *critics], of_peer, strict=True))


def batch_of(generator: np.random.Generator) -> dict[str, Tensor]:
    def normal(width: int) -> Tensor:
        return torch.from_numpy(generator.normal(size=(ROWS, width)).astype(np.float32))

    ended = torch.from_numpy(generator.random((ROWS, 1)) < 0.2).float()
    zeros, ones = torch.zeros(ROWS, 1), torch.ones(ROWS, 1)
    return {
        OBS: normal(5),
        OBS2: normal(5),
        ACT: torch.tanh(normal(ACTION)),
        REW: 3 * normal(1),
        DONE: zeros,
        DONE2: ended,
        TRUNC2: zeros,
        DISCOUNT: 0.99 * (1 - ended),
        WEIGHTS: ones,
        INDICES: torch.arange(ROWS)[:, None],
    }


def update_peer(peer: Any, batch: Mapping[str, Tensor]) -> None:
    from stable_baselines3.common.type_aliases import ReplayBufferSamples

    samples = ReplayBufferSamples(batch[OBS], batch[ACT], batch[OBS2], batch[DONE2], batch[REW])
    peer.replay_buffer = SimpleNamespace(sample=lambda *_, **__: samples)
    peer.train(1, len(batch[REW]))


@pytest.mark.parametrize("name", OURS)
def test_updates_equal_those_of_the_peer_with_the_same_weights_batches_and_noise(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = peer_named(name)
    algorithm = ours_with_weights_of(peer, name)
    begin = [mine.detach().clone() for mine, _ in pairs(algorithm, peer)]
    noise, generator = Noise(monkeypatch), np.random.default_rng(0)
    for _ in range(UPDATES):
        batch = batch_of(generator)
        of_next, of_now = (torch.from_numpy(generator.normal(size=(ROWS, ACTION)).astype(np.float32)) for _ in "12")
        # Soft actor-critics of the peers draw the actions of the present states first.
        noise.give(*((of_now, of_next) if name in ("SAC", "TQC") else (of_next,)))
        update_peer(peer, batch)
        noise.give(of_next, of_now)
        algorithm.update(batch)
    for (mine, other), first in zip(pairs(algorithm, peer), begin, strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=2e-5)
        assert (mine - first).abs().max() > 1e-4
    if name in ("SAC", "TQC"):
        torch.testing.assert_close(algorithm.log_alpha.detach(), peer.log_ent_coef.detach(), rtol=0, atol=1e-6)


@pytest.mark.quick_share(0.35)
@pytest.mark.parametrize("name", ["SAC", "TD3"])
def test_a_run_takes_the_actions_of_the_peer_of_equal_transitions_and_noise(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, largest = START + 40, 2.0  # the bound of Pendulum's action
    peer = peer_named(name, gym.make("Pendulum-v1"))
    storage = prl.ReplayBuffer.create_factory(size=steps)
    factory = type(OURS[name])(OURS[name].cls, OURS[name].hyper_parameters | RUN)
    scheme = prl.Scheme(factory, ACTOR, storage, prl.VecEnv.create_factory("Pendulum-v1"), seed=3)
    algorithm = scheme.algorithm
    copy_weights(peer, algorithm)
    drawn, indices, original, update = [], [], torch.Tensor.normal_, algorithm.update

    def recorded(tensor: Tensor, mean: float = 0, std: float = 1, **given: Any) -> Tensor:
        drawn.append((original(tensor, mean, std, **given) - mean) / std)
        return tensor

    def update_and_record(batch: Any) -> Any:
        indices.append(batch[INDICES][:, 0].clone())
        return update(batch)

    with monkeypatch.context() as recording:
        recording.setattr(torch.Tensor, "normal_", recorded)
        recording.setattr(algorithm, "update", update_and_record)
        prl.Learner(scheme, steps, tmp_path).run(checkpoint_every=25)
    data = {key: value[:, 0] for key, value in scheme.storage.get_all_buffer_data().items() if value.ndim == 3}
    acting = [noise for noise in drawn if len(noise) == 1]
    of_updates = [noise for noise in drawn if len(noise) == ROWS]
    assert len(acting) == len(indices) == steps - START
    noise = Noise(monkeypatch)
    for step, explored, rows in zip(range(START, steps), acting, indices, strict=True):
        noise.give(explored)
        with torch.no_grad():
            action = peer.actor(data[OBS][step : step + 1])
        if name == "TD3":
            action = (action + 0.1 * explored).clamp(-1, 1)
        torch.testing.assert_close(largest * action[0], data[ACT][step], rtol=0, atol=1e-3)
        assert rows.max() <= step
        of_next, of_now = of_updates.pop(0), of_updates.pop(0) if name == "SAC" else None
        noise.give(*(each for each in (of_now, of_next) if each is not None))
        batch = {key: data[key][rows] for key in (OBS, OBS2, ACT, REW, DONE2)}
        update_peer(peer, batch | {ACT: batch[ACT] / largest, DONE2: batch[DONE2].float()})
    assert not of_updates
    assert data[ACT][START:].std() > 0.05
    assert data[ACT][:START].std() > 1
