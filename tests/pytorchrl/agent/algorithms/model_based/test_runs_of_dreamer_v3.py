"""DreamerV3 learns, runs on disk, and acts in exported files."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import pytorchrl as prl
from pytorchrl.experiments import collect_demonstrations, with_memory
from pytorchrl.experiments.policies.trained_policy import TrainedPolicy
from storages.datasets import open_dataset
from storages.transition import ACT, RHS, RHS2
from tests.support.by_hand import perturb
from tests.support.comparison import assert_equal
from tests.support.exported import exported_actions, skip_without_onnx
from tests.support.training import saved_and_loaded

NETWORKS: dict[str, Any] = {"activation": "silu", "layer_norm": True, "memory": "gru"}
SMALL: dict[str, Any] = {"num_latents": 4, "num_classes": 4, "num_bins": 41, "start_steps": 40, "mini_batch_size": 8}


class Remembered(gym.Env[Any, Any]):
    """The first observation says which action is rewarded in the third step; others say nothing."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._wanted, self._steps = int(self.np_random.integers(2)), 0
        return np.array([2 * self._wanted - 1, 1], np.float32), {}

    def step(self, action: Any) -> Any:
        self._steps += 1
        is_over = self._steps == 3
        return np.zeros(2, np.float32), float(is_over and action == self._wanted), is_over, False, {}


def scheme(env: Any, storage: Any, size: int = 8, **changes: Any) -> prl.Scheme:
    return prl.Scheme(
        prl.DreamerV3.create_factory(**SMALL | {"test_every": 0} | changes),
        prl.OffPolicyActor.create_factory(hidden_sizes=(size,), memory_size=size, **NETWORKS),
        storage,
        prl.VecEnv.create_factory(env, num_envs=2),
        seed=2,
    )


@pytest.mark.long
def test_an_action_is_learnt_that_an_earlier_observation_determines(tmp_path: Path) -> None:
    storage = prl.ReplayBuffer.create_factory(size=2_000, sequences=prl.Sequences(9, across_episodes=True))
    rates = {"lr_model": 3e-3, "lr_pi": 3e-3, "lr_value": 3e-3, "entropy_coef": 1e-2, "gamma": 0.9}
    made = scheme(Remembered, storage, 24, horizon=4, update_every=4, mini_batch_size=16, **rates)
    with prl.Learner(made, 2_400, tmp_path) as learner:
        learner.run()
        # Half of the episodes without a memory.
        assert learner.evaluate(episodes=40).mean_return > 0.9


STORAGES: dict[str, Any] = {
    "steps": lambda folder: prl.ReplayBuffer.create_factory(
        size=60, sequences=prl.Sequences(5, burn_in=2), directory=folder / "replay"
    ),
    "episodes": lambda folder: prl.PersistentEpisodicBuffer.create_factory(
        size=200, sequences=prl.Sequences(5, across_episodes=False), directory=folder / "replay"
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("kind", STORAGES)
def test_a_run_on_disk_resumes_within_an_episode_as_if_it_had_not_stopped(kind: str, tmp_path: Path) -> None:
    states = []
    for name, stops in (("whole", [90]), ("parts", [61, 90])):
        folder = tmp_path / name
        made = scheme("CartPole-v1", STORAGES[kind](folder), horizon=3, update_every=7)
        learner = prl.Learner(made, stops[0], folder)
        learner.run()
        for stop in stops[1:]:
            learner.close()
            learner = prl.Learner.resume(folder, target_steps=stop)
            learner.run()
        state = learner.scheme.algorithm.state_dict()
        states.append(saved_and_loaded([state, learner.scheme.storage.get_all_buffer_data()[RHS]]))
        learner.close()
    assert_equal(*states)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
@pytest.mark.parametrize("suffix", [".pt2", ".ts", ".onnx"])
@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_an_exported_policy_keeps_its_recurrent_state(env: str, suffix: str, tmp_path: Path) -> None:
    skip_without_onnx(suffix)
    with scheme(env, prl.ReplayBuffer.create_factory(size=60, sequences=prl.Sequences(5))) as made:
        perturb(made.actor, 1, 0.3)
        policy = TrainedPolicy(made.algorithm)
        path = policy.export(tmp_path / f"policy{suffix}")
        space = made.envs.observation_space
        seen = torch.from_numpy(np.random.default_rng(0).normal(size=(6, *space.shape)).astype(np.float32))
        states = torch.zeros(6, 8)
        for _ in range(2):
            actions, after = exported_actions(path, [seen, states])
            assert actions.shape == (6, 1)
            assert after.shape == (6, 8)
            assert (after != states.numpy()).any(axis=1).all()
            states = torch.from_numpy(np.array(after))
        if env == "Pendulum-v1":
            assert np.abs(actions).max() <= 2
        else:
            assert set(actions.ravel().tolist()) <= {0, 1}


def test_recurrent_states_added_to_recorded_episodes_follow_the_recorded_actions(tmp_path: Path) -> None:
    with scheme("CartPole-v1", prl.ReplayBuffer.create_factory(size=60, sequences=prl.Sequences(5))) as made:
        algorithm: Any = made.algorithm
        perturb(algorithm.actor, 1, 0.3)
        actions = iter(range(10_000))
        policy = lambda seen: np.full((2, 1), next(actions) % 2)  # noqa: E731
        collect_demonstrations(policy, made.envs, path=tmp_path / "a.npz", steps=40)
        latents: list[Any] = []
        infer = algorithm.model.latent_of
        algorithm.model.latent_of = lambda *arguments: latents.append(infer(*arguments)) or latents[-1]
        for episode in with_memory(open_dataset(tmp_path / "a.npz"), algorithm):
            for step, latent in enumerate(latents):
                taken = torch.from_numpy(np.asarray(episode.fields[ACT][step : step + 1]))
                with torch.no_grad():
                    expected = algorithm.model.advance(latent, taken)
                np.testing.assert_allclose(episode.fields[RHS2][step], expected[0].numpy(), rtol=1e-4, atol=1e-6)
            assert len(latents) == len(episode)
            latents.clear()


def test_small_is_a_preset_that_trains(tmp_path: Path) -> None:
    preset = prl.DreamerV3.small(capacity=1_000, num_envs=2)
    made = prl.Scheme(**preset, train_envs_factory=prl.VecEnv.create_factory("CartPole-v1", num_envs=2))
    assert made.storage.capacity == 1_000
    while made.steps < 520:
        made.collect(made.steps + 2)
    (metrics,) = made.update()
    assert {"model_loss", "observation_loss", "policy_loss", "value_loss", "imagined_return"} <= metrics.keys()
    made.close()
