"""With ``count_draws``, a storage counts how often each of its transitions was drawn."""

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from storages import Episodes, EREBuffer, PERBuffer, ReplayBuffer, Sequences, Storage
from tests.support.model import Stream

ALGORITHM = SimpleNamespace(gamma=0.9)


def made(kind: type[Storage], steps: int = 45, **given: Any) -> tuple[Any, Stream]:
    storage = kind.create_factory(**({"size": 30, "count_draws": True} | given))("cpu", None, ALGORITHM, None)
    storage.seed(0)
    stream = Stream(2, "vector", False, np.random.default_rng(0))
    for _ in range(steps):
        storage.insert_transition(stream.step())
    return storage, stream


def draw(storage: Any, batches: int = 6, size: int = 16) -> tuple[Counter[int], Counter[int]]:
    """How often each transition was drawn, and the sum of its weights."""
    counts: Counter[int] = Counter()
    weights: Counter[int] = Counter()
    for batch in storage.generate_batches(batches, size):
        for row, weight in zip(batch["Indices"][:, 0].tolist(), batch["Weights"][:, 0].tolist(), strict=True):
            counts[row] += 1
            weights[row] += weight
        storage.after_gradients(batch, {"Errors": torch.sin(torch.arange(size))[:, None]})
    return counts, weights


def assert_counts(storage: Any, counts: Counter[int], weights: Counter[int]) -> None:
    rows = range(storage.ring.start, storage.ring.end)
    found = storage.draw_counts
    assert found["counts"].ravel().tolist() == [counts[row] for row in rows]
    np.testing.assert_allclose(found["weights"].ravel(), [weights[row] for row in rows], rtol=1e-5)


KINDS: dict[str, tuple[type[Storage], dict[str, Any]]] = {
    "uniform": (ReplayBuffer, {}),
    "prefetch": (ReplayBuffer, {"prefetch": 3}),
    "by priority": (PERBuffer, {"n_step": 3, "alpha": 0.6, "beta": 0.4}),
    "by recency": (EREBuffer, {"alpha": 0.6, "beta": 0.4, "eta": 0.9, "cmin": 5}),
    "sequences": (ReplayBuffer, {"sequences": Sequences(3)}),
    "episodes": (ReplayBuffer, {"sequences": Episodes(whole=False)}),
    "growing": (ReplayBuffer, {"size": None}),
}


@pytest.mark.parametrize(("kind", "given"), KINDS.values(), ids=KINDS)
def test_draws_and_weights_are_counted_for_all_stored_rows(kind: type[Storage], given: dict[str, Any]) -> None:
    storage, stream = made(kind, **given)
    if "sequences" in given:
        counts: Counter[int] = Counter()
        weights: Counter[int] = Counter()
        for batch in storage.generate_batches(6, 4):
            counts.update(batch["Indices"][:, 0].tolist())
            weights.update(batch["Indices"][:, 0].tolist())
    else:
        counts, weights = draw(storage)
    assert_counts(storage, counts, weights)
    for _ in range(40):
        # New steps, which replace older ones if the ring is full.
        storage.insert_transition(stream.step())
    assert_counts(storage, counts, weights)


def test_prefetched_batches_are_counted_only_when_they_are_requested() -> None:
    storage, _ = made(ReplayBuffer, prefetch=4)
    batches = storage.generate_batches(8, 16)
    next(batches)
    next(batches)
    assert int(storage.draw_counts["counts"].sum()) == 32


def test_inserted_slices_start_with_draw_counts_of_zero() -> None:
    storage, _ = made(ReplayBuffer)
    draw(storage)
    storage.insert_data_slice(storage.get_data_slice(0, 25))
    assert int(storage.draw_counts["counts"][-25:].sum()) == 0
    assert int(storage.draw_counts["counts"][:5].sum()) > 0
    storage.reset()
    assert storage.draw_counts["counts"].shape == (0, 2)


@pytest.mark.parametrize("on_disk", [False, True], ids=["in memory", "in a directory"])
def test_draw_counts_are_restored_and_continued(on_disk: bool, tmp_path: Path) -> None:
    given = {"directory": tmp_path / "replay"} if on_disk else {}
    storage, _ = made(PERBuffer, alpha=0.6, beta=0.4, **given)
    before = draw(storage)
    state = storage.state_dict()
    storage.close()
    again, _ = made(PERBuffer, steps=0, alpha=0.6, beta=0.4, **given)
    again.load_state_dict(state)
    assert_counts(again, *before)
    after = draw(again)
    assert_counts(again, before[0] + after[0], before[1] + after[1])
    again.close()


def test_counting_changes_no_batch_and_takes_eight_bytes_a_transition() -> None:
    counting, _ = made(PERBuffer, alpha=0.6)
    other, _ = made(PERBuffer, alpha=0.6, count_draws=False)
    assert draw(counting) == draw(other)
    assert counting.nbytes - other.nbytes == 8 * 2 * counting.ring.rows
    assert other.draw_counts is None
    assert "draws" not in other.state_dict()


def test_a_state_without_draw_counts_is_loaded_with_counts_of_zero() -> None:
    other, _ = made(PERBuffer, alpha=0.6, count_draws=False)
    counting, _ = made(PERBuffer, alpha=0.6)
    draw(counting)
    counting.load_state_dict(other.state_dict())
    assert int(counting.draw_counts["counts"].sum()) == 0
