"""Environments that hide velocities equal the original ones otherwise."""

import gymnasium as gym
import numpy as np
import pytest

import pytorchrl as prl


@pytest.mark.parametrize(
    ("hiding", "whole", "seen", "scale", "limit"),
    [
        ("pytorchrl/CartPoleWithoutVelocities-v0", "CartPole-v1", [0, 2], [4.8, 24 / 180 * np.pi], 500),
        ("pytorchrl/PendulumWithoutVelocity-v0", "Pendulum-v1", [0, 1], [1, 1], 200),
    ],
)
def test_observations_are_positions_scaled_to_one(
    hiding: str, whole: str, seen: list[int], scale: list[float], limit: int
) -> None:
    assert prl.VecEnv.create_factory(hiding).hyper_parameters["env"] == hiding
    envs = gym.make(hiding), gym.make(whole)
    (observation, _), (original, _) = (env.reset(seed=5) for env in envs)
    envs[0].action_space.seed(0)
    action = envs[0].action_space.sample()
    ended, steps = False, 0
    while not ended:
        np.testing.assert_allclose(observation, original[seen] / scale, atol=1e-5)
        assert envs[0].observation_space.contains(observation)
        (observation, *paid), (original, *expected) = (env.step(action) for env in envs)
        assert paid[:3] == expected[:3]
        ended, steps = paid[1] or paid[2], steps + 1
    assert steps <= limit
    spec = envs[0].spec
    assert spec is not None
    assert spec.max_episode_steps == limit
