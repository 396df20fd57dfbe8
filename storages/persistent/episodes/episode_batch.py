"""Batches of whole episodes in the format of segments: concatenated rows that hold each observation once.

An episode of ``L`` steps has ``L + 1`` rows. The last row holds the final observation; fields without a next value,
such as rewards, are zero there. A row holds the newest frame of a frame stack only. A number for each episode says
whether the older frames of its first stack repeat the first frame (``REPEAT``), are zero (``ZERO``), or are others, in
leading rows before the first row (:data:`PREFIX_FRAMES`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from storages.core.kernels.stacks import REPEAT, ZERO
from storages.core.ring.column import bytes_of
from storages.core.ring.layout import FieldKey, Layout, nest
from storages.core.ring.ring import Ring
from storages.core.ring.snapshot import (
    BEFORE,
    CUT_BEFORE,
    ENDED,
    FINAL,
    FOLLOWING,
    HAS_FINAL,
    NEWEST,
    PADDING,
    PADDING_FRAMES,
    ROWS,
    ArrayKey,
    Fragments,
    RowSpan,
)
from storages.episode import Episode
from storages.transition import DONE, DONE2, OBS, RHS, RHS2, SCALARS, SUCCESSORS, TRUNC2, Array, Sample

PREFIX_FRAMES = 0
"""The older frames of the first stack are in leading rows before the first row."""
_OF_THE_EPISODE = frozenset({OBS, DONE, DONE2, TRUNC2})
"""Fields that follow from the attributes of an :class:`Episode`, and are not in its ``fields``."""


@dataclass(frozen=True)
class EpisodeBatch:
    """Concatenated episodes.

    Args:
        columns: (rows, ...), by leaf.
        lengths: (episodes,), steps of each episode.
        leading: (episodes,), leading rows of each episode, before the row of its first step.
        paddings: (episodes,) int32, by leaf that is a frame stack: ``REPEAT``, ``ZERO`` or :data:`PREFIX_FRAMES`.
        facts: facts of each episode, plain data.
    """

    columns: dict[FieldKey, Array]
    lengths: NDArray[np.int64]
    leading: NDArray[np.int64]
    paddings: dict[FieldKey, NDArray[np.int32]]
    facts: tuple[Mapping[str, Any], ...]

    def __len__(self) -> int:
        """Number of episodes."""
        return len(self.lengths)

    @property
    def rows(self) -> int:
        """Number of rows of all episodes."""
        return int(self.rows_each.sum())

    @property
    def rows_each(self) -> NDArray[np.int64]:
        """Number of rows of each episode, (episodes,)."""
        each: NDArray[np.int64] = self.leading + self.lengths + 1
        return each

    @property
    def steps(self) -> int:
        """Number of transitions."""
        return int(self.lengths.sum())

    @property
    def nbytes(self) -> int:
        """Bytes of the columns."""
        return sum(column.nbytes for column in self.columns.values())

    def select(self, first: int, end: int) -> Self:
        """Return the episodes [first, end), as views."""
        bounds = np.concatenate([[0], np.cumsum(self.rows_each)])
        rows, chosen = slice(bounds[first], bounds[end]), slice(first, end)
        return replace(
            self,
            columns={path: column[rows] for path, column in self.columns.items()},
            lengths=self.lengths[chosen],
            leading=self.leading[chosen],
            paddings={path: padding[chosen] for path, padding in self.paddings.items()},
            facts=self.facts[chosen],
        )

    def since(self, first: int, live: int) -> tuple[int, Self]:
        """Return the batch without the episodes before transition ``live``, as views.

        Args:
            first: number of the first transition of this batch.
            live: number of the oldest live transition.

        Returns:
            The number of the first transition that is left, and the remaining episodes.
        """
        if first >= live:
            return first, self
        gone = int(np.searchsorted(np.cumsum(self.lengths), live - first, side="right"))
        return first + int(self.lengths[:gone].sum()), self.select(gone, len(self))

    @property
    def whole(self) -> NDArray[np.bool_]:
        """Whether each episode (episodes,) has its first step, and terminated or was truncated."""
        after = np.cumsum(self.rows_each)
        flags = {key: self.columns[(key,)][:, 0] for key in (DONE, DONE2, TRUNC2)}
        whole: NDArray[np.bool_] = flags[DONE][after - self.lengths - 1] & (
            flags[DONE2][after - 2] | flags[TRUNC2][after - 2]
        )
        return whole

    # From and to a ring

    @classmethod
    def of(cls, ring: Ring, env: int, first: int, end: int) -> Self:
        """Copy the rows [first, end) of one environment of a ring, as a batch of one episode."""
        stacks = {path: ring.columns.gather_leaf(path, np.array([first * ring.envs + env]))[0] for path in ring.stacked}
        columns = ring.columns.steps_of(env, first, end)
        return cls._with_stacks(columns, end - first, stacks, {})

    @classmethod
    def _with_stacks(
        cls,
        columns: dict[FieldKey, Array],
        length: int,
        stacks: Mapping[FieldKey, Array],
        facts: Mapping[str, Any],
    ) -> Self:
        """Make a batch of one episode, given the complete first frame stacks."""
        paddings = {path: _padding(stack) for path, stack in stacks.items()}
        leading = max(
            (len(stacks[path]) - 1 for path, padding in paddings.items() if padding == PREFIX_FRAMES), default=0
        )
        if leading:
            columns = {path: _with_leading(column, leading, stacks.get(path)) for path, column in columns.items()}
        return cls(
            columns,
            np.array([length]),
            np.array([leading]),
            {path: np.array([padding], np.int32) for path, padding in paddings.items()},
            (facts,),
        )

    def part(self, layout: Layout) -> RowSpan:
        """Convert to rows of a ring of one environment, numbered from 0; ``layout`` is that of transitions."""
        bounds = np.cumsum(self.rows_each)
        last, starts = bounds - 1, bounds - self.lengths - 1
        is_step = np.ones(self.rows, np.bool_)
        is_step[last] = False
        for start, leading in zip(starts[self.leading > 0], self.leading[self.leading > 0], strict=True):
            is_step[start - leading : start] = False
        steps = self.steps
        ends = np.cumsum(self.lengths)
        taken = np.zeros((steps, 1), np.bool_)
        taken[ends - 1] = True
        ended, none_before = np.ones(1, np.bool_), np.zeros((0, 1), np.bool_)
        arrays: dict[ArrayKey, Fragments] = {ArrayKey(HAS_FINAL): (taken,), ArrayKey(ENDED): (ended,)}
        arrays[ArrayKey(CUT_BEFORE)] = (none_before,)
        position = np.arange(steps) - np.repeat(ends - self.lengths, self.lengths)
        for path, column in self.columns.items():
            arrays[ArrayKey(ROWS, path)] = (column[is_step][:, None],)
            chained = (_SUCCESSOR.get(path[0], ""), *path[1:]) in layout
            if path in self.paddings:
                arrays |= self._stacked(path, layout[path].shape[0], position, starts, last)
            elif chained:
                arrays[ArrayKey(FOLLOWING, path)] = (column[-1:],)
            if chained:
                arrays[ArrayKey(FINAL, path)] = (bytes_of(column[last]),)
        return RowSpan(0, steps, False, 0, arrays)

    def _stacked(
        self,
        path: FieldKey,
        depth: int,
        position: NDArray[np.int64],
        starts: NDArray[np.int64],
        last: NDArray[np.int64],
    ) -> dict[ArrayKey, Fragments]:
        column, kinds = self.columns[path], self.paddings[path]
        others = np.flatnonzero(kinds == PREFIX_FRAMES)
        given = kinds.copy()
        given[others] = np.arange(len(others))
        padding = np.full((len(position), 1), REPEAT, np.int32)
        padding[position == 0, 0] = given
        frames = column[(starts[others, None] + np.arange(1 - depth, 0)).ravel()]
        width = bytes_of(column[:1]).shape[1]
        newest = self.stacks(path, len(self) - 1, depth)[-1:]
        return {
            ArrayKey(BEFORE, path): (np.minimum(position, depth - 1).astype(np.uint8)[:, None],),
            ArrayKey(PADDING, path): (padding,),
            ArrayKey(PADDING_FRAMES, path): (bytes_of(frames).reshape(len(others), (depth - 1) * width),),
            ArrayKey(NEWEST, path): (newest,),
        }

    # To and from episodes

    @classmethod
    def of_episode(
        cls, columns: Mapping[FieldKey, Array], depths: Mapping[FieldKey, int], facts: Mapping[str, Any]
    ) -> Self:
        """Make a batch of one episode from its columns, with complete frame stacks (L + 1, depth, ...).

        Args:
            columns: the columns that :func:`columns_of` returned.
            depths: number of stacked frames of each leaf that is a frame stack.
            facts: facts of the episode.
        """
        length = len(columns[(DONE,)])
        stacks = {path: columns[path][0] for path in depths}
        rows = {path: column[:, -1] if path in depths else column for path, column in columns.items()}
        rows = {
            path: column if len(column) > length else np.concatenate([column, np.zeros_like(column[:1])])
            for path, column in rows.items()
        }
        return cls._with_stacks(rows, length, stacks, facts)

    def episodes(self, layout: Layout) -> Iterator[Episode]:
        """Iterate over the episodes, as views where that is possible."""
        bounds = np.cumsum(self.rows_each)
        for number, (end, length) in enumerate(zip(bounds, self.lengths, strict=True)):
            rows, steps = slice(end - length - 1, end), slice(end - length - 1, end - 1)
            observations = {
                path: self.stacks(path, number, leaf.shape[0]) if path in self.paddings else self.columns[path][rows]
                for path, leaf in layout.items()
                if path[0] == OBS
            }
            fields = {path: column[steps] for path, column in self.columns.items() if path[0] not in _OF_THE_EPISODE}
            if (RHS,) in fields and (RHS2,) in layout:
                fields[(RHS2,)] = self.columns[(RHS,)][rows][1:]
            terminated, truncated = (bool(self.columns[(flag,)][end - 2, 0]) for flag in (DONE2, TRUNC2))
            yield Episode(nest(observations)[OBS], nest(fields), terminated, truncated, self.facts[number])

    def stacks(self, path: FieldKey, episode: int, depth: int) -> Array:
        """Return the frame stacks (L + 1, depth, ...) of an episode, as views of its single frames."""
        end = int(self.rows_each[: episode + 1].sum())
        frames = self.columns[path][end - int(self.lengths[episode]) - 1 : end]
        kind = int(self.paddings[path][episode])
        if kind == PREFIX_FRAMES:
            older = self.columns[path][end - len(frames) - depth + 1 : end - len(frames)]
        else:
            older = np.zeros((depth - 1, *frames.shape[1:]), frames.dtype)
            older[...] = frames[0] if kind == REPEAT else 0
        windows = np.lib.stride_tricks.sliding_window_view(np.concatenate([older, frames]), depth, axis=0)
        stacks: Array = np.moveaxis(windows, -1, 1)
        return stacks


_SUCCESSOR = {first: successor for successor, first in SUCCESSORS.items()}


def joined(batches: Sequence[EpisodeBatch]) -> EpisodeBatch:
    """Concatenate batches of the same fields."""
    if len(batches) == 1:
        return batches[0]
    first = batches[0]
    return EpisodeBatch(
        {path: np.concatenate([one.columns[path] for one in batches]) for path in first.columns},
        np.concatenate([one.lengths for one in batches]),
        np.concatenate([one.leading for one in batches]),
        {path: np.concatenate([one.paddings[path] for one in batches]) for path in first.paddings},
        tuple(fact for one in batches for fact in one.facts),
    )


def _padding(stack: Array) -> int:
    older = stack[:-1]
    if older.tobytes() == np.broadcast_to(stack[-1], older.shape).tobytes():
        return REPEAT
    return PREFIX_FRAMES if older.reshape(-1).view(np.uint8).any() else ZERO


def _with_leading(column: Array, leading: int, stack: Array | None) -> Array:
    before = np.zeros((leading, *column.shape[1:]), column.dtype)
    if stack is not None:
        before[leading - len(stack) + 1 :] = stack[:-1]
    return np.concatenate([before, column])


def columns_of(episode: Episode) -> dict[FieldKey, Array]:
    """Return the columns of an episode: observations and hidden states (L + 1, ...), other fields (L, ...)."""
    length = len(episode)
    columns: dict[FieldKey, Array] = {}
    observations = episode.observations if isinstance(episode.observations, Mapping) else None
    if observations is None:
        columns[(OBS,)] = np.asarray(episode.observations)
    else:
        columns = {(OBS, name): np.asarray(leaf) for name, leaf in observations.items()}
    for key, value in episode.fields.items():
        for name, leaf in value.items() if isinstance(value, Mapping) else ((None, value),):
            array = np.asarray(leaf)
            columns[(key,) if name is None else (key, name)] = (
                array.reshape(length, 1) if key in SCALARS and array.ndim == 1 else array
            )
    flags = np.zeros((length, 1), np.bool_)
    last, first = flags.copy(), flags.copy()
    last[-1], first[0] = True, True
    columns.setdefault((DONE,), first)
    columns[(DONE2,)] = last & episode.terminated
    columns[(TRUNC2,)] = last & episode.truncated
    if (RHS,) in columns and (RHS2,) in columns:
        columns[(RHS,)] = np.concatenate([columns[(RHS,)], columns.pop((RHS2,))[-1:]])
    return columns


def first_step_of(columns: Mapping[FieldKey, Array], num_envs: int) -> Sample:
    """Return the first step of an episode as a sample, repeated for ``num_envs`` environments."""
    now = {path: column[:1] for path, column in columns.items()}
    successor = {(_SUCCESSOR[path[0]], *path[1:]): columns[path][1:2] for path in now if path[0] in (OBS, RHS)}
    sample: Sample = nest({path: np.repeat(leaf, num_envs, 0) for path, leaf in (now | successor).items()})
    return sample


def episodes_since(
    live: int, first: int, batch: EpisodeBatch, layout: Layout, *, whole: bool = False
) -> Iterator[Episode]:
    """Iterate over the episodes of a batch from transition ``live`` on.

    Args:
        live: number of the oldest live transition.
        first: number of the first transition of the batch.
        batch: the episodes.
        layout: layout of transitions.
        whole: leave out episodes without their first step or their end.
    """
    _, left = batch.since(first, live)
    for chosen, episode in zip(left.whole, left.episodes(layout), strict=True):
        if chosen or not whole:
            yield episode
