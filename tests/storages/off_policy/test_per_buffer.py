"""Prioritised replay: probabilities of draws, importance weights and late errors."""

from typing import Any

import numpy as np
import pytest
import torch

from storages import LinearSchedule, PERBuffer, Sequences
from storages.transition import ERRORS, INDICES, MASK, WEIGHTS
from tests.support.model import ALGORITHM, Stream


def filled(size: int = 20, steps: int = 50, num_envs: int = 2, **hyper_parameters: Any) -> tuple[PERBuffer, Stream]:
    defaults: dict[str, Any] = {"alpha": 1.0, "default_error": 1.0}
    storage = PERBuffer.create_factory(size=size, **(defaults | hyper_parameters))("cpu", None, ALGORITHM, None)
    storage.seed(0)
    stream = Stream(num_envs, "vector", False, np.random.default_rng(0))
    for _ in range(steps):
        storage.insert_transition(stream.step())
    return storage, stream


def give_errors(storage: PERBuffer, numbers: Any, errors: Any) -> dict[str, Any]:
    """Sets the errors of transitions, as an update with a batch of them does."""
    (batch,) = storage.generate_batches(1, len(numbers))
    batch[INDICES] = torch.tensor(numbers)[:, None]
    return storage.after_gradients(batch, {ERRORS: torch.tensor(errors, dtype=torch.float32)[:, None]})


def drawn(storage: PERBuffer, draws: int = 200_000) -> Any:
    return torch.cat([batch[INDICES] for batch in storage.generate_batches(draws // 1_000, 1_000)])[:, 0].numpy()


def assert_distribution(numbers: Any, first: int, probability: Any) -> None:
    counts = np.bincount(numbers - first, minlength=len(probability))
    assert len(counts) == len(probability)
    possible = probability > 0
    assert not counts[~possible].any()
    expected = len(numbers) * probability[possible]
    chi_square = ((counts[possible] - expected) ** 2 / expected).sum()
    freedom = possible.sum() - 1
    # Wilson and Hilferty's 0.999 quantile.
    assert chi_square < freedom * (1 - 2 / (9 * freedom) + 3.09 * np.sqrt(2 / (9 * freedom))) ** 3


@pytest.mark.parametrize("stratified", [True, False])
@pytest.mark.parametrize(("alpha", "epsilon"), [(1.0, 0.0), (0.6, 0.01)])
def test_transitions_are_drawn_in_proportion_to_their_priorities(
    alpha: float, epsilon: float, stratified: bool
) -> None:
    storage, stream = filled(alpha=alpha, epsilon=epsilon, stratified=stratified)
    random = np.random.default_rng(1)
    for _ in range(1_000):
        (batch,) = storage.generate_batches(1, 16)
        storage.after_gradients(batch, {ERRORS: torch.from_numpy(random.exponential(size=(16, 1)))})
        if random.random() < 0.1:
            storage.insert_transition(stream.step())
    errors = random.exponential(size=40)
    errors[::5] = 0
    first = storage.ring.start
    give_errors(storage, np.arange(first, first + 40), errors)
    priorities = (errors + epsilon) ** alpha
    assert_distribution(drawn(storage), first, priorities / priorities.sum())


@pytest.mark.quick_share(0.35)
@pytest.mark.parametrize("stride", [1, 3])
@pytest.mark.parametrize("size", [1, 7, 40])
def test_priorities_do_not_depend_on_when_rows_are_drawn(size: int, stride: int) -> None:
    if size < stride:
        pytest.skip("no sequence fits")
    sequences = None if stride == 1 else Sequences(length=stride, overlap=0)
    often, seldom = (
        filled(size, steps=0, alpha=0.7, default_error="largest", sequences=sequences)[0] for _ in range(2)
    )
    stream, random = Stream(2, "vector", False, np.random.default_rng(0)), np.random.default_rng(1)
    for _ in range(60):
        for _ in range(random.integers(1, 2 * size + 2)):
            sample = stream.step()
            for storage in (often, seldom):
                storage.insert_transition(sample)
            if often.ring.live_steps >= stride:
                assert often.draw_rows(1).transitions.shape == (1,)
        if often.ring.live_steps < stride:
            continue
        seed, error = int(random.integers(1_000)), random.exponential()
        both = []
        for storage in (often, seldom):
            storage.seed(seed)
            (batch,) = storage.generate_batches(1, 8)
            shape = batch[MASK].shape if MASK in batch else batch[INDICES].shape
            info = storage.after_gradients(batch, {ERRORS: torch.full(shape, error)})
            both.append([batch[INDICES].tolist(), batch[WEIGHTS].tolist(), info["storage/mean_priority"]])
        assert both[0] == both[1]


def test_late_errors_of_overwritten_transitions_are_ignored() -> None:
    storage, stream = filled(size=4, num_envs=1, steps=10)
    first = storage.ring.start
    assert first == 6
    for _ in range(2):
        storage.insert_transition(stream.step())
    give_errors(storage, [6, 7, 8, 9, 10, 11], [100.0, 100.0, 1.0, 2.0, 3.0, 4.0])
    assert_distribution(drawn(storage), 8, np.array([1, 2, 3, 4]) / 10)
    # Errors of transitions that are not stored yet are ignored, too.
    give_errors(storage, [12], [100.0])
    assert_distribution(drawn(storage), 8, np.array([1, 2, 3, 4]) / 10)


def test_the_last_error_counts_for_a_transition_that_is_twice_in_a_batch() -> None:
    storage, _ = filled(size=2, num_envs=1)
    give_errors(storage, [48, 49, 48], [9.0, 1.0, 3.0])
    assert_distribution(drawn(storage), 48, np.array([0.75, 0.25]))


@pytest.mark.parametrize("weights_over", ["stored", "batch"])
def test_importance_weights_give_an_unbiased_mean_or_have_a_maximum_of_one_per_batch(weights_over: Any) -> None:
    storage, _ = filled(alpha=0.8, beta=1.0, weights_over=weights_over, stratified=False)
    first = storage.ring.start
    random = np.random.default_rng(2)
    values = random.normal(size=40)
    give_errors(storage, np.arange(first, first + 40), random.exponential(size=40) + 0.05)
    numerator = denominator = 0.0
    for batch in storage.generate_batches(2_000, 256):
        weights, numbers = batch[WEIGHTS][:, 0].double().numpy(), batch[INDICES][:, 0].numpy() - first
        assert 0 < weights.min() <= weights.max() <= 1
        numerator += (weights * values[numbers]).sum() if weights_over == "stored" else 0.0
        denominator += weights.sum() if weights_over == "stored" else 0.0
        if weights_over == "batch":
            assert weights.max() == 1
    if weights_over == "stored":
        assert numerator / denominator == pytest.approx(values.mean(), abs=0.01)


@pytest.mark.parametrize("weights_over", ["stored", "none"])
def test_importance_weights_equal_those_of_the_paper(weights_over: str) -> None:
    storage, _ = filled(size=3, num_envs=1, alpha=0.5, beta=0.4, weights_over=weights_over)
    give_errors(storage, [47, 48, 49], [1.0, 4.0, 9.0])
    (batch,) = storage.generate_batches(1, 64)
    probability = np.array([1, 2, 3]) / 6
    weights = (3 * probability) ** -0.4
    largest = weights.max() if weights_over == "stored" else 1
    expected = (weights / largest)[batch[INDICES][:, 0].numpy() - 47]
    np.testing.assert_allclose(batch[WEIGHTS][:, 0], expected, rtol=1e-6)


def test_errors_of_zero_without_an_epsilon_give_no_nan() -> None:
    storage, _ = filled(size=4, num_envs=1)
    give_errors(storage, [46, 47, 48, 49], [0.0, 2.0, 0.0, 0.0])
    (batch,) = storage.generate_batches(1, 16)
    assert (batch[INDICES] == 47).all()
    assert (batch[WEIGHTS] == 1).all()
    info = give_errors(storage, [46, 47, 48, 49], np.zeros(4))
    assert info["storage/mean_priority"] == 0
    numbers = drawn(storage)
    assert_distribution(numbers, 46, np.full(4, 0.25))


def test_alpha_zero_keeps_no_priorities_and_a_later_alpha_begins_with_the_default() -> None:
    storage, _ = filled(size=4, num_envs=1, alpha=0.0)
    plain = storage.nbytes
    give_errors(storage, [46, 47, 48, 49], [1.0, 2.0, 3.0, 4.0])
    assert_distribution(drawn(storage), 46, np.full(4, 0.25))
    storage.update_storage_parameter("alpha", 1.0)
    assert_distribution(drawn(storage), 46, np.full(4, 0.25))
    assert storage.nbytes > plain
    give_errors(storage, [46, 47, 48, 49], [1.0, 2.0, 3.0, 4.0])
    assert_distribution(drawn(storage), 46, np.array([1, 2, 3, 4]) / 10)
    storage.update_storage_parameter("alpha", 0.5)
    roots = np.sqrt([1, 2, 3, 4])
    assert_distribution(drawn(storage), 46, roots / roots.sum())
    storage.update_storage_parameter("epsilon", 1.0)
    roots = np.sqrt([2, 3, 4, 5])
    assert_distribution(drawn(storage), 46, roots / roots.sum())


def test_alpha_and_beta_follow_their_schedules() -> None:
    storage, _ = filled(
        size=2, num_envs=1, alpha=LinearSchedule(1.0, 0.5), beta=LinearSchedule(0.0, 1.0), default_error=1.0
    )
    give_errors(storage, [48, 49], [1.0, 4.0])
    assert_distribution(drawn(storage), 48, np.array([0.2, 0.8]))
    assert (next(iter(storage.generate_batches(1, 8)))[WEIGHTS] == 1).all()
    storage.set_progress(100, 100)
    assert_distribution(drawn(storage), 48, np.array([1, 2]) / 3)
    (batch,) = storage.generate_batches(1, 8)
    np.testing.assert_allclose(batch[WEIGHTS], np.where(batch[INDICES] == 48, 1, 0.5), rtol=1e-6)


def test_reset_removes_all_priorities() -> None:
    storage, stream = filled(num_envs=1)
    give_errors(storage, np.arange(30, 50), np.full(20, 50.0))
    storage.reset()
    for _ in range(3):
        storage.insert_transition(stream.step())
    first = storage.ring.start
    assert_distribution(drawn(storage), first, np.full(3, 1 / 3))


def test_statistics_of_priorities_are_reported() -> None:
    storage, _ = filled(size=4, num_envs=1, alpha=0.5, beta=1.0)
    info = give_errors(storage, [46, 47, 48, 49], [1.0, 4.0, 9.0, 16.0])
    assert info["storage/mean_priority"] == pytest.approx(2.5)
    assert info["storage/largest_priority"] == pytest.approx(4)
    (batch,) = storage.generate_batches(1, 100)
    info = storage.after_gradients(batch, {ERRORS: torch.ones(100, 1)})
    weights = batch[WEIGHTS].numpy()
    expected = weights.sum() ** 2 / (weights**2).sum() / 100
    assert float(info["storage/effective_sample_size"]) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("hyper_parameters", "message"),
    [
        ({"alpha": 1.5}, r"PERBuffer: alpha must lie in \[0, 1\], got 1.5"),
        ({"beta": -0.1}, r"PERBuffer: beta must lie in \[0, 1\], got -0.1"),
        ({"epsilon": -1}, "PERBuffer: epsilon must be at least 0, got -1"),
        (
            {"default_error": 0.0},
            "PERBuffer: default_error must be greater than 0, or must be one of .*, got 0.0",
        ),
        ({"alpha": LinearSchedule(0.5, 2.0)}, "PERBuffer: alpha must"),
        ({"weights_over": "all"}, "PERBuffer: weights_over must be one of 'stored', 'batch', 'none', got 'all'"),
    ],
)
def test_a_value_out_of_range_is_refused_when_the_factory_is_made(
    hyper_parameters: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        PERBuffer.create_factory(size=10, **hyper_parameters)


def test_weights_of_extremely_different_priorities_stay_above_0() -> None:
    storage, _ = filled(size=4, num_envs=1, alpha=1.0, beta=1.0)
    first = storage.ring.start
    give_errors(storage, np.arange(first, first + 4), [1.0, 1.0, 1.0, 1e-42])
    (batch,) = storage.generate_batches(1, 4)
    assert (batch[WEIGHTS] > 0).all()
    info = storage.after_gradients(batch, {ERRORS: torch.ones(4, 1)})
    assert 0 < float(info["storage/effective_sample_size"]) <= 1
