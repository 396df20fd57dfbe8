"""What returns and advantages of a rollout are made of."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class RewardStream(NamedTuple):
    """The environments' rewards, or intrinsic ones, and the values that belong to them; arrays are (T, E)."""

    return_key: str
    """The field that its returns become."""
    advantage_key: str
    """The field that its advantages become."""
    rewards: NDArray[np.floating]
    values: NDArray[np.floating]
    """Of what each row saw."""
    next_values: NDArray[np.floating]
    """Of what followed."""
    ends: NDArray[np.bool_]
    """Where the next row does not continue one."""
    gamma: float
    """Discount factor of one step."""
