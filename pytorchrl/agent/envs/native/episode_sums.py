"""Returns and lengths of the episodes of a vector environment, below all wrappers of the user's."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from pytorchrl.agent.envs.copies.episode_recorder import EpisodeRecord, is_number
from pytorchrl.agent.envs.native.autoreset import on_host


class EpisodeSums:
    """Record the return and the length of each episode of ``E`` environments.

    The vector environment's ``step`` and ``reset`` are replaced by those here, as those of a single environment are by
    :class:`~pytorchrl.agent.envs.copies.episode_recorder.EpisodeRecorder`; rewards and flags come out of it as arrays.

    An environment whose rewards or ends are not those of its game, such as one that clips rewards, may have a method
    ``own_episode(reward, terminated, truncated, infos)`` that returns rewards and ends, (E,), as the game has them.

    Args:
        envs: as it was made, without the user's wrappers.
        reports: keys of numbers in the last step's infos that are recorded, where they are present.
    """

    def __init__(self, envs: VectorEnv[Any, Any, Any], reports: Sequence[str]) -> None:
        self._reports = tuple(reports)
        self._waits = envs.metadata.get("autoreset_mode") == AutoresetMode.NEXT_STEP
        self._own: Any = getattr(envs, "own_episode", None)
        self._returns, self._lengths = np.zeros(envs.num_envs), np.zeros(envs.num_envs, np.int64)
        self._ended: NDArray[np.int64] | None = None
        """Indices of the environments that the next step resets."""
        self._finished: list[EpisodeRecord] = []
        self._step, self._reset = envs.step, envs.reset
        envs.step, envs.reset = self._recorded_step, self._recorded_reset  # type: ignore[method-assign]

    def take_finished(self) -> list[EpisodeRecord]:
        """Return the episodes that ended since the last call, by environment."""
        finished = self._finished
        if finished:
            self._finished = []
        return finished

    def running(self) -> list[EpisodeRecord]:
        """Return the running episodes so far."""
        both = zip(self._returns.tolist(), self._lengths.tolist(), strict=True)
        return [EpisodeRecord(env, total, length) for env, (total, length) in enumerate(both)]

    def state_dict(self) -> dict[str, Any]:
        """Return the returns and lengths of running episodes, as arrays."""
        ended = np.zeros(len(self._returns), np.bool_)
        if self._ended is not None:
            ended[self._ended] = True
        return {"returns": self._returns.copy(), "lengths": self._lengths.copy(), "ended": ended}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state returned by `state_dict`."""
        self._returns[:], self._lengths[:] = state["returns"], state["lengths"]
        ended = np.flatnonzero(state["ended"])
        self._ended = ended if len(ended) else None

    def _recorded_step(self, actions: Any) -> Any:
        observation, reward, terminated, truncated, infos = self._step(actions)
        reward, terminated, truncated = on_host(reward), on_host(terminated), on_host(truncated)
        if self._own is None:
            own_reward, ended = reward, terminated | truncated
        else:
            own_reward, ended = self._own(reward, terminated, truncated, infos)
        self._returns += own_reward
        self._lengths += 1
        if self._ended is not None:
            self._returns[self._ended] = 0.0
            self._lengths[self._ended] = 0
            self._ended = None
        # Faster than any() and `flatnonzero` for a few environments.
        if np.count_nonzero(ended):
            indices = ended.nonzero()[0]
            self._finish(indices, infos)
            if self._waits:
                self._ended = indices
        return observation, reward, terminated, truncated, infos

    def _recorded_reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> Any:
        if options is None or "reset_mask" not in options:
            self._returns.fill(0.0)
            self._lengths.fill(0)
            self._ended = None
        return self._reset(seed=seed, options=options)

    def _finish(self, ended: NDArray[np.int64], infos: Mapping[str, Any]) -> None:
        returns, lengths = self._returns[ended].tolist(), self._lengths[ended].tolist()
        last = infos.get("final_info", infos)
        known = [name for name in self._reports if name in last]
        for env, total, length in zip(ended.tolist(), returns, lengths, strict=True):
            reported = {name: float(last[name][env]) for name in known if _reports(last, name, env)}
            self._finished.append(EpisodeRecord(env, total, length, reported))
        self._returns[ended] = 0.0
        self._lengths[ended] = 0


def _reports(infos: Mapping[str, Any], name: str, env: int) -> bool:
    """Whether an environment reported a number."""
    if not on_host(infos.get(f"_{name}", True)).all() and not infos[f"_{name}"][env]:
        return False
    # Gymnasium puts NumPy's booleans into an array of objects.
    return np.ndim(infos[name]) == 1 and is_number(on_host(infos[name])[env])
