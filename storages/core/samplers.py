"""Which rows a batch is made of. A sampler knows how many transitions are live, not what they hold."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray


def uniform(generator: np.random.Generator, oldest: int, newest: int, batch_size: int) -> NDArray[np.int64]:
    """Numbers of ``batch_size`` transitions of [oldest, newest), each as likely as any other, with replacement."""
    return generator.integers(oldest, newest, batch_size, np.int64)


def permuted(generator: np.random.Generator, oldest: int, newest: int, parts: int) -> Iterator[NDArray[np.int64]]:
    """All transitions of [oldest, newest) in random order, in ``parts`` that differ in size by one at the most."""
    return iter(np.array_split(generator.permutation(np.arange(oldest, newest)), parts))
