"""An actor's answers, checked before returns and advantages follow from them."""

import numpy as np
import torch
from numpy.typing import NDArray

from storages.core.kernels.insert import all_finite


def checked_answer(
    answer: object, shape: tuple[int, ...], question: str, owner: str, allow_nonfinite: bool
) -> NDArray[np.float32]:
    """One number for each observation, as an array without the last axis.

    Args:
        answer: of the actor.
        shape: that it must have, with a last axis of one.
        question: what the actor was asked for.
        owner: the storage's name.
        allow_nonfinite: whether NaN and infinity are accepted.

    Raises:
        ValueError: it is no tensor of that shape, or holds NaN or infinity where these are refused.
    """
    if not isinstance(answer, torch.Tensor) or tuple(answer.shape) != shape:
        got = tuple(answer.shape) if isinstance(answer, torch.Tensor) else type(answer).__name__
        raise ValueError(
            f"{owner}: {question} must return a tensor of shape {shape}, one number for each observation, got {got}; "
            f"no returns were made"
        )
    as_stored = answer if answer.dtype is torch.float32 else answer.float()
    numbers: NDArray[np.float32] = as_stored.detach().cpu().numpy()[..., 0]
    if not allow_nonfinite and not all_finite(numbers.reshape(-1)):
        where = tuple(int(axis[0]) for axis in np.nonzero(~np.isfinite(numbers)))
        raise ValueError(
            f"{owner}: {question} returned {numbers[where]} at position {where}; no returns were made. The network "
            f"has diverged; allow_nonfinite=True would go on"
        )
    return numbers
