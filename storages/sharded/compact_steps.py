"""Steps in fewer bytes, for sending them to another process: each observation, and each stacked frame, once.

The next observation of a step is nearly always the observation of the following one, and all but one of its stacked
frames are those of the step before. Only what differs is sent; steps arrive bitwise equal.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from storages.core.ring.layout import FieldKey, leaves, nest
from storages.transition import OBS, OBS2

Leaf: TypeAlias = NDArray[Any]

_WORTH_IT = 0.5
"""Largest share of steps that may differ from what they are computed from."""
_MOST_FRAMES = 16
_TRIED_STEPS = 8
"""Steps in which frames must be seen to be those of the step before, for all to be compared."""


class Compact:
    """Steps that are pickled in fewer bytes, and unpickled as a plain dict of arrays.

    Args:
        steps: fields (T, E, ...), as :meth:`Storage.insert_data_slice` takes them.
    """

    def __init__(self, steps: Mapping[str, Any]) -> None:
        self.steps = steps

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Return the function that restores the steps, and its argument."""
        return expanded, (compacted(self.steps),)


class _NextObservations(NamedTuple):
    """Next observations, where they are not the observations of the following step."""

    last: Leaf
    """(E, ...): those of the last step."""
    rows: NDArray[np.int64]
    """Numbers (N,) of the others in (T, E) rows, in order."""
    values: Leaf
    """(N, ...): their values."""


class _Frames(NamedTuple):
    """Stacks of frames, where they do not follow from the stack of the step before."""

    newest: Leaf
    """(T, E, ...): the newest frame of each."""
    rows: NDArray[np.int64]
    """Numbers (N,) of the stacks of which more frames are new, in order; all of the first step are among them."""
    values: Leaf
    """(N, frames, ...): these stacks."""


def compacted(steps: Mapping[str, Any]) -> dict[FieldKey, Any]:
    """Return the fields by key, in the form that is sent."""
    flat: dict[FieldKey, Any] = dict(leaves(steps))
    sent = dict(flat)
    arrays = {key: leaf for key, leaf in flat.items() if isinstance(leaf, np.ndarray)}
    for key, following in arrays.items():
        if key[0] == OBS2:
            found = _where_next_observations_differ(arrays.get((OBS, *key[1:])), following)
            if found is not None:
                sent[key] = found
        elif key[0] == OBS:
            frames = _where_frames_differ(following)
            if frames is not None:
                sent[key] = frames
    return sent


def expanded(sent: Mapping[FieldKey, Any]) -> dict[str, Any]:
    """Return the steps that :func:`compacted` was given."""
    flat: dict[FieldKey, Any] = {
        key: _stacked(value) if isinstance(value, _Frames) else value for key, value in sent.items()
    }
    for key, value in sent.items():
        if isinstance(value, _NextObservations):
            flat[key] = _shifted(flat[(OBS, *key[1:])], value)
    return nest(flat)


def _where_next_observations_differ(observations: Leaf | None, following: Leaf) -> _NextObservations | None:
    if observations is None or observations.shape != following.shape or observations.dtype != following.dtype:
        return None
    if len(following) < 2 or not following.size:
        return None
    rows = _differing(observations[1:], following[:-1])
    if len(rows) > _WORTH_IT * np.prod(following.shape[:2]):
        return None
    return _NextObservations(following[-1], rows, _rows_of(following)[rows])


def _shifted(observations: Leaf, sent: _NextObservations) -> Leaf:
    following = np.empty_like(observations, order="C")
    following[:-1], following[-1] = observations[1:], sent.last
    _rows_of(following)[sent.rows] = sent.values
    return following


def _where_frames_differ(stacks: Leaf) -> _Frames | None:
    if stacks.ndim < 4 or not 2 <= stacks.shape[2] <= _MOST_FRAMES or len(stacks) < 2 or not stacks.size:
        return None
    envs = stacks.shape[1]
    begin = stacks[: _TRIED_STEPS + 1]
    if len(_not_following(begin)) > _WORTH_IT * (len(begin) - 1) * envs:
        return None
    rows = np.concatenate([np.arange(envs), envs + _not_following(stacks)])
    if len(rows) > _WORTH_IT * len(stacks) * envs:
        return None
    return _Frames(np.ascontiguousarray(stacks[:, :, -1]), rows, _rows_of(stacks)[rows])


def _not_following(stacks: Leaf) -> NDArray[np.int64]:
    """Return the numbers of the stacks, from the second step, whose older frames are not those of the step before."""
    frames = range(stacks.shape[2] - 1)
    differing = [_differing(stacks[1:, :, frame], stacks[:-1, :, frame + 1]) for frame in frames]
    return np.unique(np.concatenate(differing))


def _stacked(sent: _Frames) -> Leaf:
    steps, envs = sent.newest.shape[:2]
    frames = sent.values.shape[1]
    stacks = np.empty((steps, envs, frames, *sent.newest.shape[2:]), sent.newest.dtype)
    stacks[:, :, -1] = sent.newest
    rows = _rows_of(stacks)
    bounds = np.searchsorted(sent.rows, np.arange(steps + 1) * envs).tolist()
    for step in range(steps):
        if step:
            stacks[step, :, :-1] = stacks[step - 1, :, 1:]
        begin, end = bounds[step : step + 2]
        if begin < end:
            rows[sent.rows[begin:end]] = sent.values[begin:end]
    return stacks


def _rows_of(leaf: Leaf) -> Leaf:
    return leaf.reshape(-1, *leaf.shape[2:])


def _differing(one: Leaf, other: Leaf) -> NDArray[np.int64]:
    """Return the numbers of the rows, the first two axes, that are not bitwise equal, as NaN is to itself."""
    pair = [leaf.reshape(*leaf.shape[:2], -1) for leaf in (one, other)]
    word = np.uint64 if pair[0].shape[2] * pair[0].itemsize % 8 == 0 else np.uint8
    pair = [(leaf if leaf.strides[2] == leaf.itemsize else leaf.copy()).view(word) for leaf in pair]
    differing: NDArray[np.int64] = np.flatnonzero((pair[0] != pair[1]).any(axis=2))
    return differing
