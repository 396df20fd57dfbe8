"""Rows are drawn with their expected probabilities after wrap-around and thousands of updates of priorities."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from storages import PERBuffer, ReplayBuffer, Sequences
from storages.transition import ERRORS, INDICES, MASK
from tests.support.model import ALGORITHM, Stream

SIZE, ENVS, DRAWS, BATCH = 75, 3, 200_000, 500
ALPHA, EPSILON, BETA = 0.7, 0.05, 1.0
PRIORITIES: dict[str, Any] = {"alpha": ALPHA, "epsilon": EPSILON, "beta": BETA, "default_error": 0.5}


class Drawn:
    """A storage that has wrapped and was updated thousands of times, with the last error of each transition."""

    def __init__(self, factory: Any) -> None:
        self.storage = factory("cpu", None, ALGORITHM, None)
        self.storage.seed(1)
        self.errors: dict[int, float] = {}
        self.random = np.random.default_rng(2)
        stream, number = Stream(ENVS, "vector", False, self.random), 0
        for step in range(4 * SIZE + 17):
            self.storage.insert_transition(stream.step())
            for env in range(ENVS):
                self.errors[number + env] = 0.5
            number += ENVS
            for batch in self.storage.generate_batches(12 if step > SIZE else 1, 20):
                self.update(batch)
        self.end = number
        self.begin = number - SIZE * ENVS

    def update(self, batch: Any) -> None:
        shape = (*batch["Reward"].shape[:-1], 1)
        errors = self.random.exponential(size=shape) * self.random.choice([0.01, 1, 5], size=shape)
        self.storage.after_gradients(batch, {ERRORS: torch.from_numpy(errors)})
        # The last error counts for a transition that is twice in the batch.
        real = batch[MASK].numpy() if MASK in batch else np.ones((1, *shape))
        of_steps = np.abs(errors) * real
        of_rows = 0.9 * of_steps.max(0) + 0.1 * of_steps.sum(0) / real.sum(0)
        self.errors.update(zip(self.rows_of(batch).tolist(), of_rows[:, 0].tolist(), strict=True))

    def rows_of(self, batch: Any) -> NDArray[np.int64]:
        """The rows whose sequences a batch has; a sequence may begin later, with an episode."""
        numbers: NDArray[np.int64] = batch[INDICES][:, 0].numpy()
        stride = 1 if self.storage.sequences is None else self.storage.sequences.stride
        return numbers - numbers // ENVS % stride * ENVS

    def priorities(self) -> NDArray[np.float64]:
        errors = np.array([self.errors[number] for number in range(self.begin, self.end)])
        priorities: NDArray[np.float64] = (errors + EPSILON) ** ALPHA
        return priorities

    def counts(self, update: int = 1, updates: int = 1) -> NDArray[np.int64]:
        """How often each live transition was drawn, oldest first, in one of the updates of a phase."""
        found = np.zeros(self.end - self.begin, np.int64)
        for _ in range(DRAWS // BATCH):
            batches = list(self.storage.generate_batches(updates, BATCH))
            found += np.bincount(self.rows_of(batches[update - 1]) - self.begin, minlength=len(found))
        return found


def assert_drawn_by(counts: NDArray[np.int64], masses: NDArray[np.float64]) -> None:
    """Pearson's chi-squared test of the drawn rows, with a limit of five standard deviations."""
    expected = masses / masses.sum() * counts.sum()
    assert (counts[expected == 0] == 0).all()
    alive = expected > 0
    statistic = ((counts - expected)[alive] ** 2 / expected[alive]).sum()
    freedom = np.count_nonzero(alive) - 1
    assert statistic < freedom + 5 * math.sqrt(2 * freedom)


def test_uniform_draws_are_uniform() -> None:
    drawn = Drawn(ReplayBuffer.create_factory(size=SIZE))
    assert_drawn_by(drawn.counts(), np.ones(SIZE * ENVS))


@pytest.mark.long
@pytest.mark.parametrize("overlap", [None, 2])
@pytest.mark.parametrize("by_priority", [False, True])
def test_possible_starts_of_sequences_are_drawn_like_transitions(by_priority: bool, overlap: int | None) -> None:
    sequences = Sequences(5, overlap=overlap)
    drawn = Drawn(PERBuffer.create_factory(size=SIZE, sequences=sequences, **(PRIORITIES if by_priority else {})))
    masses = np.zeros(SIZE * ENVS)
    steps = np.arange(drawn.begin, drawn.end) // ENVS
    may_begin = (steps % sequences.stride == 0) & (steps <= steps[-1] - 4)
    masses[may_begin] = drawn.priorities()[may_begin] if by_priority else 1
    assert_drawn_by(drawn.counts(), masses)
