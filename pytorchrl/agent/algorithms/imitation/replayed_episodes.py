"""Complete episodes from successive rollouts, and PPO+D's two buffers of those to be replayed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from pytorchrl.agent.envs.plain_data import as_arrays, as_tensors
from storages.datasets import episodes_of
from storages.episode import Episode, Observations
from storages.storage import Storage
from storages.transition import ACT, REW, VAL, Array

_KEPT = (ACT, REW, VAL)
"""Fields that are kept of a step, beside the observation."""

_LEAST_VALUE = 1e-8
"""Lower bound of an episode's value in sampling probabilities."""


@dataclass(eq=False)
class StoredEpisode:
    """An episode that may be replayed."""

    episode: Episode
    number: int
    """Unique within the run."""
    value: float
    """The largest value of its observations, as of the last evaluation."""


class ReplayedEpisodes:
    """Buffers of rewarded episodes, including all demonstrations, and of valued episodes.

    Libardi, Dittert and De Fabritiis (arXiv 2007.03328): episodes of the agent whose return reaches that of a
    demonstration are rewarded; of the others, those with the largest values are kept. Each new rewarded episode moves
    probability from valued to rewarded episodes. Demonstrations are never dropped.

    Args:
        demonstrations: at least one.
        capacity: episodes of the agent that are kept.
        rho: initial share of rewarded episodes.
        phi: initial share of valued episodes.
        alpha: a valued episode is drawn with probability proportional to its value to this power.
    """

    def __init__(self, demonstrations: Sequence[Episode], capacity: int, rho: float, phi: float, alpha: float) -> None:
        self.rewarded = [StoredEpisode(of_fields(each), number, 0.0) for number, each in enumerate(demonstrations)]
        self.valued: list[StoredEpisode] = []
        self.rho, self.phi = rho, phi
        self._shares = (rho, phi)
        self._capacity, self._alpha = capacity, alpha
        self._demonstrations = self._seen = len(self.rewarded)
        self.threshold = min(_return_of(kept.episode) for kept in self.rewarded)
        """The smallest return of a rewarded episode."""

    def add(self, episode: Episode, value: float) -> None:
        """Add an episode of the agent and drop one if full; ``value`` is the largest of its observations."""
        kept = StoredEpisode(episode, self._seen, value)
        self._seen += 1
        if _return_of(episode) >= self.threshold:
            self.rewarded.append(kept)
            if self.valued:
                moved = min(self.phi, self._shares[1] / len(self.valued))
                self.rho, self.phi = self.rho + moved, self.phi - moved
        else:
            self.valued.append(kept)
        if self.valued and len(self) > self._capacity:
            self.valued.remove(min(self.valued, key=lambda each: each.value))
        elif len(self) > self._capacity:
            # The agent's oldest episode, behind the demonstrations.
            del self.rewarded[self._demonstrations]

    def draw(self, generator: torch.Generator) -> StoredEpisode:
        """Draw an episode: a rewarded one uniformly, or a valued one with probability by its value."""
        of_kind, position = torch.rand(2, generator=generator, device=generator.device, dtype=torch.float64).tolist()
        if not self.valued or of_kind * (self.rho + self.phi) < self.rho:
            return self.rewarded[int(position * len(self.rewarded))]
        values = np.array([max(each.value, _LEAST_VALUE) for each in self.valued])
        chances = np.cumsum((values / values.max()) ** self._alpha)
        return self.valued[int(np.searchsorted(chances, position * chances[-1], side="right"))]

    def set_value(self, number: int, value: float) -> None:
        """Update the value of an episode after its replay, if it is still kept."""
        for kept in self.valued:
            if kept.number == number:
                kept.value = value

    def __len__(self) -> int:
        """Return the number of the agent's episodes."""
        return len(self.rewarded) - self._demonstrations + len(self.valued)

    def state_dict(self) -> dict[str, Any]:
        """Return everything but the demonstrations, as tensors and plain data."""
        kinds = {"rewarded": self.rewarded[self._demonstrations :], "valued": self.valued}
        episodes = {name: [state_of(kept) for kept in kind] for name, kind in kinds.items()}
        return {**episodes, "rho": self.rho, "phi": self.phi, "seen": self._seen}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state returned by `state_dict`."""
        own, valued = ([stored_episode_of(each) for each in state[name]] for name in ("rewarded", "valued"))
        self.rewarded[self._demonstrations :], self.valued = own, valued
        self.rho, self.phi, self._seen = state["rho"], state["phi"], state["seen"]


def state_of(kept: StoredEpisode) -> dict[str, Any]:
    """Return an episode as tensors and plain data."""
    return {"episode": saved(kept.episode), "number": kept.number, "value": kept.value}


def stored_episode_of(state: Mapping[str, Any]) -> StoredEpisode:
    """Return the episode from which :func:`state_of` made a state."""
    return StoredEpisode(loaded(state["episode"]), state["number"], state["value"])


def _return_of(episode: Episode) -> float:
    return float(np.sum(episode.fields[REW], dtype=np.float64))


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
