"""Classic environments that hide how fast things move, so that an actor must remember where they were."""

from typing import Any

import gymnasium as gym
from gymnasium.wrappers import RescaleObservation

from pytorchrl.agent.envs.select_observation import SelectObservation


def cartpole_without_velocities(**arguments: Any) -> gym.Env[Any, Any]:
    """CartPole, of which only the cart's position and the pole's angle are seen, in [-1, 1]."""
    env = SelectObservation(gym.make("CartPole-v1", **arguments).unwrapped, [0, 2])
    return RescaleObservation(env, min_obs=-1.0, max_obs=1.0)


def pendulum_without_velocity(**arguments: Any) -> gym.Env[Any, Any]:
    """Pendulum, of which only the direction is seen."""
    return SelectObservation(gym.make("Pendulum-v1", **arguments).unwrapped, [0, 1])


gym.register(
    id="pytorchrl/CartPoleWithoutVelocities-v0", entry_point=cartpole_without_velocities, max_episode_steps=500
)
gym.register(id="pytorchrl/PendulumWithoutVelocity-v0", entry_point=pendulum_without_velocity, max_episode_steps=200)
