"""Gymnasium's three autoreset modes of vector environments, behind one interface.

They are those of gymnasium's ``AutoresetMode`` (Towers et al.): SAME_STEP resets an environment in the step in which
its episode ends, NEXT_STEP in the step after, which makes no transition, DISABLED only on request.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from pytorchrl.agent.envs.checks import InvalidEnvironmentError


class Outcome(NamedTuple):
    """Result of a step of ``E`` environments: as :class:`pytorchrl.agent.envs.vector.VecStep`, without axes of one."""

    observation: Any
    next_observation: Any
    reward: NDArray[np.floating]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    infos: Mapping[str, Any]
    made: NDArray[np.bool_] | None = None


class Autoreset(Protocol):
    """Step a vector environment, and report which environments made no transition."""

    skips_steps: ClassVar[bool]
    """Whether the step in which an environment begins its next episode makes no transition."""
    skips_next: NDArray[np.bool_] | None
    """(E,): which environments make no transition in the next step; None where all do."""

    def begin(self, ended: NDArray[np.bool_] | None = None) -> None:
        """Start after a reset of all environments, or from a state in which the next step resets ``ended`` (E,)."""

    def step(self, actions: Any) -> Outcome:
        """Step every environment."""


class SameStep(Autoreset):
    """SAME_STEP: take the final observations from ``infos["final_obs"]``.

    Args:
        envs: of the mode SAME_STEP.
    """

    skips_steps = False
    skips_next = None

    def __init__(self, envs: VectorEnv[Any, Any, Any]) -> None:
        self._envs = envs

    def begin(self, ended: NDArray[np.bool_] | None = None) -> None:
        """Do nothing: there is no state."""

    def step(self, actions: Any) -> Outcome:
        """Step every environment.

        Raises:
            InvalidEnvironmentError: an episode ended, and its final observation is not reported.
        """
        observation, reward, terminated, truncated, infos = self._envs.step(actions)
        reward, terminated, truncated = on_host(reward), on_host(terminated), on_host(truncated)
        ended = terminated | truncated
        next_observation = observation
        if np.count_nonzero(ended):
            if "final_obs" not in infos:
                raise InvalidEnvironmentError(
                    f"VecEnv: {self._envs} began a new episode in the step that ended one, and infos have no "
                    f"'final_obs': the last observation of the episode is lost. Make it with the autoreset mode "
                    f"NEXT_STEP or DISABLED, or let its infos have 'final_obs', (E, *obs)"
                )
            next_observation = with_last_observations(observation, infos["final_obs"], np.flatnonzero(ended))
        return Outcome(observation, next_observation, reward, terminated, truncated, infos)


class NextStep(Autoreset):
    """NEXT_STEP: the step in which an environment begins its next episode makes no transition.

    Nothing is lost: the final observation is that of the step that ended the episode.

    Args:
        envs: of the mode NEXT_STEP.
    """

    skips_steps = True

    def __init__(self, envs: VectorEnv[Any, Any, Any]) -> None:
        self._envs = envs
        self.skips_next: NDArray[np.bool_] | None = None

    def begin(self, ended: NDArray[np.bool_] | None = None) -> None:
        """Start after a reset of all environments, or from a state in which the next step resets ``ended`` (E,)."""
        self.skips_next = ended if ended is not None and ended.any() else None

    def step(self, actions: Any) -> Outcome:
        """Step every environment, but those whose episode ended in the last step, which are reset."""
        observation, reward, terminated, truncated, infos = self._envs.step(actions)
        reward, terminated, truncated = on_host(reward), on_host(terminated), on_host(truncated)
        made = None
        if self.skips_next is not None:
            made = ~self.skips_next
            reward, terminated, truncated = np.where(made, reward, 0), terminated & made, truncated & made
        ended = terminated | truncated
        self.skips_next = ended if np.count_nonzero(ended) else None
        return Outcome(observation, observation, reward, terminated, truncated, infos, made)


class Disabled(Autoreset):
    """DISABLED: reset environments in the step in which their episodes end, by ``reset(options={"reset_mask": ...})``.

    Args:
        envs: of the mode DISABLED.
    """

    skips_steps = False
    skips_next = None

    def __init__(self, envs: VectorEnv[Any, Any, Any]) -> None:
        self._envs = envs

    def begin(self, ended: NDArray[np.bool_] | None = None) -> None:
        """Do nothing: there is no state."""

    def step(self, actions: Any) -> Outcome:
        """Step every environment, and reset those whose episode ended."""
        observation, reward, terminated, truncated, infos = self._envs.step(actions)
        reward, terminated, truncated = on_host(reward), on_host(terminated), on_host(truncated)
        ended = terminated | truncated
        next_observation = observation
        if np.count_nonzero(ended):
            # Environments may write into the arrays that they have returned.
            next_observation = copied(observation)
            observation, _ = self._envs.reset(options={"reset_mask": ended})
        return Outcome(observation, next_observation, reward, terminated, truncated, infos)


def autoreset_of(envs: VectorEnv[Any, Any, Any]) -> Autoreset:
    """Return the handler of the autoreset mode in a vector environment's metadata.

    Raises:
        InvalidEnvironmentError: the metadata name no mode.
    """
    mode = envs.metadata.get("autoreset_mode")
    if mode == AutoresetMode.SAME_STEP:
        return SameStep(envs)
    if mode == AutoresetMode.NEXT_STEP:
        return NextStep(envs)
    if mode != AutoresetMode.DISABLED:
        raise InvalidEnvironmentError(
            f"VecEnv: metadata['autoreset_mode'] of {envs} is {mode!r}; it must be one of "
            f"{', '.join(map(str, AutoresetMode))}, and says when the next episode of an environment begins"
        )
    return Disabled(envs)


def with_last_observations(observation: Any, last: Any, ended: NDArray[np.int64]) -> Any:
    """Copy a batch (E, *obs), with the final observations of the environments whose episodes ended.

    Args:
        observation: the batch, an array, a tensor, or a dict of such.
        last: final observations, (E, *obs) as the batch, or one for each environment, None where there is none.
        ended: indices of these environments.
    """
    if isinstance(last, np.ndarray) and last.dtype == object:
        return with_last_of_each(observation, {int(env): last[env] for env in ended})
    copies = copied(observation)
    if isinstance(last, Mapping):
        for name, part in copies.items():
            part[ended] = last[name][ended]
    else:
        copies[ended] = last[ended]
    return copies


def with_last_of_each(observation: Any, last: Mapping[int, Any]) -> Any:
    """Copy a batch (E, *obs), with the final observations of environments whose episodes ended.

    Args:
        observation: the batch, an array, a tensor, or a dict of such.
        last: final observation of each of these environments, by its index.
    """
    copies = copied(observation)
    for env, final in last.items():
        if isinstance(copies, Mapping):
            for name, part in copies.items():
                part[env] = final[name]
        else:
            copies[env] = final
    return copies


def copied(observation: Any) -> Any:
    """Copy a batch of observations."""
    if isinstance(observation, Mapping):
        return {name: copied(part) for name, part in observation.items()}
    return observation.clone() if isinstance(observation, torch.Tensor) else observation.copy()


def on_host(numbers: Any) -> NDArray[Any]:
    """Convert (E,) numbers or flags to an array in CPU memory."""
    if type(numbers) is np.ndarray:
        return numbers
    return numbers.cpu().numpy() if isinstance(numbers, torch.Tensor) else np.asarray(numbers)
