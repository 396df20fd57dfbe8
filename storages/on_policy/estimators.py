"""What returns and advantages of a rollout are made of: rewards, values, and an estimator.

The arrays of a :class:`RewardStream` are (T, E). Where an episode was cut, ``next_values`` is the value of its final
observation, and 0 where the environment terminated.
"""

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from storages.transition import ADV, RET


class RewardStream(NamedTuple):
    """The environments' rewards, or intrinsic ones, and the values that belong to them; arrays are (T, E)."""

    rewards: NDArray[np.floating]
    values: NDArray[np.floating]
    """Of what each row saw."""
    next_values: NDArray[np.floating]
    """Of what followed."""
    ends: NDArray[np.bool_]
    """Where the next row does not continue one."""
    gamma: float
    """Discount factor of one step."""
    return_key: str = RET
    """The field that its returns become."""
    advantage_key: str = ADV
    """The field that its advantages become."""
    ratios: NDArray[np.floating] | None = None
    """Probability of each action under the current policy over that under the one that acted, if it is asked for."""
    action_values: NDArray[np.floating] | None = None
    """Of what each row saw and did, if they are asked for."""


class Estimator(Protocol):
    """Makes returns and advantages of a rollout."""

    def estimate(self, stream: RewardStream, returns: NDArray[np.floating], advantages: NDArray[np.floating]) -> None:
        """Write the returns and advantages of a stream, (T, E) each."""
