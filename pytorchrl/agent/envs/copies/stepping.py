"""A step of all copies of an environment, in this process or in processes of their own.

Copies in this process are not stepped by gymnasium's ``SyncVectorEnv``, which converts all infos to arrays in every
step, several for each number, though storages keep none of them: a sixth of a step of HalfCheetah.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import SyncVectorEnv
from gymnasium.vector.utils import concatenate, create_empty_array
from numpy.typing import NDArray

from pytorchrl.agent.envs.copies.episode_recorder import FINISHED, EpisodeRecord, Finished
from pytorchrl.agent.envs.copies.infos import Infos
from pytorchrl.agent.envs.copies.processes import ProcessEnvs
from pytorchrl.agent.envs.copies.replayable import SEEDED
from pytorchrl.agent.envs.native.autoreset import copied


class CopiesStep(NamedTuple):
    """The result of a step of ``E`` copies; the arrays belong to the caller."""

    observation: Any
    """(E, *obs) or a dict: the first of a new episode where one ended."""
    last_observations: Mapping[int, Any]
    """The final observation of each copy whose episode ended, by its index."""
    reward: NDArray[np.float64]
    """(E,)."""
    terminated: NDArray[np.bool_]
    """(E,)."""
    truncated: NDArray[np.bool_]
    """(E,)."""
    finished: list[EpisodeRecord]
    """Episodes that ended, as of the environments themselves, below all wrappers."""
    seeded: Sequence[int]
    """Copies that were reset with a new seed."""
    infos: Mapping[str, Any]
    """The infos of the environments, in the layout of gymnasium's vector environments."""


def step_sync(envs: SyncVectorEnv, actions: NDArray[Any]) -> CopiesStep:
    """Step copies of this process one after the other; each is reset in the step in which its episode ends.

    Args:
        envs: vector environment of the copies.
        actions: (E, *action).
    """
    num_envs = envs.num_envs
    reward, terminated, truncated = np.zeros(num_envs), np.zeros(num_envs, np.bool_), np.zeros(num_envs, np.bool_)
    observations: list[Any] = []
    reported: list[dict[str, Any]] = []
    last_observations: dict[int, Any] = {}
    last_infos: list[tuple[int, dict[str, Any]]] = []
    finished: list[EpisodeRecord] = []
    seeded: list[int] = []
    # An environment may change its action, which is stored, and repeated when a run is resumed.
    given = actions.copy() if actions.ndim > 1 else actions
    for env, (one, action) in enumerate(zip(envs.envs, given, strict=True)):
        observation, reward[env], terminated[env], truncated[env], info = one.step(action)
        if terminated[env] or truncated[env]:
            last_observations[env] = observation
            last_infos.append((env, info))
            observation, info = one.reset()
        if FINISHED in info or SEEDED in info:
            info = dict(info)
            _take_notes(info, env, finished, seeded)
        observations.append(observation)
        reported.append(info)
    infos = Infos(reported, last_infos)
    batch = _batch(envs, observations)
    return CopiesStep(batch, last_observations, reward, terminated, truncated, finished, seeded, infos)


def step_async(envs: ProcessEnvs, actions: NDArray[Any]) -> CopiesStep:
    """Step copies that are in processes of their own.

    Args:
        envs: vector environment of the copies.
        actions: (E, *action).
    """
    reported: Any
    written_over, reward, terminated, truncated, reported = envs.step(actions)
    last_observations: dict[int, Any] = {}
    last_infos: list[tuple[int, dict[str, Any]]] = []
    finished: list[EpisodeRecord] = []
    seeded: list[int] = []
    for env in np.flatnonzero(terminated | truncated).tolist():
        last_observations[env] = reported[env].pop("final_obs")
        last_infos.append((env, reported[env].pop("final_info")))
    for env, info in reported.items():
        _take_notes(info, env, finished, seeded)
    infos = Infos(list(reported.values()), last_infos)
    batch = copied(written_over)
    return CopiesStep(batch, last_observations, reward, terminated, truncated, finished, seeded, infos)


def _batch(envs: SyncVectorEnv, observations: Sequence[Any]) -> Any:
    """Return observations as a new batch (E, *obs), or a dict of such."""
    space = envs.single_observation_space
    shape, dtype = space.shape, space.dtype
    if shape is None or not all(
        type(one) is np.ndarray and one.shape == shape and one.dtype == dtype for one in observations
    ):
        # For dicts, scalars, and arrays of another dtype; it raises where shapes do not fit.
        empty: Any = create_empty_array(space, len(observations))
        return concatenate(space, observations, empty)
    # Faster than gymnasium's function, which dispatches on the space and writes into an array that is reused.
    return np.array(observations)


def _take_notes(info: dict[str, Any], env: int, finished: list[EpisodeRecord], seeded: list[int]) -> None:
    """Take out of an info what :class:`~pytorchrl.agent.envs.copies.replayable.Replayable` added to it."""
    finished += _records(env, info.pop(FINISHED, ()))
    if info.pop(SEEDED, False):
        seeded.append(env)


def _records(env: int, finished: Sequence[Finished]) -> list[EpisodeRecord]:
    return [EpisodeRecord(env, *episode) for episode in finished]
