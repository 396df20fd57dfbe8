"""Is there a NaN or an infinity? Asked at every insertion, so it must cost less than numpy's two passes."""

import math

import numpy as np
from numpy.typing import NDArray

from storages.core.kernels.compilation import kernel


@kernel
def all_finite(values: NDArray[np.floating]) -> bool:
    """Whether a one-dimensional float array holds neither NaN nor infinity."""
    for i in range(values.shape[0]):  # noqa: SIM110 - numba compiles the loop, not all()
        if not math.isfinite(values[i]):
            return False
    return True
