"""A reward that an imitation run has learnt, in an environment that another policy is trained in."""

from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray

from pytorchrl.agent.algorithms.imitation.parts.adversarial import AdversarialReward
from pytorchrl.experiments.policies.trained_policy import load_policy
from storages.component.setting import Setting


@dataclass(frozen=True)
class LearntReward(Setting):
    """Pays by a reward that a run of AIRL or GAIL has learnt, instead of the environment's: a wrapper.

    ``VecEnv.create_factory(env, wrappers=[LearntReward("runs/airl")])`` trains any algorithm on it. The reward does not
    change any more. The returns that are logged and evaluated are the environment's own.

    Args:
        path: of the run folder, of whose newest checkpoint the reward is taken, or of a file of weights such as
            ``best_weights.pt``.

    Raises:
        CheckpointError: there are no weights, or they are damaged.
        ValueError: they are of an algorithm that learns no reward, or whose actor has a memory; or the environment has
            goals: hindsight asks for rewards past a wrapper.
    """

    path: str

    def __call__(self, env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
        """The environment with this reward."""
        return _Paid(env, RewardFunction(self.path))


class RewardFunction:
    """From observations and actions to the reward that a run has learnt.

    Args:
        path: as that of :class:`LearntReward`.
    """

    def __init__(self, path: str) -> None:
        self._policy = load_policy(path)
        algorithm = self._policy.algorithm
        if not isinstance(algorithm, AdversarialReward):
            raise ValueError(f"{path} is of {type(algorithm).__name__}, which learns no reward; AIRL and GAIL do")
        if algorithm.actor.memory is not None:
            raise ValueError(
                f"{path} is of an actor with a memory, whose reward depends on all that an episode has shown; learn "
                f"the reward with memory=None"
            )
        self._algorithm = algorithm

    def __call__(self, observation: Any, action: Any) -> NDArray[np.float32]:
        """(E,): the rewards of actions (E, *action) in observations (E, *obs); one of each is taken for E = 1."""
        algorithm, space = self._algorithm, self._policy.action_space
        obs, _ = self._policy.as_batch(observation)
        counted = np.asarray(action, space.dtype) - np.asarray(getattr(space, "start", 0), space.dtype)
        stored = torch.as_tensor(counted.reshape(-1, *(space.shape or (1,))), device=algorithm.device)
        with algorithm.actor.acting(noisy=False):
            reward = algorithm.reward_to_keep(algorithm.actor.view(obs), algorithm.codec.from_storage(stored))
        numbers: NDArray[np.float32] = reward[:, 0].cpu().numpy()
        return numbers


class _Paid(gym.Wrapper[Any, Any, Any, Any]):
    """An environment whose rewards are replaced by those of a function of what is seen and done."""

    def __init__(self, env: gym.Env[Any, Any], reward: RewardFunction) -> None:
        super().__init__(env)
        if env.has_wrapper_attr("compute_reward"):
            raise ValueError("LearntReward: the environment has goals, and its compute_reward would not be replaced")
        self._reward = reward
        self._seen: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        self._seen, info = self.env.reset(seed=seed, options=options)
        return self._seen, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """A step of the environment, with the other reward."""
        (reward,) = self._reward(self._seen, action)
        self._seen, _, terminated, truncated, info = self.env.step(action)
        return self._seen, float(reward), terminated, truncated, info
