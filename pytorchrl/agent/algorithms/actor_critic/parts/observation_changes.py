"""Changes of observations, which a representation of actions learns to predict."""

import math

import numpy as np
from gymnasium import spaces
from torch import Tensor

from pytorchrl.agent.algorithms.rows import Rows
from storages.transition import OBS, OBS2

_SMALLEST_VARIANCE = 1e-6
"""Avoids division by 0 where a number of the observation never changes."""


def numbers_of(space: object) -> int:
    """Return how many numbers change in an observation.

    Raises:
        ValueError: observations are not a Box of floating-point numbers.
    """
    if not isinstance(space, spaces.Box) or not np.issubdtype(space.dtype, np.floating):
        raise ValueError(
            f"HyAR predicts changes of observations, which must be a Box of floating-point numbers, got {space}; "
            f"dynamics_weight=0 predicts none, wrappers=['FlattenObservation'] makes a Box of a Dict"
        )
    return math.prod(space.shape)


def error_of_changes(rows: Rows, predicted: Tensor) -> Tensor:
    """Return the mean squared error () of predicted changes (N, D), in units of the variance of each in the batch."""
    change = (rows[OBS2] - rows[OBS]).flatten(1).float()
    errors = (predicted - change).square() / (change.var(0, correction=0) + _SMALLEST_VARIANCE)
    return rows.mean(errors.mean(1, keepdim=True))
