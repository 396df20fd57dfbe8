"""Uniform sampling: every row is as likely as any other."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from storages.core.parts import Request, Rows, Sampler


class UniformSampler(Sampler):
    """Draws rows uniformly, with replacement."""

    def draw(self, request: Request) -> Rows:
        """Draw the rows of a batch."""
        generator, ring, window, batch_size, first, _, _ = request
        return Rows(window.uniform(generator, ring, first, batch_size), np.ones((batch_size, 1), np.float32))


def uniform_in_steps(
    generator: np.random.Generator, oldest: int, newest: int, num_envs: int, stride: int, batch_size: int
) -> NDArray[np.int64]:
    """Draw transitions of [oldest, newest) in steps whose numbers are multiples of ``stride``; else of the oldest step.

    Returns:
        (batch_size,) numbers, drawn uniformly with replacement.
    """
    first, after = -(-(oldest // num_envs) // stride), -(-(newest // num_envs) // stride)
    if first == after:
        return generator.integers(oldest, oldest + num_envs, batch_size, np.int64)
    steps = generator.integers(first, after, batch_size, np.int64) * stride
    return steps * num_envs + generator.integers(0, num_envs, batch_size, np.int64)


def permuted(generator: np.random.Generator, transitions: NDArray[np.int64], parts: int) -> Iterator[NDArray[np.int64]]:
    """Split transitions, in random order, into ``parts`` that differ in size by at most one."""
    return iter(np.array_split(generator.permutation(transitions), parts))
