"""Normalised scores: returns on a scale on which random actions are 0 and an expert is 1."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from storages.datasets.dataset import About

LOW, HIGH = "ref_min_score", "ref_max_score"
"""Under which metadata have the returns that are 0 and 1, as Minari names them."""


def references_of(about: About) -> tuple[float, float] | None:
    """The returns that are 0 and 1 by a data set's metadata; None where it does not say both."""
    low, high = about.further.get(LOW), about.further.get(HIGH)
    is_told = all(isinstance(value, int | float) and np.isfinite(value) for value in (low, high))
    return (float(low), float(high)) if is_told and low < high else None  # type: ignore[arg-type,operator]


def normalised(returns: Sequence[float] | NDArray[np.float64], references: tuple[float, float]) -> NDArray[np.float64]:
    """Returns as scores: Fu et al., "D4RL" (arXiv 2004.07219), section 5, without the factor of 100."""
    low, high = references
    scores: NDArray[np.float64] = (np.asarray(returns, np.float64) - low) / (high - low)
    return scores
