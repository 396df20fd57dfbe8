"""Complete episodes from successive rollouts, joined where they span several of them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pytorchrl.agent.envs.plain_data import as_arrays, as_tensors
from storages.datasets import episodes_of
from storages.episode import Episode, Observations
from storages.storage import Storage
from storages.transition import ACT, REW, VAL, Array

_KEPT = (ACT, REW, VAL)
"""Fields that are kept of a step, beside the observation."""


class WholeEpisodes:
    """Collects complete episodes from successive rollouts."""

    def __init__(self) -> None:
        self._running: dict[int, list[Episode]] = {}
        """Parts of each environment's unfinished episode, one per rollout."""

    def ended_in(self, rollout: Storage) -> Iterator[Episode]:
        """Yield the complete episodes that end in a rollout, which must continue the previous one."""
        for part in episodes_of(rollout):
            env = part.facts["environment"]
            if part.facts["begins"]:
                self._running[env] = []
            if env not in self._running:
                continue
            self._running[env].append(part)
            if part.terminated or part.truncated:
                yield _joined(self._running.pop(env))

    def state_dict(self) -> dict[str, Any]:
        """Return the unfinished episodes, as tensors and plain data."""
        return {"running": [[env, [saved(part) for part in parts]] for env, parts in self._running.items()]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state returned by `state_dict`."""
        self._running = {env: [loaded(part) for part in parts] for env, parts in state["running"]}


def saved(episode: Episode) -> dict[str, Any]:
    """Return an episode as tensors and plain data."""
    ends = {"terminated": episode.terminated, "truncated": episode.truncated}
    return as_tensors({"observations": episode.observations, "fields": dict(episode.fields), **ends})  # type: ignore[no-any-return]


def loaded(state: Mapping[str, Any]) -> Episode:
    """Return the episode from which :func:`saved` made a state."""
    return Episode(**as_arrays(state))


def of_fields(episode: Episode) -> Episode:
    """Return an episode with only the fields that replay needs."""
    fields = {key: np.asarray(episode.fields[key]) for key in _KEPT if key in episode.fields}
    return Episode(episode.observations, fields, episode.terminated, episode.truncated)


def _joined(parts: Sequence[Episode]) -> Episode:
    if len(parts) == 1:
        return of_fields(parts[0])
    fields = {key: np.concatenate([part.fields[key] for part in parts]) for key in _KEPT}
    last = parts[-1]
    return Episode(_in_a_row([part.observations for part in parts]), fields, last.terminated, last.truncated)


def _in_a_row(parts: Sequence[Observations]) -> Observations:
    """Concatenate observations; each part begins with the last observation of the previous one."""
    first = parts[0]
    if isinstance(first, Mapping):
        of_names: dict[str, Any] = {name: [part[name] for part in parts] for name in first}
        return {name: _in_a_row(each) for name, each in of_names.items()}  # type: ignore[misc]
    arrays: list[Array] = [part[:-1] for part in parts[:-1]]  # type: ignore[index]
    return np.concatenate([*arrays, parts[-1]])
