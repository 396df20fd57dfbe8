"""Validation of samples before anything is stored; errors name the leaf, the environment and the step."""

import sys
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from storages.core.kernels.insert import all_finite
from storages.core.ring.addresses import must_be_finite
from storages.core.ring.column import bytes_of
from storages.core.ring.columns import Columns
from storages.core.ring.frames import FrameColumn
from storages.core.ring.layout import FieldKey, Layout, SampleError, becomes_single, converted, text
from storages.transition import FLAGS, OBS, RHS, Array

_NO_STACKS = "VecEnv(stacked_frames=0) declares that observations are not frame stacks, and they are stored whole"


def checked_environments(envs: Sequence[int], num_envs: int, owner: str) -> NDArray[np.int64]:
    """Return indices of environments as a sorted array without duplicates.

    Args:
        envs: the indices.
        num_envs: how many environments there are; 0 where that is not known yet.
        owner: the storage's name.

    Raises:
        IndexError: there is no such environment.
    """
    numbers = np.array(list(envs), np.int64)
    wrong = numbers[(numbers < 0) | (numbers >= (num_envs or sys.maxsize))]
    if len(wrong):
        raise IndexError(f"{owner}: envs must lie in [0, {num_envs or 'num_envs'}), got {wrong[0]}")
    return np.unique(numbers)


def check_finite(arrays: Mapping[FieldKey, Array], step: int, owner: str, envs: Sequence[int] | None = None) -> None:
    """Check that a step (E, ...), or transitions (N, ...) of some environments, are finite.

    Raises:
        SampleError: an observation, an action, a reward or a value holds NaN or infinity.
    """
    for path, array in arrays.items():
        if must_be_finite(path, array.dtype) and not _finite(array):
            position = tuple(int(axis[0]) for axis in np.nonzero(~np.isfinite(array)))
            env = position[0] if envs is None else envs[position[0]]
            raise SampleError(
                f"{owner}: {text(path)} of environment {env} is {array[position]} at step "
                f"{step} (position {position[1:]}); nothing of this step was stored. "
                f"allow_nonfinite=True would keep it"
            )


def checked_replacement(path: FieldKey, values: Array, columns: Columns, owner: str) -> Array:
    """Return values (steps, E, ...) that are to overwrite a leaf, in its stored dtype.

    Raises:
        SampleError: there is no such leaf, it is an observation or a flag, or the values do not fit.
    """
    if path not in columns or path[0] in FLAGS or path[0] in (OBS, RHS):
        keys = (*columns.inserted, *columns.computed)
        replaceable = [text(key) for key in keys if key[0] not in FLAGS and key[0] not in (OBS, RHS)]
        raise SampleError(f"{owner}: {text(path)} cannot be replaced on its own, only {', '.join(replaceable)}")
    layout, num_envs = columns[path].layout, len(columns.ended)
    if becomes_single(path, values.dtype):
        values = converted(values, path, layout.dtype, owner)
    if values.shape[1:] != (num_envs, *layout.shape) or values.dtype != layout.dtype:
        shape = ", ".join(map(str, ("steps", num_envs, *layout.shape)))
        raise SampleError(f"{owner}: {text(path)} is {layout.dtype}({shape}), got {values.dtype}{values.shape}")
    return values


def check_replacement_is_finite(path: FieldKey, values: Array, start: int, owner: str) -> None:
    """Check that values (steps, E, ...) that are to overwrite a leaf from step ``start`` on are finite.

    Raises:
        SampleError: they are observations, actions, rewards or values, and hold NaN or infinity.
    """
    if must_be_finite(path, values.dtype) and not _finite(values):
        step, *position = (int(axis[0]) for axis in np.nonzero(~np.isfinite(values)))
        raise SampleError(
            f"{owner}: {text(path)} of environment {position[0]} is {values[(step, *position)]} at step "
            f"{start + step}; nothing was replaced. allow_nonfinite=True would keep it"
        )


def check_frame_stack(
    arrays: Mapping[FieldKey, Array],
    stacked: Mapping[FieldKey, FrameColumn],
    step: int,
    owner: str,
    envs: Sequence[int] | None = None,
) -> None:
    """Check the frame stacks of a step (E, ...), or of transitions (N, ...) of some environments.

    Raises:
        SampleError: a next stack is not the stack before it, shifted by one frame.
    """
    for path, column in stacked.items():
        assert column.successor is not None
        differs = (bytes_of(arrays[path][:, 1:]) != bytes_of(arrays[column.successor][:, :-1])).any(axis=1)
        if differs.any():
            row = np.flatnonzero(differs)[0]
            raise SampleError(
                f"{owner}: {text(column.successor)} of environment {row if envs is None else envs[row]} at step "
                f"{step} is not {text(path)} shifted by one of its {column.depth} frames; nothing of this "
                f"step was stored. {_NO_STACKS}"
            )


def depths_of(layout: Layout, frames: int | Mapping[str, int], owner: str) -> dict[FieldKey, int]:
    """Return the number of frames of each leaf of the observation that is a frame stack.

    Args:
        layout: of a transition.
        frames: one number for all leaves of the observation, or numbers for some by name; 0 for no stack.
        owner: the storage's name.

    Raises:
        SampleError: there is no such leaf, or its first axis has another length.
    """
    if not frames:
        return {}
    observations = [path for path in layout if path[0] == OBS]
    if isinstance(frames, Mapping):
        depths: dict[FieldKey, int] = {(OBS, name): depth for name, depth in frames.items()}
    else:
        depths = dict.fromkeys(observations, frames)
    depths = {path: depth for path, depth in depths.items() if depth}
    for path, depth in depths.items():
        if path not in layout:
            raise SampleError(
                f"{owner}: {text(path)} is to be a stack of {depth} frames, but the observation has only "
                f"{', '.join(map(text, observations))}"
            )
        if layout[path].shape[:1] != (depth,):
            raise SampleError(
                f"{owner}: {text(path)} is to be a stack of {depth} frames, but its shape is "
                f"{layout[path].shape}; {_NO_STACKS}"
            )
    # A stack of one frame is stored like any observation.
    return {path: depth for path, depth in depths.items() if depth > 1}


def _finite(array: Array) -> bool:
    if array.dtype not in (np.float32, np.float64):
        return bool(np.isfinite(array).all())
    return bool(all_finite(np.ascontiguousarray(array).ravel()))
