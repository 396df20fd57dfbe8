"""Time of copying a batch out of plain arrays, a lower bound for every storage."""

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.storages.replay_content import Content
from storages.core.kernels.memory import prefetch

_ROW_CHOICES = 2_048
"""Batches of rows drawn beforehand; far more rows than a cache holds."""
_CACHE_LINE_BYTES, _LARGEST_PREFETCHED_BYTES = 64, 1_024


def bare_gather(
    content: Content, batch_size: int, *, ask_ahead: bool = False
) -> Callable[[], tuple[torch.Tensor, ...]]:
    """Return a function that copies the rows of a batch out of arrays, next observations from an array of their own.

    Args:
        content: what to copy from.
        batch_size: rows of a batch, drawn beforehand.
        ask_ahead: prefetch all rows of an array into the cache before the first is copied, as our kernels do.
    """
    generator = np.random.default_rng(1)
    choices = [generator.integers(0, content.transitions, batch_size) for _ in range(_ROW_CHOICES)]
    arrays = [
        _transitions(content, array)
        for array in (
            content.observation,
            content.action,
            content.reward,
            content.next_observation,
            content.terminated,
        )
    ]
    following = 0

    def call() -> tuple[torch.Tensor, ...]:
        nonlocal following
        following = (following + 1) % _ROW_CHOICES
        return tuple(map(torch.from_numpy, _gather(*arrays, choices[following], ask_ahead)))

    return call


def _transitions(content: Content, array: NDArray[Any]) -> NDArray[Any]:
    """Return the transitions of an array (steps, environments, ...) as (transitions, numbers)."""
    return np.resize(array, (content.steps, *array.shape[1:])).reshape(content.transitions, -1)


@numba.njit
def _gather(
    observation: NDArray[Any],
    action: NDArray[Any],
    reward: NDArray[Any],
    next_observation: NDArray[Any],
    done: NDArray[Any],
    rows: NDArray[np.int64],
    ask_ahead: bool,
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
    return (
        _copies(observation, rows, ask_ahead),
        _copies(action, rows, ask_ahead),
        _copies(reward, rows, ask_ahead),
        _copies(next_observation, rows, ask_ahead),
        _copies(done, rows, ask_ahead),
    )


@numba.njit
def _copies(source: NDArray[Any], rows: NDArray[np.int64], ask_ahead: bool) -> NDArray[Any]:
    width = source.shape[1]
    out = np.empty((len(rows), width), source.dtype)
    if ask_ahead and width * source.itemsize <= _LARGEST_PREFETCHED_BYTES:
        for i in range(len(rows)):
            for column in range(0, width, _CACHE_LINE_BYTES // source.itemsize):
                prefetch(source, rows[i], column)
            prefetch(source, rows[i], width - 1)
    for i in range(len(rows)):
        row = rows[i]
        for k in range(width):
            out[i, k] = source[row, k]
    return out
