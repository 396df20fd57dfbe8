"""Uniform sampling of rows."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from storages.core.parts import Request, Rows, Sampler


class UniformSampler(Sampler):
    """Draws rows uniformly, with replacement."""

    def draw(self, request: Request) -> Rows:
        """Draw the rows of a batch."""
        return request.uniform()


def permuted(generator: np.random.Generator, transitions: NDArray[np.int64], parts: int) -> Iterator[NDArray[np.int64]]:
    """Shuffle transitions, and split them into ``parts`` that differ in size by at most one."""
    return iter(np.array_split(generator.permutation(transitions), parts))
