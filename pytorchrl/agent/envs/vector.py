"""What :class:`~pytorchrl.agent.envs.vec_env.VecEnv` is made of: a vector of environments, however they are stepped."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from numpy.typing import NDArray

from pytorchrl.agent.envs.copies.episode_recorder import EpisodeRecord


class VecStep(NamedTuple):
    """What a step of ``E`` environments led to; the arrays are the caller's."""

    observation: Any
    """(E, *obs) or a dict: what the actor sees next, the first of a new episode where one ended."""
    next_observation: Any
    """As ``observation``: what followed the action, the true last observation where an episode ended."""
    reward: NDArray[np.floating]
    """(E, 1)."""
    terminated: NDArray[np.bool_]
    """(E, 1): the environment ended."""
    truncated: NDArray[np.bool_]
    """(E, 1): a limit cut the episode."""
    infos: Mapping[str, Any]
    """What gymnasium reports."""
    made: NDArray[np.bool_] | None = None
    """(E, 1): whether an environment made a transition; None where all did. Environments of gymnasium's NEXT_STEP mode
    begin an episode in the step after the last one's end, and make none in it."""


class Resumption(NamedTuple):
    """Where ``E`` environments are after :meth:`VecEnv.load_state_dict`."""

    observation: Any
    """(E, *obs) or a dict: what the actor sees next."""
    came_back: NDArray[np.bool_]
    """(E, 1): the episode that was running goes on; elsewhere a new one begins."""


class Vector(Protocol):
    """``E`` environments that are stepped together."""

    observation_space: gym.Space[Any]
    """Of one environment."""
    action_space: gym.Space[Any]
    """Of one environment."""
    stacked_frames: int
    """Of how many frames an observation is a stack; 0 where it is none, or that is not known."""
    takes_tensors: bool
    """Whether observations are tensors, and actions are to be tensors too; known from the first reset on."""
    skips_steps: bool
    """Whether an environment makes no transition in the step in which it begins its next episode."""
    skips_next: NDArray[np.bool_] | None
    """(E,): which environments make no transition in the next step; None where all do."""
    spec: EnvSpec | None
    """Gymnasium's, of one environment."""
    name: str
    """One environment with its wrappers, for messages."""
    finished_episodes: list[EpisodeRecord]
    """The environments' own episodes that finished in the last step."""

    def reset(self, sequence: np.random.SeedSequence) -> Any:
        """Begin an episode in every environment; returns their first observations (E, *obs), or a dict of such."""

    def step(self, actions: Any) -> VecStep:
        """Step every environment, by actions (E, 1) or (E, *action) as actors have them."""

    def running_episodes(self) -> list[EpisodeRecord]:
        """The environments' own episodes that are running, as far as they have come."""

    def state_dict(self) -> dict[str, Any]:
        """What it takes to come back to where the environments are, as tensors and plain data."""

    def load_state_dict(self, state: Mapping[str, Any]) -> Resumption:
        """Come back to where the environments were when it was saved."""

    def compute_reward(self) -> Callable[..., Any] | None:
        """The function of goals that rewards follow from; None where the environments have none."""

    def close(self) -> None:
        """Free what the environments hold; a second call does nothing."""
