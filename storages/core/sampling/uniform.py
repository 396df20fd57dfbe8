"""Which rows a batch is made of. A sampler knows how many transitions are live, not what they hold."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray


def uniform(generator: np.random.Generator, oldest: int, newest: int, batch_size: int) -> NDArray[np.int64]:
    """Numbers of ``batch_size`` transitions of [oldest, newest), each as likely as any other, with replacement."""
    return generator.integers(oldest, newest, batch_size, np.int64)


def uniform_in_steps(
    generator: np.random.Generator, oldest: int, newest: int, num_envs: int, stride: int, batch_size: int
) -> NDArray[np.int64]:
    """As :func:`uniform`, of steps whose numbers are multiples of ``stride``; of the oldest where there is none."""
    first, after = -(-(oldest // num_envs) // stride), -(-(newest // num_envs) // stride)
    if first == after:
        return generator.integers(oldest, oldest + num_envs, batch_size, np.int64)
    steps = generator.integers(first, after, batch_size, np.int64) * stride
    return steps * num_envs + generator.integers(0, num_envs, batch_size, np.int64)


def permuted(generator: np.random.Generator, transitions: NDArray[np.int64], parts: int) -> Iterator[NDArray[np.int64]]:
    """Some transitions in random order, in ``parts`` that differ in size by one at the most."""
    return iter(np.array_split(generator.permutation(transitions), parts))
