"""Insert episodes into a storage, and read the episodes of a storage.

A data set is a sequence of whole episodes; a storage takes steps of several environments at once. Each environment of
the storage is therefore a lane, into which episodes are inserted one after the other; no transition spans two episodes.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from storages.core.ring.layout import FieldKey, nest, text
from storages.core.ring.ring import Ring
from storages.core.sampling.episode_index import EpisodeIndex
from storages.datasets.dataset import ACTION_NAMES, About, Dataset, arrays_of
from storages.episode import Episode
from storages.errors import DatasetError
from storages.persistent.spaces_file import read_spaces, write_spaces
from storages.protocols import Environments
from storages.storage import Storage
from storages.transition import ACT, DONE, DONE2, OBS, OBS2, REW, REWC, RHS, SUCCESSORS, TRUNC2, Array

_STEPS_AT_ONCE = 1_000
"""Most steps that are inserted by one call."""
_OF_THE_EPISODE = frozenset({OBS, OBS2, DONE, DONE2, TRUNC2})
"""Fields that follow from the attributes of an :class:`Episode`, and are not in its ``fields``."""


@dataclass(frozen=True)
class Filled:
    """Counts of what was inserted into a storage.

    Args:
        episodes: episodes of which at least one step was inserted.
        transitions: inserted transitions, including those that newer ones have overwritten.
        divided: how often the rest of an episode was moved to another lane, to make all lanes equally long.
        left_out: transitions at the end that were not inserted, too few for a step of all environments.
    """

    episodes: int
    transitions: int
    divided: int
    left_out: int


@runtime_checkable
class _KeepsEpisodes(Protocol):
    """A storage that holds episodes outside its ring."""

    def episodes(self, *, whole: bool) -> Iterator[Episode]: ...


def fill(
    storage: Storage, episodes: Iterable[Episode], *, envs: Environments | None = None, num_envs: int | None = None
) -> Filled:
    """Insert episodes into a storage.

    Every lane (environment of the storage) gets a new episode when its last one ends. When there are no more episodes,
    the remaining steps of the running ones are divided equally among all lanes: the part of an episode that moves to
    another lane begins there like an episode, and the part before it is neither terminated nor truncated. At the end,
    fewer transitions than there are lanes are left out.

    Values are converted to the dtypes of the storage, or of ``envs`` if the storage is empty. Without either, rewards
    become float32, and other fields keep their dtypes.

    Args:
        storage: the storage; episodes are inserted after its present content.
        episodes: the episodes, read one by one when they are needed.
        envs: the environments, whose spaces determine shapes and dtypes if the storage is empty.
        num_envs: number of lanes of an empty storage without ``envs``; 1 if None.

    Raises:
        DatasetError: the episodes do not fit the fields of the storage or the environments, or lack the hidden states
            of a recurrent actor.
        SampleError: a field is missing or holds NaN or infinity; earlier insertions stay.
    """
    environments = storage.num_envs or (envs.num_envs if envs is not None else num_envs) or 1
    lanes, owner = _Lanes(episodes, environments), type(storage).__name__
    spaces = _layout_of(envs) if envs is not None else {}
    initial_memory = getattr(storage.actor, "initial_memory", None)
    needs_memory = initial_memory is not None and initial_memory(1) is not None
    transitions = 0
    for block in lanes.blocks():
        if needs_memory and (RHS,) not in block:
            raise DatasetError(
                f"{owner}: the actor is recurrent, and the episodes have no hidden states; "
                f"pytorchrl.experiments.with_memory(episodes, algorithm) adds them"
            )
        layout, fitting = storage.ring.layout, dict(block)
        # The storage itself refuses fields that it does not have.
        for path in layout or block:
            if path in block:
                wanted = layout[path].dtype if layout else _dtype_at_first(path, block[path], spaces, owner)
                fitting[path] = _cast(block[path], wanted, path, owner)
        storage.insert_data_slice(nest(fitting))
        transitions += len(block[(REW,)]) * environments
    if isinstance(episodes, Dataset):
        _keep_spaces(storage, episodes.about)
    return Filled(lanes.begun, transitions, lanes.divided, lanes.left_out)


def _keep_spaces(storage: Storage, about: About) -> None:
    """Keep the spaces of a data set in the directory of a storage on disk that has none yet."""
    directory = getattr(storage, "directory", None)
    spaces: dict[str, Any] = {"observation": about.observation_space, "action": about.action_space}
    if directory is None or None in spaces.values() or not Path(directory).is_dir() or read_spaces(Path(directory)):
        return
    names = about.further.get(ACTION_NAMES)
    write_spaces(Path(directory), spaces | ({"action_names": list(names)} if names else {}))


def episodes_of(storage: Storage, *, whole: bool = False) -> Iterator[Episode]:
    """Iterate over the episodes in a replay storage, in the order of their ends.

    The first steps of the oldest episodes may have been overwritten; unfinished episodes are neither terminated nor
    truncated. ``facts`` have the "environment", and whether the first step of the episode is stored ("begins"). A
    buffer of episodes on disk yields all its finished episodes, in memory or not.

    Args:
        storage: must not change during the iteration.
        whole: leave out episodes without their first step or their end.
    """
    if isinstance(storage, _KeepsEpisodes):
        return storage.episodes(whole=whole)
    return episodes_in(storage.ring, whole=whole)


def count_episodes_in(ring: Ring) -> int:
    """Return the number of episodes in a ring, complete or not."""
    return int(np.count_nonzero(_ends(ring))) if ring.live_steps else 0


def episodes_in(ring: Ring, *, whole: bool = False) -> Iterator[Episode]:
    """Iterate over the episodes in a ring, like :func:`episodes_of`."""
    if not ring.live_steps:
        return
    index = EpisodeIndex(ring)
    ends = np.flatnonzero(_ends(ring)) + ring.start
    for first, last in zip(index.first_of(ends), ends, strict=True):
        episode = _episode(ring, int(first), int(last))
        if not whole or (episode.facts["begins"] and (episode.terminated or episode.truncated)):
            yield episode


def _ends(ring: Ring) -> NDArray[np.bool_]:
    """Return whether each transition (N,) is the last of an episode, or the newest of its environment.

    A row in which an environment made no transition is none of an episode.
    """
    last = ring.broken()
    last[-1] = True
    return (last & ~ring.skipped()).ravel()


def _episode(ring: Ring, first: int, last: int) -> Episode:
    transitions = np.arange(first, last + 1, ring.envs)
    keys = {path[0] for path in ring.layout} - {OBS2, DONE2, TRUNC2}
    batch = ring.gather(transitions, keys)
    end = ring.gather(transitions[-1:], {OBS2, DONE2, TRUNC2})
    observations = (
        {name: np.concatenate([part, end[OBS2][name]]) for name, part in batch[OBS].items()}
        if isinstance(batch[OBS], Mapping)
        else np.concatenate([batch[OBS], end[OBS2]])
    )
    return Episode(
        observations,
        {key: value for key, value in batch.items() if key not in _OF_THE_EPISODE},
        terminated=bool(end[DONE2][0, 0]),
        truncated=bool(end[TRUNC2][0, 0]),
        facts={"environment": first % ring.envs, "begins": bool(batch[DONE][0, 0])},
    )


class EpisodeCursor:
    """Reads the steps [at, end) of an episode in order.

    Args:
        episode: the episode.
        at: number of the first step.
        end: number after the last step.
    """

    def __init__(self, episode: Episode, at: int, end: int) -> None:
        self.episode = episode
        self._begin = at
        self._arrays = arrays_of(episode)
        self.at, self.end = at, end

    @property
    def left(self) -> int:
        """Number of steps that are not read yet."""
        return self.end - self.at

    def take(self, steps: int) -> dict[FieldKey, Array]:
        """Read the next steps, (steps, ...) by leaf."""
        at, end, episode = self.at, self.at + steps, self.episode
        taken: dict[FieldKey, Array] = {}
        for path, array in self._arrays.items():
            taken[path] = array[at:end]
            if path[0] == OBS:
                taken[(OBS2, *path[1:])] = array[at + 1 : end + 1]
        numbers = np.arange(at, end)[:, None]
        is_last = numbers == len(episode) - 1
        # An episode whose first steps were overwritten must not pass for a whole one.
        begins = self._begin > 0 or episode.facts.get("begins") is not False
        taken[(DONE,)] = (numbers == self._begin) & begins
        taken[(DONE2,)], taken[(TRUNC2,)] = is_last & episode.terminated, is_last & episode.truncated
        self.at = end
        return taken


class _Lanes:
    """Distributes episodes to lanes, one for each environment of a storage.

    Args:
        episodes: the episodes to distribute.
        num_envs: number of lanes.
    """

    def __init__(self, episodes: Iterable[Episode], num_envs: int) -> None:
        self._episodes = (episode for episode in episodes if len(episode))
        self._lanes: list[deque[EpisodeCursor]] = [deque() for _ in range(num_envs)]
        self.begun = self.divided = self.left_out = 0

    def blocks(self) -> Iterator[dict[FieldKey, Array]]:
        """Iterate over blocks of steps of all lanes, (steps, E, ...) by leaf."""
        # Until there are no more episodes, each lane has one cursor.
        while all(lane or self._start_episode(lane) for lane in self._lanes):
            yield self._block()
        self._divide()
        while all(self._lanes):
            yield self._block()

    def _start_episode(self, lane: deque[EpisodeCursor]) -> bool:
        for episode in self._episodes:
            lane.append(EpisodeCursor(episode, 0, len(episode)))
            self.begun += 1
            return True
        return False

    def _block(self) -> dict[FieldKey, Array]:
        steps = min(_STEPS_AT_ONCE, *(lane[0].left for lane in self._lanes))
        taken = [lane[0].take(steps) for lane in self._lanes]
        for lane in self._lanes:
            if not lane[0].left:
                lane.popleft()
        if any(one.keys() != taken[0].keys() for one in taken):
            named = (sorted({text(path) for path in one}) for one in taken)
            raise DatasetError(
                f"episodes have different fields: {', beside '.join(map(str, named))}; store the same fields in all "
                f"episodes, or fill storages of their own"
            )
        block = {}
        for path in taken[0]:
            arrays = [one[path] for one in taken]
            if len(shapes := {array.shape[1:] for array in arrays}) > 1:
                raise DatasetError(
                    f"{text(path)} has different shapes in different episodes: {sorted(shapes)}; fill a storage with "
                    f"the episodes of one shape"
                )
            block[path] = arrays[0][:, None] if len(arrays) == 1 else np.stack(arrays, axis=1)
        return block

    def _divide(self) -> None:
        """Divide the remaining steps equally among the lanes."""
        cursors = [cursor for lane in self._lanes for cursor in lane]
        each, self.left_out = divmod(sum(cursor.left for cursor in cursors), len(self._lanes))
        if not each:
            self.begun -= sum(cursor.at == 0 for cursor in cursors)
            return
        surplus = deque(EpisodeCursor(one.episode, one.at + each, one.end) for one in cursors if one.left > each)
        for cursor in cursors:
            cursor.end = min(cursor.end, cursor.at + each)
        for lane in self._lanes:
            room = each - sum(cursor.left for cursor in lane)
            while room:
                source = surplus[0]
                end = min(source.end, source.at + room)
                lane.append(EpisodeCursor(source.episode, source.at, end))
                self.divided += 1
                room -= end - source.at
                source.at = end
                if not source.left:
                    surplus.popleft()


def _dtype_at_first(
    path: FieldKey, array: Array, spaces: Mapping[FieldKey, tuple[tuple[int, ...], np.dtype[Any]]], owner: str
) -> np.dtype[Any]:
    """Choose the dtype of a field (steps, E, ...) in an empty storage."""
    if path in ((REW,), (REWC,)):
        return np.dtype(np.float32)
    space = spaces.get((SUCCESSORS.get(path[0], path[0]), *path[1:]))
    if space is None:
        return array.dtype
    shape, dtype = space
    if array.shape[2:] != shape:
        raise DatasetError(
            f"{owner}: {text(path)} has shape {array.shape[2:]} in the data set, and {shape} in the environments; wrap "
            f"them alike, or choose the data set of the same environment"
        )
    return dtype


def _cast(array: Array, wanted: np.dtype[Any], path: FieldKey, owner: str) -> Array:
    if array.dtype == wanted:
        return array
    cast = array.astype(wanted)
    # Floats may be rounded; ints would wrap around.
    casting: Literal["safe", "same_kind"] = "safe" if wanted.kind in "iu" else "same_kind"
    if not np.can_cast(array.dtype, wanted, casting) and not np.array_equal(cast, array):
        raise DatasetError(
            f"{owner}: {text(path)} is {array.dtype} in the data set, and {wanted} in the storage, which cannot hold "
            f"its values; use a storage of its own for this data set"
        )
    return cast


def _layout_of(envs: Any) -> dict[FieldKey, tuple[tuple[int, ...], np.dtype[Any]]]:
    """Return shapes and dtypes of the spaces; a scalar space has shape (1,)."""
    observation, action = envs.observation_space, envs.action_space
    parts = getattr(observation, "spaces", None)
    spaces: dict[FieldKey, Any] = (
        {(OBS, name): part for name, part in parts.items()} if isinstance(parts, Mapping) else {(OBS,): observation}
    )
    layout = {path: ((*space.shape,) or (1,), np.dtype(space.dtype)) for path, space in spaces.items()}
    return layout | {(ACT,): ((*action.shape,) or (1,), np.dtype(action.dtype))}
