"""Counts in the state of a storage, which may have been changed on disk."""

from collections.abc import Mapping
from typing import Any

import numpy as np

_LARGEST = 1 << 62
"""Exclusive upper bound; sums of counts fit into 64 bits."""


def saved_count(state: Mapping[str, Any], name: str, owner: str, otherwise: int | None = None) -> int:
    """Return a count of a saved state.

    Args:
        state: the state.
        name: of the count in it.
        owner: the storage's name, for errors.
        otherwise: the count of a state that lacks it; None if it must be there.

    Raises:
        KeyError: it is missing.
        ValueError: it is no int from 0.
    """
    count = state[name] if otherwise is None else state.get(name, otherwise)
    if isinstance(count, bool) or not isinstance(count, int | np.integer) or not 0 <= count < _LARGEST:
        raise ValueError(
            f"{owner}: the state has {count!r} as {name!r}, which counts from 0; load one that state_dict() returned"
        )
    return int(count)
