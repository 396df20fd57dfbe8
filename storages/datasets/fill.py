"""Between storages and episodes: a storage is filled from a data set, and a data set made of what one holds.

A data set lists whole episodes one after the other, a storage takes steps of several environments side by side. So
episodes are dealt to the environments, each of which plays its episodes one after the other; no transition joins two.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from storages.core.ring.layout import FieldKey, leaves, nest, text
from storages.core.ring.ring import Ring
from storages.core.sampling.episode_index import EpisodeIndex
from storages.episode import Episode
from storages.errors import DatasetError
from storages.storage import Environments, Storage
from storages.transition import ACT, DONE, DONE2, OBS, OBS2, REW, RHS, SUCCESSORS, TRUNC2, Array

_STEPS_AT_ONCE = 1_000
"""Laid side by side before they are inserted."""
_OF_THE_EPISODE = frozenset({OBS, OBS2, DONE, DONE2, TRUNC2})
"""Fields that follow from where an episode begins and ends."""


@dataclass(frozen=True)
class Filled:
    """What a storage was given.

    Args:
        episodes: of how many something was inserted.
        transitions: how many were inserted, those included that newer ones have overwritten since.
        divided: how often the rest of an episode went to another environment, so that all of them had as much.
        left_out: transitions at the end that would not have filled a step of all environments.
    """

    episodes: int
    transitions: int
    divided: int
    left_out: int


@runtime_checkable
class _KeepsEpisodes(Protocol):
    """A storage whose ring need not be all that it holds."""

    def episodes(self, *, whole: bool) -> Iterator[Episode]: ...


def fill(
    storage: Storage, episodes: Iterable[Episode], *, envs: Environments | None = None, num_envs: int | None = None
) -> Filled:
    """Insert episodes into a storage.

    Episodes are dealt to the storage's environments as these come to an end. Where there is none left to deal, what the
    environments still have is divided among all of them; an episode that is divided is broken off and goes on in
    another environment, where it begins like any. Fewer transitions than there are environments are left out.

    Values are made to have the dtypes that the storage has already, else those of ``envs``; else rewards become float32
    and everything stays what it is.

    Args:
        storage: gets them after what it holds.
        episodes: read one by one, as they are needed.
        envs: those that the storage is to be used with; an empty storage takes shapes and dtypes from their spaces.
        num_envs: environments of a storage that does not know yet; 1 where None.

    Raises:
        DatasetError: the episodes do not fit what the storage holds, or the environments; or they lack the memory of an
            actor that has one.
        SampleError: a field is missing or holds NaN or infinity; what was inserted before stays.
    """
    environments = storage.num_envs or (envs.num_envs if envs is not None else num_envs) or 1
    dealer = _Dealer(episodes, environments)
    wanted = _Wanted(storage, envs)
    transitions = 0
    for sample, steps in dealer.blocks():
        fitting = wanted.of(sample)
        storage.insert_data_slice(nest(fitting))
        transitions += steps * environments
    return Filled(dealer.begun, transitions, dealer.divided, dealer.left_out)


def episodes_of(storage: Storage, *, whole: bool = False) -> Iterator[Episode]:
    """The episodes that a storage of replay holds, those first that ended first.

    Of the oldest, the beginning may be overwritten already; those that run, and those that broke off, are neither
    terminated nor truncated. ``facts`` tell the "environment", and whether the episode "begins" with its first step.
    A buffer that keeps episodes on disk yields all that it holds, in memory or not, but those that run.

    Args:
        storage: must not change while its episodes are asked for.
        whole: leave out those that lack their beginning or an end.
    """
    if isinstance(storage, _KeepsEpisodes):
        return storage.episodes(whole=whole)
    return episodes_in(storage.ring, whole=whole)


def count_episodes_in(ring: Ring) -> int:
    """How many there are."""
    return int(np.count_nonzero(_ends(ring))) if ring.live_steps else 0


def episodes_in(ring: Ring, *, whole: bool = False) -> Iterator[Episode]:
    """As :func:`episodes_of`."""
    if not ring.live_steps:
        return
    index = EpisodeIndex(ring)
    ends = np.flatnonzero(_ends(ring)) + ring.start
    for first, last in zip(index.first_of(ends), ends, strict=True):
        episode = _episode(ring, int(first), int(last))
        if not whole or (episode.facts["begins"] and (episode.terminated or episode.truncated)):
            yield episode


def _ends(ring: Ring) -> NDArray[np.bool_]:
    """(transitions,): the last ones of episodes, or the newest."""
    last = ring.broken()
    last[-1] = True
    return last.ravel()


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


class _Piece:
    """Steps [at, end) of an episode, of which :meth:`take` takes the next.

    Args:
        episode: whose.
        at: number of the first step.
        end: number after the last.
    """

    def __init__(self, episode: Episode, at: int, end: int) -> None:
        self.episode = episode
        self._begin = at
        self._arrays = {path: np.asarray(array) for path, array in _leaves(episode)}
        self.at, self.end = at, end

    @property
    def left(self) -> int:
        """Steps that were not taken yet."""
        return self.end - self.at

    def take(self, steps: int) -> dict[FieldKey, Array]:
        """The next steps, (steps, ...) by leaf."""
        at, end, episode = self.at, self.at + steps, self.episode
        taken: dict[FieldKey, Array] = {}
        for path, array in self._arrays.items():
            taken[path] = array[at:end]
            if path[0] == OBS:
                taken[(OBS2, *path[1:])] = array[at + 1 : end + 1]
        numbers = np.arange(at, end)[:, None]
        is_last = numbers == len(episode) - 1
        taken[(DONE,)] = numbers == self._begin
        taken[(DONE2,)], taken[(TRUNC2,)] = is_last & episode.terminated, is_last & episode.truncated
        self.at = end
        return taken


class _Dealer:
    """Deals episodes to environments.

    Args:
        episodes: what is dealt.
        num_envs: to how many.
    """

    def __init__(self, episodes: Iterable[Episode], num_envs: int) -> None:
        self._episodes = (episode for episode in episodes if len(episode))
        self._num_envs = num_envs
        self.begun = self.divided = self.left_out = 0

    def blocks(self) -> Iterator[tuple[dict[FieldKey, Array], int]]:
        """Steps of all environments, (steps, E, ...) by leaf, and how many these are."""
        # What each environment has got: one piece, until there are no more episodes.
        hands: list[list[_Piece]] = [[] for _ in range(self._num_envs)]
        while all(hand or self._deal_to(hand) for hand in hands):
            yield from self._played(hands)
        self._divide(hands)
        while all(hands):
            yield from self._played(hands)

    def _deal_to(self, hand: list[_Piece]) -> bool:
        for episode in self._episodes:
            hand.append(_Piece(episode, 0, len(episode)))
            self.begun += 1
            return True
        return False

    def _played(self, hands: list[list[_Piece]]) -> Iterator[tuple[dict[FieldKey, Array], int]]:
        steps = min(_STEPS_AT_ONCE, *(hand[0].left for hand in hands))
        taken = [hand[0].take(steps) for hand in hands]
        for hand in hands:
            if not hand[0].left:
                hand.pop(0)
        if any(one.keys() != taken[0].keys() for one in taken):
            named = (sorted({text(path) for path in one}) for one in taken)
            raise DatasetError("episodes have different fields: " + ", beside ".join(map(str, named)))
        yield {path: _side_by_side([one[path] for one in taken], path) for path in taken[0]}, steps

    def _divide(self, hands: list[list[_Piece]]) -> None:
        """Give all environments as many steps of what is left."""
        each, self.left_out = divmod(sum(piece.left for hand in hands for piece in hand), self._num_envs)
        self.begun -= sum(1 for hand in hands for piece in hand if not each and piece.at == 0)
        surplus: list[_Piece] = []
        for hand in hands:
            for piece in hand:
                if piece.left > each:
                    surplus.append(_Piece(piece.episode, piece.at + each, piece.end))
                    piece.end = piece.at + each
            if not each:
                hand.clear()
        for hand in hands if each else ():
            room = each - sum(piece.left for piece in hand)
            while room:
                source = surplus[0]
                end = min(source.end, source.at + room)
                hand.append(_Piece(source.episode, source.at, end))
                self.divided += 1
                room -= end - source.at
                source.at = end
                if not source.left:
                    surplus.pop(0)


def _leaves(episode: Episode) -> Iterator[tuple[FieldKey, Array]]:
    for path, array in leaves({OBS: episode.observations, **episode.fields}):
        rows, expected = len(array), len(episode) + (path[0] == OBS)
        if rows != expected:
            raise DatasetError(f"an episode of {len(episode)} steps has {rows} rows of {text(path)}, not {expected}")
        yield path, np.asarray(array)


def _side_by_side(arrays: list[Array], path: FieldKey) -> Array:
    """(steps, E, ...)."""
    if len(arrays) == 1:
        return arrays[0][:, None]
    shapes = {array.shape[1:] for array in arrays}
    if len(shapes) > 1:
        raise DatasetError(f"{text(path)} has different shapes in different episodes: {sorted(shapes)}")
    return np.stack(arrays, axis=1)


class _Wanted:
    """Which dtypes a storage takes.

    Args:
        storage: what is filled.
        envs: what an empty one is told of.
    """

    def __init__(self, storage: Storage, envs: Environments | None) -> None:
        self._storage = storage
        self._owner = type(storage).__name__
        self._of_envs = _layout_of(envs) if envs is not None else {}

    def of(self, block: Mapping[FieldKey, Array]) -> dict[FieldKey, Array]:
        """A block (steps, E, ...) as the storage takes it."""
        layout = self._storage.ring.layout
        if (RHS,) not in block and _remembers(self._storage.actor):
            raise DatasetError(
                f"{self._owner}: the actor has a memory, and the episodes do not say what it held; "
                f"pytorchrl.experiments.with_memory(episodes, algorithm) does"
            )
        fitting: dict[FieldKey, Array] = {}
        for path, array in block.items():
            if path in layout:
                wanted: np.dtype[Any] = layout[path].dtype
            elif layout:
                # The storage says which fields it has.
                wanted = array.dtype
            else:
                wanted = self._at_first(path, array)
            fitting[path] = self._cast(array, wanted, path)
        return fitting

    def _at_first(self, path: FieldKey, array: Array) -> np.dtype[Any]:
        if path == (REW,):
            return np.dtype(np.float32)
        of_envs = self._of_envs.get((SUCCESSORS.get(path[0], path[0]), *path[1:]))
        if of_envs is None:
            return array.dtype
        shape, dtype = of_envs
        if array.shape[2:] != shape:
            raise DatasetError(
                f"{self._owner}: {text(path)} has shape {array.shape[2:]} in the data set, and {shape} in the "
                f"environments; wrap them alike, or choose the data set of the same environment"
            )
        return dtype

    def _cast(self, array: Array, wanted: np.dtype[Any], path: FieldKey) -> Array:
        if array.dtype == wanted:
            return array
        cast = array.astype(wanted)
        if not np.can_cast(array.dtype, wanted, "same_kind") and not np.array_equal(cast, array):
            raise DatasetError(
                f"{self._owner}: {text(path)} is {array.dtype} in the data set, and {wanted} in the storage, which "
                f"cannot hold its values; use a storage of its own for this data set"
            )
        return cast


def _remembers(actor: Any) -> bool:
    initial_memory = getattr(actor, "initial_memory", None)
    return initial_memory is not None and initial_memory(1) is not None


def _layout_of(envs: Any) -> dict[FieldKey, tuple[tuple[int, ...], np.dtype[Any]]]:
    """What the spaces say; a space without a shape is a column of one number."""
    observation, action = envs.observation_space, envs.action_space
    parts = getattr(observation, "spaces", None)
    spaces: dict[FieldKey, Any] = (
        {(OBS, name): part for name, part in parts.items()} if isinstance(parts, Mapping) else {(OBS,): observation}
    )
    layout = {path: ((*space.shape,) or (1,), np.dtype(space.dtype)) for path, space in spaces.items()}
    return layout | {(ACT,): ((*action.shape,) or (1,), np.dtype(action.dtype))}
