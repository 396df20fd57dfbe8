"""Inputs of return and advantage estimators, and their protocol.

The arrays of a :class:`RewardStream` are (T, E). Where an episode was truncated, ``next_values`` is the value of its
final observation, and 0 where the environment terminated.
"""

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from storages.transition import ADV, RET


class RewardStream(NamedTuple):
    """Environment or intrinsic rewards, and their values; arrays are (T, E)."""

    rewards: NDArray[np.floating]
    values: NDArray[np.floating]
    """Values of the observations."""
    next_values: NDArray[np.floating]
    """Values of the next observations."""
    ends: NDArray[np.bool_]
    """Where the next row does not continue a row's episode."""
    gamma: float
    """Per-step discount factor."""
    return_key: str = RET
    """The field in which its returns are stored."""
    advantage_key: str = ADV
    """The field in which its advantages are stored."""
    ratios: NDArray[np.floating] | None = None
    """Importance ratios of the actions, current policy over behaviour policy; None where not needed."""
    action_values: NDArray[np.floating] | None = None
    """Q-values of the observations and actions; None where not needed."""


class Estimator(Protocol):
    """Estimates returns and advantages of a rollout."""

    def estimate(self, stream: RewardStream, returns: NDArray[np.floating], advantages: NDArray[np.floating]) -> None:
        """Write the returns and advantages of a stream, (T, E) each."""
