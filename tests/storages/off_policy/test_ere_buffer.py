"""Emphasised recent experience: how far back each update of a phase draws, and how eta adapts."""

from typing import Any

import numpy as np
import pytest
import torch

from storages import EREBuffer
from storages.transition import ERRORS, INDICES
from tests.support.model import ALGORITHM, Stream


def filled(steps: int = 50, num_envs: int = 2, **hyper_parameters: Any) -> EREBuffer:
    storage = EREBuffer.create_factory(size=20, **hyper_parameters)("cpu", None, ALGORITHM, None)
    storage.seed(0)
    stream = Stream(num_envs, "vector", False, np.random.default_rng(0))
    for _ in range(steps):
        storage.insert_transition(stream.step())
    return storage


def chi_square_of_equal(counts: Any) -> float:
    expected = counts.sum() / len(counts)
    return float(((counts - expected) ** 2 / expected).sum())


def test_each_update_of_a_phase_draws_uniformly_from_its_newest_transitions() -> None:
    storage = filled(eta=0.998, cmin=6)
    updates = 10
    for update, batch in enumerate(storage.generate_batches(updates, 20_000), start=1):
        count = max(int(40 * 0.998 ** (1000 * update / updates)), 6)
        numbers = batch[INDICES][:, 0].numpy()
        # Steps 30 to 49 are live, transitions 60 to 99; the ring has wrapped more than once.
        counts = np.bincount(99 - numbers, minlength=count)
        assert len(counts) == count
        assert chi_square_of_equal(counts) < 90
    assert count == 6


def test_epochs_count_as_updates_of_the_phase() -> None:
    storage = filled(eta=0.99, cmin=1)
    one = [batch[INDICES].min().item() for batch in storage.generate_batches(6, 500, num_epochs=1)]
    storage.seed(0)
    two = [batch[INDICES].min().item() for batch in storage.generate_batches(2, 500, num_epochs=3)]
    assert one == two


def test_a_storage_with_fewer_than_cmin_transitions_draws_from_all_of_them() -> None:
    storage = filled(steps=3, eta=0.9, cmin=5_000)
    (batch,) = storage.generate_batches(1, 2_000)
    assert set(batch[INDICES][:, 0].tolist()) == set(range(6))


def test_the_newest_transitions_are_drawn_in_proportion_to_their_priorities() -> None:
    storage = filled(eta=0.997, cmin=8, alpha=1.0, default_error=1.0)
    errors = np.random.default_rng(1).exponential(size=40)
    (batch,) = storage.generate_batches(1, 40)
    batch[INDICES] = torch.arange(60, 100)[:, None]
    storage.after_gradients(batch, {ERRORS: torch.from_numpy(errors)[:, None]})
    *_, batch = storage.generate_batches(2, 200_000)
    count = max(int(40 * 0.997**1000), 8)
    probability = errors[-count:] / errors[-count:].sum()
    counts = np.bincount(batch[INDICES][:, 0].numpy() - (100 - count), minlength=count)
    expected = 200_000 * probability
    assert ((counts - expected) ** 2 / expected).sum() < 24.3  # 0.999 quantile of 7 degrees of freedom


def test_eta_moves_to_one_when_returns_stop_rising_and_back_when_they_rise_again() -> None:
    storage = filled(eta=0.99, cmin=1, adapt_eta=True)
    assert storage.current_eta == 0.99
    etas = []
    for episode_return in [*np.arange(100.0), *np.full(60, 99.0), *np.arange(99.0, 140.0)]:
        storage.after_episodes([episode_return])
        etas.append(storage.current_eta)
    assert etas[99] == pytest.approx(0.99)
    assert etas[159] == 1
    assert etas[-1] == pytest.approx(0.99)
    assert all(0.99 <= eta <= 1 for eta in etas)
    assert storage.update_eta({"loss": 1.0}) == {"loss": 1.0, "storage/eta": storage.current_eta}


def test_eta_stays_constant_without_adapt_eta() -> None:
    storage = filled(eta=0.99)
    for episode_return in range(100):
        storage.after_episodes([0.0 if episode_return % 2 else 50.0])
    assert storage.current_eta == 0.99
    (batch,) = storage.generate_batches(1, 4)
    assert storage.after_gradients(batch, {})["storage/eta"] == 0.99
