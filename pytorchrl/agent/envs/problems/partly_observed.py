"""Classic environments without velocities: partially observable, so that an actor needs a memory."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import RescaleObservation

from pytorchrl.agent.envs.wrappers.observation_wrappers import SelectObservation


def cartpole_without_velocities(**arguments: Any) -> gym.Env[Any, Any]:
    """Make CartPole, with only the cart's position and the pole's angle observed, scaled to [-1, 1]."""
    env = SelectObservation(gym.make("CartPole-v1", **arguments).unwrapped, [0, 2])
    return RescaleObservation(env, min_obs=np.float32(-1), max_obs=np.float32(1))


def pendulum_without_velocity(**arguments: Any) -> gym.Env[Any, Any]:
    """Make Pendulum, with only its direction observed."""
    return SelectObservation(gym.make("Pendulum-v1", **arguments).unwrapped, [0, 1])
