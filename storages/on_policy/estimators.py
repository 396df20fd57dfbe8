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
    order: NDArray[np.int64] | None = None
    """(T, E): which step of each environment a row is; None where they are in order."""

    def over_skipped(self, skipped: NDArray[np.bool_]) -> "RewardStream":
        """Return the stream as it continues over skipped steps (T, E), which are moved before all others."""
        order = np.argsort(~skipped, axis=0, kind="stable")
        rewards, values, next_values = (
            np.take_along_axis(array, order, 0) for array in (self.rewards, self.values, self.next_values)
        )
        ends = np.take_along_axis(self.ends | skipped, order, 0)
        next_values[:-1] = np.where(ends[:-1], next_values[:-1], values[1:])
        # Where the newest step is skipped, the one before it is followed by the first observation of an episode.
        next_values[-1] = np.where(skipped[-1] & ~ends[-1], self.next_values[-1], next_values[-1])
        return self._replace(rewards=rewards, values=values, next_values=next_values, ends=ends, order=order)

    def in_order(self, estimated: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return results (T, E) of the rows in the order of the steps."""
        if self.order is None:
            return estimated
        ordered = np.empty_like(estimated)
        np.put_along_axis(ordered, self.order, estimated, 0)
        return ordered


class Estimator(Protocol):
    """Estimates returns and advantages of a rollout."""

    def estimate(self, stream: RewardStream, returns: NDArray[np.floating], advantages: NDArray[np.floating]) -> None:
        """Write the returns and advantages of a stream, (T, E) each."""
