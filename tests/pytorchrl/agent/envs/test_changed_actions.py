"""An environment that changes the array of its action, as `action *= self.torque` does, changes no stored action."""

from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

import pytorchrl as prl
from storages.transition import ACT, OBS
from tests.support.comparison import assert_equal


class Scaling(gym.Env[Any, Any]):
    """Its observation is the last action as it was given, which it then scales in place."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Box(-1, 1, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        given = action.copy()
        action *= 100
        return given, 1.0, False, bool(self.np_random.random() < 0.1), {}


class ScalingVector(VectorEnv[Any, Any, Any]):
    """The same, without ends of episodes, as a native vector environment."""

    metadata: ClassVar[dict[str, Any]] = {"autoreset_mode": AutoresetMode.DISABLED}

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs
        self.single_observation_space, self.single_action_space = Scaling.observation_space, Scaling.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return np.zeros((self.num_envs, 2), np.float32), {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        given, never = actions.copy(), np.zeros(self.num_envs, bool)
        actions *= 100
        return given, np.ones(self.num_envs), never, never, {}


def sac(env: Any, **settings: Any) -> prl.Scheme:
    return prl.Scheme(
        prl.SAC.create_factory(start_steps=30, update_every=20, mini_batch_size=8, test_every=0),
        prl.OffPolicyActor.create_factory(hidden_sizes=(8,)),
        prl.ReplayBuffer.create_factory(size=200),
        prl.VecEnv.create_factory(env, num_envs=2, **settings),
    )


@pytest.mark.parametrize(
    ("env", "settings"),
    [(Scaling, {}), (Scaling, {"mode": "async"}), (ScalingVector, {})],
    ids=["copies", "processes", "native"],
)
def test_the_stored_action_is_the_one_that_the_environment_was_given(env: Any, settings: Any) -> None:
    scheme = sac(env, **settings)
    scheme.collect(20)
    data = scheme.storage.get_all_buffer_data()
    assert (abs(data[ACT]) <= 1).all()
    seen = (data[OBS][1:] != 0).any(dim=-1)
    assert seen.sum() > 10
    assert (data[OBS][1:][seen] == data[ACT][:-1][seen]).all()
    scheme.close()


def test_a_run_that_is_resumed_twice_repeats_the_actions_that_were_given(tmp_path: Path) -> None:
    def run(folder: str, *stops: int) -> dict[str, Any]:
        learner = prl.Learner(sac(Scaling), 120, tmp_path / folder)
        for stop in stops:
            while learner.scheme.steps < stop:
                learner.step()
            learner.save_checkpoint()
            learner.close()
            learner = prl.Learner.resume(tmp_path / folder, scheme=sac(Scaling))
        learner.run()
        assert "train/episodes_cut_by_resume" not in learner.get_metrics()
        learner.close()
        return learner.scheme.algorithm.get_weights()

    assert_equal(run("stopped", 40, 80), run("whole"))
