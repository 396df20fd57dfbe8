"""Who collects: acts in the environments and gives the storage what came of it."""

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.agent.envs.plain_data import as_tensors
from pytorchrl.agent.envs.spaces import random_actions
from pytorchrl.agent.envs.vec_env import VecEnv
from storages.storage import Storage
from storages.transition import ACT, DONE, DONE2, OBS, OBS2, REW, RHS, RHS2, TRUNC2

Seed: TypeAlias = int | np.random.SeedSequence


@dataclass(frozen=True)
class Episode:
    """An episode that ended."""

    episode_return: float
    """Sum of its rewards."""
    length: int
    """Its steps."""


class Collector:
    """Steps the environments with an algorithm and inserts every step into a storage.

    Args:
        envs: where to act.
        algorithm: how to act.
        storage: what gets the transitions.
    """

    def __init__(self, envs: VecEnv, algorithm: Algorithm, storage: Storage) -> None:
        self.envs = envs
        self.algorithm = algorithm
        self.storage = storage
        self.steps = 0
        """Environment transitions so far."""
        self._random = np.random.default_rng()
        self._observation: Any = None
        self._rhs: Any = None
        self._done: NDArray[np.bool_] = np.ones((envs.num_envs, 1), np.bool_)
        self._returns = np.zeros(envs.num_envs)
        self._lengths = np.zeros(envs.num_envs, np.int64)

    def reset(self, seed: Seed) -> None:
        """Begin new episodes in all environments."""
        self._observation = self.envs.reset(seed)
        self._rhs = self.algorithm.actor.initial_memory(self.envs.num_envs)
        self._done.fill(True)
        self._returns.fill(0)
        self._lengths.fill(0)

    def seed(self, seed: Seed) -> None:
        """Start the random generator of random actions anew."""
        self._random = np.random.default_rng(seed)

    def step(self) -> list[Episode]:
        """Step every environment once; returns the episodes that ended."""
        obs, rhs, done = self._observation, self._rhs, self._done
        at_random = self.steps < self.algorithm.start_steps
        self.algorithm.actor.observe(obs)
        fields: dict[str, Any] = {}
        next_rhs = rhs
        # A memory is to remember what was seen while actions were random, too.
        if not at_random or rhs is not None:
            device = self.algorithm.device
            acting = self.algorithm.acting_step(
                to_device(obs, device), rhs, torch.from_numpy(done.astype(np.float32)).to(device)
            )
            action, env_action = acting.action.cpu().numpy(), acting.env_action.cpu().numpy()
            fields, next_rhs = dict(acting.fields), acting.rhs
        if at_random:
            action = env_action = random_actions(self.envs.action_space, self.envs.num_envs, self._random)
        step = self.envs.step(env_action)
        if rhs is not None:
            fields |= {RHS: rhs, RHS2: next_rhs}
        self.storage.insert_transition(
            {
                OBS: obs,
                DONE: done,
                ACT: action,
                REW: step.reward.astype(np.float32),
                OBS2: step.next_observation,
                DONE2: step.terminated,
                TRUNC2: step.truncated,
                **fields,
            }
        )
        self._observation, self._rhs, self._done = step.observation, next_rhs, step.terminated | step.truncated
        self.steps += self.envs.num_envs
        return self._episodes_ended(step.reward)

    def _episodes_ended(self, reward: NDArray[np.float64]) -> list[Episode]:
        self._returns += reward[:, 0]
        self._lengths += 1
        if not self._done.any():
            return []
        ended = np.flatnonzero(self._done)
        episodes = [Episode(float(self._returns[env]), int(self._lengths[env])) for env in ended]
        self._returns[ended] = 0
        self._lengths[ended] = 0
        return episodes

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next steps follow from, the running episodes too, as tensors and plain data."""
        return {
            "steps": self.steps,
            "random": self._random.bit_generator.state,
            "envs": self.envs.state_dict(),
            "rhs": self._rhs,
            "running": as_tensors({"done": self._done, "returns": self._returns, "lengths": self._lengths}),
        }

    def load_state_dict(self, state: dict[str, Any]) -> list[int]:
        """Be what was saved; returns the environments that did not come back to their running episodes.

        There, a new episode begins, with its return and length; for the storage the old one was cut, as by a limit.
        """
        self.steps = state["steps"]
        self._random.bit_generator.state = state["random"]
        self._observation, came_back = self.envs.load_state_dict(state["envs"])
        self._rhs = state["rhs"].to(self.algorithm.device) if state["rhs"] is not None else None
        done, returns, lengths = (state["running"][name].numpy() for name in ("done", "returns", "lengths"))
        self._done = done | ~came_back
        self._returns, self._lengths = returns * came_back[:, 0], lengths * came_back[:, 0]
        return [int(env) for env in np.flatnonzero(~came_back[:, 0] & (lengths > 0))]


def to_device(observation: Any, device: torch.device) -> Any:
    """Observations as tensors on a device, dtypes kept."""
    if isinstance(observation, dict):
        return {name: to_device(part, device) for name, part in observation.items()}
    return torch.from_numpy(observation).to(device)
