"""Training with a reward function that an imitation run has learnt."""

from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray

from pytorchrl.agent.algorithms.imitation.adversarial_reward import AdversarialClassifier
from pytorchrl.experiments.policies.trained_policy import read_policy
from storages.component.setting import Setting


@dataclass(frozen=True)
class LearntReward(Setting):
    """Wrapper that replaces the environment's reward by one that a run of AIRL or GAIL has learnt.

    ``VecEnv.create_factory(env, wrappers=[LearntReward("runs/airl")])`` trains any algorithm with it. The reward
    function is fixed. The returns that are logged and evaluated are the environment's own.

    Args:
        path: of the run folder, whose newest checkpoint is loaded, or of a file of weights such as
            ``best_weights.pt``.

    Raises:
        CheckpointError: there are no weights, or they are damaged.
        ValueError: the algorithm learns no reward, or its actor is recurrent; or the environment has goals, since
            hindsight relabelling bypasses wrappers.
    """

    path: str

    def __call__(self, env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
        """Return the environment with this reward."""
        return _Paid(env, RewardFunction(self.path))


class RewardFunction:
    """The reward function of observations and actions that a run has learnt.

    Args:
        path: see :class:`LearntReward`.
    """

    def __init__(self, path: str) -> None:
        self._policy = read_policy(path)
        algorithm = self._policy.algorithm
        if not isinstance(algorithm, AdversarialClassifier):
            raise ValueError(
                f"{path} is of {type(algorithm).__name__}, which learns no reward of observations and actions; AIRL "
                f"and GAIL do"
            )
        if algorithm.actor.memory is not None:
            raise ValueError(
                f"{path} is of an actor with a memory, whose reward depends on the history of the episode; learn the "
                f"reward with memory=None"
            )
        self._algorithm = algorithm

    def __call__(self, observation: Any, action: Any) -> NDArray[np.float32]:
        """Return the rewards (E,) of actions (E, *action) in observations (E, *obs), or of one of each (E = 1)."""
        algorithm, space = self._algorithm, self._policy.action_space
        obs, _ = self._policy.as_batch(observation)
        counted = np.asarray(action, space.dtype) - np.asarray(getattr(space, "start", 0), space.dtype)
        stored = torch.as_tensor(counted.reshape(-1, *(space.shape or (1,))), device=algorithm.device)
        with algorithm.actor.acting(noisy=False):
            reward = algorithm.exported_reward(algorithm.actor.view(obs), algorithm.codec.from_storage(stored))
        numbers: NDArray[np.float32] = reward[:, 0].cpu().numpy()
        return numbers


class _Paid(gym.Wrapper[Any, Any, Any, Any]):
    """An environment whose rewards are replaced by a function of observation and action."""

    def __init__(self, env: gym.Env[Any, Any], reward: RewardFunction) -> None:
        super().__init__(env)
        if env.has_wrapper_attr("compute_reward"):
            raise ValueError(
                "LearntReward: the environment has goals, and its compute_reward, by which hindsight computes rewards, "
                "would not be replaced; take an environment without compute_reward"
            )
        self._reward = reward
        self._seen: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        self._seen, info = self.env.reset(seed=seed, options=options)
        return self._seen, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step the environment; returns the replaced reward."""
        (reward,) = self._reward(self._seen, action)
        self._seen, _, terminated, truncated, info = self.env.step(action)
        return self._seen, float(reward), terminated, truncated, info
