"""The interface of the vector environments in a :class:`~pytorchrl.agent.envs.vec_env.VecEnv`."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from numpy.typing import NDArray

from pytorchrl.agent.envs.copies.episode_recorder import EpisodeRecord


class VecStep(NamedTuple):
    """The result of a step of ``E`` environments; the arrays belong to the caller."""

    observation: Any
    """(E, *obs) or a dict: the actor's next input, the first observation of a new episode where one ended."""
    next_observation: Any
    """As ``observation``, but the final observation where an episode ended."""
    reward: NDArray[np.floating]
    """(E, 1)."""
    terminated: NDArray[np.bool_]
    """(E, 1): whether the environment reached a terminal state."""
    truncated: NDArray[np.bool_]
    """(E, 1): whether a limit cut the episode."""
    infos: Mapping[str, Any]
    """The infos of gymnasium."""
    made: NDArray[np.bool_] | None = None
    """(E, 1): whether an environment made a transition; None where all did. In gymnasium's NEXT_STEP mode, the step
    after the end of an episode begins the next one and makes no transition."""


class Resumption(NamedTuple):
    """The result of :meth:`VecEnv.load_state_dict` for ``E`` environments."""

    observation: Any
    """(E, *obs) or a dict: the actor's next input."""
    came_back: NDArray[np.bool_]
    """(E, 1): whether the running episode was restored; elsewhere a new one begins."""


class Vector(Protocol):
    """``E`` environments that are stepped together."""

    observation_space: gym.Space[Any]
    """Observation space of one environment."""
    action_space: gym.Space[Any]
    """Action space of one environment."""
    stacked_frames: int
    """Number of frames that are stacked in an observation; 0 without a stack, or where that is not known."""
    takes_tensors: bool
    """Whether observations are tensors, and actions must be, too; known from the first reset on."""
    skips_steps: bool
    """Whether the step in which an environment begins its next episode makes no transition."""
    skips_next: NDArray[np.bool_] | None
    """(E,): which environments make no transition in the next step; None where all do."""
    spec: EnvSpec | None
    """Gymnasium's specification of one environment."""
    name: str
    """Name of one environment with its wrappers, for messages."""
    finished_episodes: list[EpisodeRecord]
    """Episodes that ended in the last step, as of the environments themselves, below all wrappers."""

    def reset(self, sequence: np.random.SeedSequence) -> Any:
        """Reset every environment; return their first observations (E, *obs), or a dict of such."""

    def reset_each(self, seeds: list[int]) -> Any:
        """As :meth:`reset`, by a seed for each environment; ValueError where they cannot be seeded one by one."""

    def step(self, actions: Any) -> VecStep:
        """Step every environment with actions (E, 1) or (E, *action), in the layout of actors."""

    def running_episodes(self) -> list[EpisodeRecord]:
        """Return the running episodes so far, as of the environments themselves, below all wrappers."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state from which the environments can be restored, as tensors and plain data."""

    def load_state_dict(self, state: Mapping[str, Any]) -> Resumption:
        """Restore the environments to the saved state, as far as they can be."""

    def compute_reward(self) -> Callable[..., Any] | None:
        """Return the function that computes rewards from goals; None where the environments have none."""

    def close(self) -> None:
        """Close the environments; a second call does nothing."""
