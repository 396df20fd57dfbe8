"""TD errors reported by updates: validation, and deferred use of those still in transfer from a device."""

from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from storages.core.device.transfer import Fetched
from storages.core.kernels.step_windows import sequence_errors
from storages.transition import ERRORS

_AS_STORED = (torch.float32, torch.float64)
_LARGEST = np.finfo(np.float32).max


def errors_of_update(info: Mapping[str, Any], expected: tuple[int, ...], owner: str) -> NDArray[np.floating]:
    """Return the errors in an update's ``info``, (B,), (T, B) of sequences or (N,) of packed episodes.

    Args:
        info: has ERRORS, a tensor or an array with a trailing axis of one, of any real dtype.
        expected: required shape, one error for each row of the batch.
        owner: the storage's name.

    Raises:
        ValueError: there are no errors, or they are not one real number for each row of the batch.
    """
    errors = info.get(ERRORS)
    if type(errors) is torch.Tensor and errors.dtype is torch.float32:
        as_stored: NDArray[np.floating] = errors.numpy(force=True)
        if as_stored.shape == expected:
            return as_stored[..., 0]
    array: NDArray[np.floating] = tensor_of_errors(info, expected, owner).numpy(force=True)[..., 0]
    return array


def refuse_not_finite(errors: torch.Tensor, steps: torch.Tensor | None, owner: str) -> None:
    """Raise ValueError if an error, (B, 1) or of sequences (T, B, 1), is not finite as float32.

    Args:
        errors: on the CPU.
        steps: mask (T, B, 1) of sequences, whose padding is not looked at; None, or the index of each step's episode,
            where there is none.
        owner: the storage's name.
    """
    array = errors.numpy(force=True)
    if steps is not None and steps.ndim == 3:
        array = array[steps.numpy(force=True) > 0]
    # In the affirmative, as NaN makes every comparison false.
    if array.size and not np.abs(array).max() <= _LARGEST:
        flat = array.reshape(-1)
        worst = int(np.argmax(~(np.abs(flat) <= _LARGEST)))
        raise ValueError(
            f"{owner}: error {worst} of the update is {flat[worst]}; no priority was changed. The update has diverged"
        )


def finite_errors(errors: Any, owner: str) -> NDArray[np.float32]:
    """Return a number, an array or a tensor of errors as float32.

    Raises:
        ValueError: one is no finite number as float32.
    """
    array = errors.numpy(force=True) if isinstance(errors, torch.Tensor) else np.asarray(errors)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{owner}: errors must be real numbers, got {array.dtype}")
    with np.errstate(over="ignore"):
        rounded: NDArray[np.float32] = np.asarray(array, np.float32)
    if not np.isfinite(rounded).all():
        raise ValueError(f"{owner}: errors must be finite as float32, got {array[~np.isfinite(rounded)].flat[0]}")
    return rounded


def errors_of_sequences(errors: NDArray[Any], steps: NDArray[Any], count: int, eta: float) -> NDArray[np.floating]:
    """Return the error (B,) of each sequence or episode, ``eta * max + (1 - eta) * mean`` over its steps.

    Args:
        errors: (T, B), or (N,) of packed episodes.
        steps: their mask (T, B, 1), or the index of each step's episode, (N, 1).
        count: B.
        eta: weight of the largest error.
    """
    if steps.ndim == 2:
        return sequence_errors(errors, steps[:, 0], count, eta)
    real = steps[..., 0] > 0
    return sequence_errors(errors[real], np.nonzero(real)[1], count, eta)


def tensor_of_errors(info: Mapping[str, Any], expected: tuple[int, ...], owner: str) -> torch.Tensor:
    """Return the errors as :func:`errors_of_update`, but with the trailing axis, on their device."""
    if ERRORS not in info:
        raise ValueError(
            f"{owner}: the update's info has no {ERRORS!r}, which determine priorities; use ReplayBuffer or "
            f"NStepReplayBuffer with this algorithm, or alpha=0"
        )
    expected = tuple(expected)
    errors = _as_tensor(info[ERRORS], expected, owner)
    if tuple(errors.shape) != expected:
        raise ValueError(
            f"{owner}: {ERRORS} must have shape {expected}, one error for each row of the batch, got "
            f"{tuple(errors.shape)}{_way_out(tuple(errors.shape), expected)}; no priority was changed"
        )
    if errors.dtype not in _AS_STORED:
        if errors.is_complex():
            raise ValueError(f"{owner}: {ERRORS} must be real numbers, got {errors.dtype}; no priority was changed")
        # NumPy has no bfloat16, compiled code no half precision.
        errors = errors.float()
    return errors


Update: TypeAlias = Callable[[NDArray[np.int64], NDArray[Any]], None]
"""Sets errors (B,) of transitions (B,); raises a ValueError where one is not finite."""


class PendingErrors:
    """Queue of updates whose errors do not affect priorities yet, oldest first.

    Errors are used from the second draw after their update on: by then the device has begun the next update, and the
    host waits only for the one before. This does not depend on the device's speed, so that equal seeds give equal runs.

    Args:
        eta: weight of the largest error in that of a sequence.
    """

    def __init__(self, eta: float) -> None:
        self._eta = eta
        self.updates: deque[Fetched] = deque()
        """Indices (B, 1) and errors of batches, and of sequences their mask or episodes, in transfer from the device.

        Oldest first. An attribute, because every insertion checks whether it is empty.
        """
        self._drawn_since = 0
        """How many of them, from the oldest on, precede the last draw."""

    def begin_draw(self, count: Update) -> None:
        """Use the errors of updates that precede the last draw.

        Raises:
            ValueError: one is not finite; its update is dropped, and later updates wait for the next draw.
        """
        while self._drawn_since:
            try:
                count(*self._oldest())
            finally:
                self._drop_oldest()
        self._drawn_since = len(self.updates)

    def settle(self, count: Update) -> None:
        """Use all errors, up to an update with one that is not finite, which the next draws will raise."""
        with suppress(ValueError):
            while self.updates:
                count(*self._oldest())
                self._drop_oldest()

    def _oldest(self) -> tuple[NDArray[np.int64], NDArray[Any]]:
        indices, errors, *steps = self.updates[0].arrays()
        errors = errors[..., 0]
        if steps:
            errors = errors_of_sequences(errors, steps[0], len(indices), self._eta)
        return indices[:, 0], errors

    def _drop_oldest(self) -> None:
        self.updates.popleft()
        self._drawn_since = max(0, self._drawn_since - 1)


def _as_tensor(errors: Any, expected: tuple[int, ...], owner: str) -> torch.Tensor:
    if isinstance(errors, torch.Tensor):
        return errors
    if isinstance(errors, np.ndarray) and errors.dtype.kind in "biuf":
        return torch.from_numpy(errors.astype(np.float64 if errors.itemsize > 4 else np.float32, order="C"))
    got = f"an array of {errors.dtype}" if isinstance(errors, np.ndarray) else type(errors).__name__
    raise ValueError(
        f"{owner}: {ERRORS} must be a tensor or an array of numbers of shape {expected}, got {got}; no priority was "
        f"changed"
    )


def _way_out(shape: tuple[int, ...], expected: tuple[int, ...]) -> str:
    return " (errors.unsqueeze(-1) adds the last axis)" if (*shape, 1) == expected else ""
