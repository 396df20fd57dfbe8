"""Single transitions of a run's storage: contents, draw counts, and those with the largest errors."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from pytorchrl.experiments.inspection.saved_storage import SavedStorage, as_storage_error
from storages.core.ring.ring import Ring
from storages.core.sampling.episode_index import EpisodeIndex
from storages.core.sampling.prioritized import Priorities, importance_weights
from storages.transition import ACT, DONE, DONE2, OBS, OBS2, REW, TRUNC2, Array

Ranking: TypeAlias = Literal["highest priority", "highest reward", "lowest reward", "most drawn"]
"""Criteria by which transitions can be ordered."""


@dataclass(frozen=True)
class TransitionDescription:
    """A stored transition in the newest checkpoint."""

    row: int
    """Its number, as in the field INDICES of batches; constant while the transition is stored."""
    environment: int
    """Index of the environment in the vector environment."""
    episode: int
    """Index of its episode among the stored ones, in the order in which they ended; running ones come last."""
    step_in_episode: int | None
    """Number of earlier steps of the episode; None if the episode's first step is not stored any more."""
    episode_length: int
    """Number of stored steps of the episode."""
    episode_return: float
    """Sum of the stored rewards of the episode."""
    age_steps: int
    """Number of later environment steps."""
    priority: float | None
    """Its priority; None without prioritisation, or if no row of a batch begins with it."""
    draws: int | None
    """Number of batch rows that began with it so far; None unless the storage counts them (``count_draws``)."""
    weight: float | None
    """Current importance weight, normalised to a maximum of 1; None if it cannot be drawn."""
    mean_weight: float | None
    """Mean importance weight of its draws; None if it was not drawn, or draws are not counted."""
    reward: float
    """As stored: shaped by wrappers, normalised."""
    terminated: bool
    """Whether the environment ended the episode with it."""
    truncated: bool
    """Whether the episode was truncated after it."""
    action: NDArray[Any]
    """(*action), as stored."""
    observation: Any
    """(*obs) or a dict of such, before it."""
    next_observation: Any
    """As ``observation``, after it."""


def describe_transition(run: str | os.PathLike[str], row: int) -> TransitionDescription:
    """Describe a transition in the storage of a run's newest checkpoint.

    Args:
        run: the run folder, or a checkpoint.
        row: the transition's number, as in the field INDICES of batches.

    Raises:
        CheckpointError: there is no checkpoint, it is damaged, or it contains no storage.
        ValueError: the row is not stored.
    """
    return StoredTransitions(SavedStorage.read(run)).describe([row])[0]


def most_surprising(run: str | os.PathLike[str], count: int = 10) -> list[TransitionDescription]:
    """Return the transitions with the largest TD errors at their last update, in descending order.

    Transitions that were not in an update yet have the priority of the largest error, and are left out. Storages that
    count draws know them exactly. For others, transitions with the current initial error are left out, and of several
    with the same error, only the newest is kept.

    Args:
        run: the run folder, or a checkpoint.
        count: maximum number; the result is empty if the storage has no priorities.

    Raises:
        CheckpointError: there is no checkpoint, it is damaged, or it contains no storage.
    """
    transitions = StoredTransitions(SavedStorage.read(run))
    return transitions.describe(transitions.most_surprising(count))


class StoredTransitions:
    """The transitions of a checkpoint's storage, by their numbers.

    Args:
        storage: of the checkpoint.
    """

    def __init__(self, storage: SavedStorage) -> None:
        self.storage = storage
        self.ring: Ring = storage.ring
        """The ring buffer of the transitions."""

    def describe(self, rows: Sequence[int] | NDArray[np.int64]) -> list[TransitionDescription]:
        """Describe some transitions.

        Raises:
            ValueError: one is not stored.
        """
        if not len(rows):
            return []
        numbers = self._checked(rows)
        fields = self.ring.gather(numbers)
        weights, priorities = self._weights(numbers), self._priorities_of(numbers)
        episodes = np.searchsorted(self._ends, self._index.last_of(numbers))
        return [
            self._described(
                int(row),
                _row_of(fields, place),
                episode=int(episodes[place]),
                priority=priorities[place],
                weight=weights[place],
            )
            for place, row in enumerate(numbers)
        ]

    def ranked(self, by: Ranking, count: int) -> NDArray[np.int64]:
        """Return the numbers of the first ``count`` transitions in an order; among equal ones, the newest first.

        Raises:
            ValueError: the storage lacks the values to order by, or ``by`` is unknown.
        """
        priorities, start = self.storage.priorities, self.ring.start
        if by not in get_args(Ranking):
            raise ValueError(f"transitions can be ordered by {', '.join(get_args(Ranking))}, got {by!r}")
        if by == "highest priority":
            if priorities is None:
                raise ValueError(self._no_priorities())
            return _first(priorities.drawn, priorities.values, count)
        stored = np.arange(start, self.ring.end)
        if by == "most drawn":
            if self._draws is None:
                raise ValueError(
                    f"{self.storage.file}: {self.storage.name} has not counted draws; make it with count_draws=True"
                )
            return _first(stored, self._draws, count)
        rewards = self.ring.gather(stored, {REW})[REW][:, 0] if len(stored) else np.zeros(0)
        return _first(stored, rewards if by == "highest reward" else -rewards, count)

    def most_surprising(self, count: int) -> NDArray[np.int64]:
        """Return the numbers of at most ``count`` transitions; see :func:`most_surprising`."""
        priorities = self.storage.priorities
        if priorities is None:
            return np.zeros(0, np.int64)
        drawn, values = priorities.drawn, priorities.values
        met = self._met(priorities)[drawn - self.ring.start] & (values > 0)
        return _first(drawn[met], values[met], count)

    def around(self, row: int, steps: int) -> NDArray[np.int64]:
        """Return the numbers of the stored transitions of its episode up to ``steps`` before and after a transition.

        Raises:
            ValueError: the transition is not stored.
        """
        number, envs = self._checked([row]), self.ring.envs
        first = max(int(self._index.first_of(number)[0]), row - steps * envs)
        last = min(int(self._index.last_of(number)[0]), row + steps * envs)
        return np.arange(first, last + 1, envs)

    def episode_of(self, row: int) -> NDArray[np.int64]:
        """Return the numbers of all stored transitions of a transition's episode.

        Raises:
            ValueError: the transition is not stored.
        """
        return self.around(row, self.ring.live_steps)

    def _described(self, row: int, fields: Mapping[str, Any], **known: Any) -> TransitionDescription:
        rows, ring = self.episode_of(row), self.ring
        episode = ring.gather(rows, {REW, DONE})
        begins = bool(episode[DONE][0, 0])
        draws = None if self._draws is None else int(self._draws[row - ring.start])
        weights = float(self.storage.saved["draws"]["weights"].ravel()[row - ring.start]) if draws else 0.0
        return TransitionDescription(
            row=row,
            environment=row % ring.envs,
            step_in_episode=(row - int(rows[0])) // ring.envs if begins else None,
            episode_length=len(rows),
            episode_return=float(episode[REW].sum(dtype=np.float64)),
            age_steps=ring.steps - 1 - row // ring.envs,
            draws=draws,
            mean_weight=weights / draws if draws else None,
            reward=float(fields[REW][0]),
            terminated=bool(fields[DONE2][0]),
            truncated=bool(fields[TRUNC2][0]),
            action=fields[ACT],
            observation=fields[OBS],
            next_observation=fields[OBS2],
            **known,
        )

    def _checked(self, rows: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
        ring, file = self.ring, self.storage.file
        if not ring.live_steps:
            raise ValueError(f"{file}: the storage is empty; there is no row to show")
        for row in rows:
            if not ring.start <= row < ring.end:
                raise ValueError(
                    f"{file}: row {row} is not stored; those from {ring.start} to {ring.end - 1} are, the oldest first"
                )
        return np.asarray(rows, np.int64)

    def _priorities_of(self, rows: NDArray[np.int64]) -> list[float | None]:
        priorities = self.storage.priorities
        if priorities is None:
            return [None] * len(rows)
        begins = np.isin(rows, priorities.drawn)
        return [float(value) if one else None for value, one in zip(priorities.of(rows), begins, strict=True)]

    def _weights(self, rows: NDArray[np.int64]) -> list[float | None]:
        """Return importance weights (Schaul et al., arXiv 1511.05952, section 3.4); 1 without priorities."""
        storage, priorities, beta = self.storage, self.storage.priorities, self.storage.value_of("beta")
        if priorities is None and not storage.lacks_alpha:
            return [1.0] * len(rows)
        if priorities is None or beta is None or priorities.smallest <= 0:
            return [None] * len(rows)
        share = float(storage.hyper_parameters.get("uniform_share", 0.0))
        # Probabilities are relative to uniform sampling.
        scale = 1 / priorities.mean if share else 1.0
        probabilities = share + (1 - share) * scale * priorities.of(rows)
        smallest = share + (1 - share) * scale * priorities.smallest
        can_be_drawn = np.isin(rows, priorities.drawn) & (probabilities > 0)
        weights = importance_weights(np.where(can_be_drawn, probabilities, smallest), beta, smallest)[:, 0]
        return [float(weight) if drawn else None for weight, drawn in zip(weights, can_be_drawn, strict=True)]

    def _met(self, priorities: Priorities) -> NDArray[np.bool_]:
        """Return (stored,), whether each was in an update, as far as is known; all true if none would be."""
        if self._draws is not None:
            return self._draws > 0
        errors = priorities.errors(self.ring.oldest).ravel()
        # Transitions inserted between two updates share the same initial error: only the newest is kept.
        _, newest = np.unique(errors[::-1], return_index=True)
        met: NDArray[np.bool_] = np.zeros(len(errors), np.bool_)
        met[len(errors) - 1 - newest] = True
        met &= errors != np.float32(priorities.initial_error)
        return met if met.any() else ~met

    def _no_priorities(self) -> str:
        storage = self.storage
        if storage.lacks_alpha:
            return (
                f"{storage.file}: priorities are unknown, because alpha is neither a number nor a LinearSchedule with "
                f"the run's config.json beside the checkpoint"
            )
        return (
            f"{storage.file}: {storage.name} has no priorities; a PERBuffer with alpha above 0 has some after the "
            f"first update"
        )

    @cached_property
    def _index(self) -> EpisodeIndex:
        return EpisodeIndex(self.ring)

    @cached_property
    def _ends(self) -> NDArray[np.int64]:
        """Numbers of the last stored transitions of all episodes, finished or running."""
        last = self.ring.broken()
        last[-1] = True
        return np.flatnonzero(last) + self.ring.start

    @cached_property
    def _draws(self) -> NDArray[np.int64] | None:
        """Number of draws of each stored transition, (stored,); None if they are not counted."""
        counted = self.storage.saved.get("draws")
        if counted is None:
            return None
        with as_storage_error(self.storage.file):
            counts: NDArray[np.int64] = counted["counts"].numpy().reshape(self.ring.live_transitions)
            return counts


def _first(rows: NDArray[np.int64], values: Array, count: int) -> NDArray[np.int64]:
    """Return the rows with the largest values; among equal ones, the newest first."""
    order = np.lexsort((rows, np.asarray(values, np.float64)))[::-1]
    return rows[order[:count]]


def _row_of(fields: Mapping[str, Any], place: int) -> dict[str, Any]:
    """Return a copy of one row of fields (B, ...)."""
    return {
        key: _row_of(value, place) if isinstance(value, Mapping) else np.array(value[place])
        for key, value in fields.items()
    }
