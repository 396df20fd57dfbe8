"""Single transitions of a run's storage: what they are, how often they were drawn, and which surprised most."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from pytorchrl.experiments.inspection.saved_storage import SavedStorage, unreadable_named
from storages.core.ring.ring import Ring
from storages.core.sampling.episode_index import EpisodeIndex
from storages.core.sampling.prioritized import Priorities, importance_weights
from storages.transition import ACT, DONE, DONE2, OBS, OBS2, REW, TRUNC2, Array

Ranking: TypeAlias = Literal["highest priority", "highest reward", "lowest reward", "most drawn"]
"""What transitions can be ordered by."""


@dataclass(frozen=True)
class TransitionDescription:
    """A stored transition, as the last checkpoint has it."""

    row: int
    """Its number, as INDICES of a batch has it: it stays the same while the transition is stored."""
    environment: int
    """Index of the environment in its vector."""
    episode: int
    """Number of its episode among those that are stored, in the order in which they ended; running ones come last."""
    step_in_episode: int | None
    """Steps of the episode before it; None where the episode's first step is not stored any more."""
    episode_length: int
    """Steps of the episode that are stored."""
    episode_return: float
    """Sum of the rewards of the episode that are stored."""
    age_steps: int
    """Environment steps that came after it."""
    priority: float | None
    """What it is drawn in proportion to; None where nothing is prioritised, or no row begins with it."""
    draws: int | None
    """Rows of batches that began with it so far; None where the storage does not count them (``count_draws``)."""
    weight: float | None
    """Importance weight with which it would be drawn now, 1 being the largest of all; None where it cannot be drawn."""
    mean_weight: float | None
    """Mean importance weight with which it was drawn; None where it was not, or draws are not counted."""
    reward: float
    """As the storage has it: shaped by wrappers, normalised."""
    terminated: bool
    """Whether the environment ended the episode with it."""
    truncated: bool
    """Whether a limit cut the episode after it."""
    action: NDArray[Any]
    """(*action) as the storage has it."""
    observation: Any
    """(*obs) or a dict of such, before it."""
    next_observation: Any
    """As ``observation``, after it."""


def describe_transition(run: Path, row: int) -> TransitionDescription:
    """Describe a transition of the storage of a run's last checkpoint.

    Args:
        run: the run folder, or a checkpoint.
        row: the transition's number, as INDICES of a batch has it.

    Raises:
        CheckpointError: there is no checkpoint, it is damaged, or holds no storage.
        ValueError: the row is not stored.
    """
    return StoredTransitions(SavedStorage.read(run)).describe([row])[0]


def most_surprising(run: Path, count: int = 10) -> list[TransitionDescription]:
    """The transitions that the algorithm was most wrong about when it learnt from them last, the largest error first.

    Transitions that no update has met yet have the priority of the largest error, and are left out. A storage that
    counts draws can tell them all; of another, those are left out that have the error which new ones are given now, and
    of several with one error the newest is taken.

    Args:
        run: the run folder, or a checkpoint.
        count: how many at most; there are none where the storage has no priorities.

    Raises:
        CheckpointError: there is no checkpoint, it is damaged, or holds no storage.
    """
    transitions = StoredTransitions(SavedStorage.read(run))
    return transitions.describe(transitions.most_surprising(count))


class StoredTransitions:
    """The transitions of a checkpoint's storage, by their numbers.

    Args:
        storage: as the checkpoint has it.
    """

    def __init__(self, storage: SavedStorage) -> None:
        self.storage = storage
        self.ring: Ring = storage.ring
        """What holds them."""

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
        """(at most ``count``,): numbers of the transitions that come first in an order; of equal ones, the newest.

        Raises:
            ValueError: the storage does not have what they are to be ordered by, or ``by`` is no order.
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
        """(at most ``count``,): see :func:`most_surprising`."""
        priorities = self.storage.priorities
        if priorities is None:
            return np.zeros(0, np.int64)
        drawn, values = priorities.drawn, priorities.values
        met = self._met(priorities)[drawn - self.ring.start] & (values > 0)
        return _first(drawn[met], values[met], count)

    def around(self, row: int, steps: int) -> NDArray[np.int64]:
        """Numbers of a transition and of those of its episode that are stored up to ``steps`` before and after it.

        Raises:
            ValueError: it is not stored.
        """
        number, envs = self._checked([row]), self.ring.envs
        first = max(int(self._index.first_of(number)[0]), row - steps * envs)
        last = min(int(self._index.last_of(number)[0]), row + steps * envs)
        return np.arange(first, last + 1, envs)

    def episode_of(self, row: int) -> NDArray[np.int64]:
        """Numbers of all transitions that are stored of the episode of one.

        Raises:
            ValueError: it is not stored.
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
        """Weights over all that is stored, section 3.4 of Schaul et al., arXiv 1511.05952; 1 without priorities."""
        storage, priorities, beta = self.storage, self.storage.priorities, self.storage.value_of("beta")
        if priorities is None and not storage.lacks_alpha:
            return [1.0] * len(rows)
        if priorities is None or beta is None or priorities.smallest <= 0:
            return [None] * len(rows)
        share = float(storage.hyper_parameters.get("uniform_share", 0.0))
        # How many times as probable as if all rows were drawn uniformly.
        scale = 1 / priorities.mean if share else 1.0
        probabilities = share + (1 - share) * scale * priorities.of(rows)
        smallest = share + (1 - share) * scale * priorities.smallest
        can_be_drawn = np.isin(rows, priorities.drawn) & (probabilities > 0)
        weights = importance_weights(np.where(can_be_drawn, probabilities, smallest), beta, smallest)[:, 0]
        return [float(weight) if drawn else None for weight, drawn in zip(weights, can_be_drawn, strict=True)]

    def _met(self, priorities: Priorities) -> NDArray[np.bool_]:
        """(stored,): whether an update has met each, as far as can be told; all where that leaves none."""
        if self._draws is not None:
            return self._draws > 0
        errors = priorities.errors(self.ring.oldest).ravel()
        # Those that came in between two updates were given the same initial error: the newest stands for all.
        _, newest = np.unique(errors[::-1], return_index=True)
        met: NDArray[np.bool_] = np.zeros(len(errors), np.bool_)
        met[len(errors) - 1 - newest] = True
        met &= errors != np.float32(priorities.initial_error)
        return met if met.any() else ~met

    def _no_priorities(self) -> str:
        storage = self.storage
        if storage.lacks_alpha:
            return (
                f"{storage.file}: priorities are not known, because alpha is no number, nor a LinearSchedule with the "
                f"run's config.json beside the checkpoint"
            )
        return (
            f"{storage.file}: {storage.name} has no priorities; a PERBuffer with alpha above 0 has some once it was "
            f"learnt from"
        )

    @cached_property
    def _index(self) -> EpisodeIndex:
        return EpisodeIndex(self.ring)

    @cached_property
    def _ends(self) -> NDArray[np.int64]:
        """Numbers of the transitions that episodes end with, or have come to."""
        last = self.ring.broken()
        last[-1] = True
        return np.flatnonzero(last) + self.ring.start

    @cached_property
    def _draws(self) -> NDArray[np.int64] | None:
        """(stored,)."""
        counted = self.storage.saved.get("draws")
        if counted is None:
            return None
        with unreadable_named(self.storage.file):
            counts: NDArray[np.int64] = counted["counts"].numpy().reshape(self.ring.live_transitions)
            return counts


def _first(rows: NDArray[np.int64], values: Array, count: int) -> NDArray[np.int64]:
    """The rows with the largest values, of equal ones the newest first."""
    order = np.lexsort((rows, np.asarray(values, np.float64)))[::-1]
    return rows[order[:count]]


def _row_of(fields: Mapping[str, Any], place: int) -> dict[str, Any]:
    """One row of fields (B, ...), copied."""
    return {
        key: _row_of(value, place) if isinstance(value, Mapping) else np.array(value[place])
        for key, value in fields.items()
    }
