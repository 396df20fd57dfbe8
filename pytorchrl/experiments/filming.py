"""Pictures of what a policy does."""

from typing import Any

import numpy as np

from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.agent.envs.making import make_env
from pytorchrl.agent.envs.vec_env import VecEnv
from pytorchrl.experiments.trained_policy import TrainedPolicy
from storages.component.factory import Factory

_FRAMES_PER_SECOND = 30
"""Where an environment does not say how fast it is to be shown."""


def film(
    algorithm: Algorithm, envs: Factory[VecEnv], episodes: int, longest: int, seed: np.random.SeedSequence
) -> tuple[list[Any], int]:
    """Play episodes by the best actions, in a copy of an environment that renders.

    Args:
        algorithm: acts.
        envs: of whose first environment a copy is made, with ``render_mode="rgb_array"``.
        episodes: how many.
        longest: steps of the actor in an episode at most.
        seed: of the episodes.

    Returns:
        What was rendered, a picture after each reset and step, and how many of them make a second.
    """
    hyper_parameters = envs.hyper_parameters
    kwargs = dict(hyper_parameters["env_kwargs"] or {}) | {"render_mode": "rgb_array"}
    env, _ = make_env(hyper_parameters["env"], kwargs, hyper_parameters["wrappers"])
    policy, frames = TrainedPolicy(algorithm), list[Any]()
    try:
        for number in seed.generate_state(episodes).tolist():
            policy.reset()
            observation, _ = env.reset(seed=number)
            frames.append(env.render())
            for _ in range(longest):
                observation, _, terminated, truncated, _ = env.step(policy(observation))
                frames.append(env.render())
                if terminated or truncated:
                    break
        return frames, int(env.metadata.get("render_fps", _FRAMES_PER_SECOND))
    finally:
        env.close()
