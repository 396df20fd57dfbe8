"""Planners equal slow numpy loops over states, iterations and sequences, and find action sequences of large returns."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

import pytorchrl as prl
from pytorchrl.agent.planners.sampling import CrossEntropyMethod
from tests.support.by_hand import numpy

STATES, HORIZON, SIZE = 3, 4, 2
PLANNERS: dict[str, prl.planners.Planner] = {
    "random shooting": prl.planners.RandomShooting(HORIZON, num_samples=2_000),
    "cross-entropy": prl.planners.CrossEntropy(HORIZON, num_iterations=8),
    "path integral": prl.planners.PathIntegral(HORIZON, num_iterations=8, num_samples=300, temperature=0.05),
    "path integral, smoothed": prl.planners.PathIntegral(
        HORIZON, num_iterations=8, num_samples=300, temperature=0.05, smoothing=0.3
    ),
    "path integral of elites": prl.planners.ElitePathIntegral(
        HORIZON, num_iterations=8, num_samples=300, num_elites=30, temperature=0.05
    ),
}


def peaks() -> torch.Tensor:
    """The best action sequence of each state, (E, H, A)."""
    return torch.empty(STATES, HORIZON, SIZE).uniform_(-0.9, 0.9, generator=torch.Generator().manual_seed(5))


def returns_of(actions: torch.Tensor) -> torch.Tensor:
    return -(actions - peaks().unsqueeze(1)).square().sum((2, 3))


@dataclass
class Recorded:
    """Calls of a function of returns."""

    function: Callable[[torch.Tensor], torch.Tensor]

    def __post_init__(self) -> None:
        self.actions: list[torch.Tensor] = []

    def __call__(self, actions: torch.Tensor) -> torch.Tensor:
        self.actions.append(actions.clone())
        return self.function(actions)


@pytest.mark.parametrize("name", PLANNERS)
def test_plans_are_near_the_best_sequence_of_each_state(name: str) -> None:
    plan = PLANNERS[name].plan(returns_of, torch.zeros(STATES, HORIZON, SIZE), torch.Generator().manual_seed(0))
    # Eight uniformly random numbers are seldom all near.
    assert (plan - peaks()).abs().mean() < (0.4 if name == "random shooting" else 0.15)


@pytest.mark.parametrize("name", PLANNERS)
def test_sequences_are_within_the_bounds_and_equal_for_equal_seeds(name: str) -> None:
    before, recorded = torch.full((STATES, HORIZON, SIZE), 0.9), Recorded(returns_of)
    kept = before.clone()
    plans = [PLANNERS[name].plan(recorded, before, torch.Generator().manual_seed(3)) for _ in range(2)]
    assert torch.equal(*plans)
    assert plans[0].shape == before.shape
    assert torch.equal(before, kept)
    assert all(actions.abs().max() <= 1 for actions in recorded.actions)
    assert plans[0].abs().max() <= 1


@pytest.mark.parametrize("value", [-1e30, 1e30, 0.0])
@pytest.mark.parametrize("name", PLANNERS)
def test_equal_returns_give_finite_plans(name: str, value: float) -> None:
    before = torch.zeros(STATES, HORIZON, SIZE)
    plan = PLANNERS[name].plan(lambda each: torch.full(each.shape[:2], value), before, torch.Generator())
    assert torch.isfinite(plan).all()


def test_random_shooting_returns_the_best_sample() -> None:
    recorded = Recorded(returns_of)
    planner = prl.planners.RandomShooting(HORIZON, num_samples=7)
    plan = planner.plan(recorded, torch.zeros(STATES, HORIZON, SIZE), torch.Generator().manual_seed(0))
    (actions,) = recorded.actions
    assert actions.shape == (STATES, 7, HORIZON, SIZE)
    for state in range(STATES):
        best = int(np.argmax(numpy(returns_of(actions))[state]))
        assert torch.equal(plan[state], actions[state, best])


def test_the_cross_entropy_method_equals_numpy_loops() -> None:
    planner = prl.planners.CrossEntropy(HORIZON, 3, num_samples=9, num_elites=4, initial_std=0.3, momentum=0.2)
    before = torch.empty(STATES, HORIZON, SIZE).uniform_(-1, 1, generator=torch.Generator().manual_seed(1))
    recorded = Recorded(returns_of)
    plan = planner.plan(recorded, before, torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(0)
    noise = [numpy(torch.empty(STATES, 9, HORIZON * SIZE).normal_(generator=generator)) for _ in range(3)]
    for state in range(STATES):
        mean, std = numpy(before)[state], np.full((HORIZON, SIZE), 0.3)
        for iteration in range(3):
            drawn = noise[iteration][state].reshape(9, HORIZON, SIZE)
            samples = [np.clip(mean + std * each, -1, 1) for each in drawn]
            np.testing.assert_allclose(recorded.actions[iteration][state], samples, atol=1e-5)
            values = [-np.square(sample - numpy(peaks())[state]).sum() for sample in samples]
            elites = [samples[index] for index in np.argsort(values)[::-1][:4]]
            mean = 0.8 * np.mean(elites, axis=0) + 0.2 * mean
            std = 0.8 * np.std(elites, axis=0) + 0.2 * std
        np.testing.assert_allclose(plan[state], mean, atol=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.6])
def test_path_integrals_equal_numpy_loops(smoothing: float) -> None:
    planner = prl.planners.PathIntegral(HORIZON, 2, 5, noise=0.4, smoothing=smoothing, temperature=0.7)
    before = torch.empty(STATES, HORIZON, SIZE).uniform_(-1, 1, generator=torch.Generator().manual_seed(1))
    plan = planner.plan(returns_of, before, torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(0)
    noise = [numpy(torch.empty(STATES, 5, HORIZON, SIZE).normal_(0, 0.4, generator=generator)) for _ in range(2)]
    for state in range(STATES):
        sequence = numpy(before)[state]
        for iteration in range(2):
            samples, weights = [], []
            for drawn in noise[iteration][state]:
                filtered, last = [], np.zeros(SIZE)
                for step in drawn:
                    last = (1 - smoothing) * step + smoothing * last
                    filtered.append(last)
                samples.append(np.clip(sequence + np.array(filtered), -1, 1))
                weights.append(np.exp(-np.square(samples[-1] - numpy(peaks())[state]).sum() / 0.7))
            sequence = np.average(samples, axis=0, weights=weights)
        np.testing.assert_allclose(plan[state], sequence, atol=1e-5)


def test_path_integrals_of_elites_equal_numpy_loops() -> None:
    planner = prl.planners.ElitePathIntegral(
        HORIZON, 3, 9, num_elites=4, num_proposals=2, temperature=0.7, smallest_std=0.1, largest_std=0.8
    )
    generator = torch.Generator().manual_seed(1)
    before, proposed = (
        torch.empty(STATES, *each, HORIZON, SIZE).uniform_(-1, 1, generator=generator) for each in ((), (2,))
    )
    recorded = Recorded(returns_of)
    plan = planner.search(recorded, before, torch.Generator().manual_seed(0), lambda number: proposed[:, :number])
    generator = torch.Generator().manual_seed(0)
    noise = [numpy(torch.empty(STATES, 7, HORIZON, SIZE).normal_(generator=generator)) for _ in range(3)]
    uniform = numpy(torch.empty(STATES, 4).uniform_(0, 1, generator=generator))
    for state in range(STATES):
        mean, std = numpy(before)[state], np.full((HORIZON, SIZE), 0.8)
        for iteration in range(3):
            samples = [*numpy(proposed)[state], *np.clip(mean + std * noise[iteration][state], -1, 1)]
            np.testing.assert_allclose(recorded.actions[iteration][state], samples, atol=1e-5)
            values = np.array([-np.square(sample - numpy(peaks())[state]).sum() for sample in samples])
            best = np.argsort(values)[::-1][:4]
            elites, weights = [samples[index] for index in best], np.exp(values[best] / 0.7)
            mean = np.average(elites, axis=0, weights=weights)
            variance = np.average([np.square(elite - mean) for elite in elites], axis=0, weights=weights)
            std = np.clip(np.sqrt(variance), 0.1, 0.8)
        np.testing.assert_allclose(plan.sequence[state], mean, atol=1e-5)
        np.testing.assert_allclose(plan.std[state], std[0], atol=1e-5)  # type: ignore[index]
        gumbel = -np.log(-np.log(uniform[state]))
        drawn = int(np.argmax(np.log(weights) + gumbel))
        np.testing.assert_allclose(plan.action[state], elites[drawn][0], atol=1e-5)


def test_elites_are_drawn_as_often_as_they_weigh() -> None:
    planner = prl.planners.ElitePathIntegral(
        1, 1, num_samples=3, num_elites=2, num_proposals=2, temperature=1.0, smallest_std=0.1
    )
    proposed = torch.tensor([-0.5, 0.5]).view(1, 2, 1, 1).expand(4_000, 2, 1, 1)

    def returns(actions: torch.Tensor) -> torch.Tensor:
        # The third sequence is never an elite.
        values = torch.where(actions[..., 0, 0] == 0.5, np.log(3.0), torch.where(actions[..., 0, 0] == -0.5, 0.0, -9.0))
        return values.float()

    plan = planner.search(returns, torch.zeros(4_000, 1, 1), torch.Generator().manual_seed(0), lambda number: proposed)
    torch.testing.assert_close((plan.action > 0).float().mean(), torch.tensor(0.75), atol=0.03, rtol=0.0)
    torch.testing.assert_close(plan.sequence, torch.full((4_000, 1, 1), 0.25))


@pytest.mark.parametrize("name", PLANNERS)
def test_a_search_takes_the_first_action_within_the_bounds(name: str) -> None:
    before, planner = torch.zeros(STATES, HORIZON, SIZE), PLANNERS[name]
    plan = planner.search(returns_of, before, torch.Generator().manual_seed(0))
    assert torch.equal(plan.sequence, planner.plan(returns_of, before, torch.Generator().manual_seed(0)))
    assert (plan.std is None) == (not planner.is_stochastic)
    if plan.std is None:
        assert torch.equal(plan.action, plan.sequence[:, 0])
    else:
        assert (plan.action - plan.sequence[:, 0]).abs().max() < 0.5


def search(
    method: CrossEntropyMethod, values: Callable[[torch.Tensor], torch.Tensor], rows: int, size: int, seed: int = 0
) -> torch.Tensor:
    """The best vectors (rows, size) found, from a mean of 0 and a standard deviation of 1."""
    generator = torch.Generator().manual_seed(seed)
    return method(values, torch.zeros(rows, size), torch.ones(rows, size), generator).best


@pytest.mark.parametrize("peak", [(0.3, -0.6), (0.95, 0.0), (2.0, -5.0)])
def test_the_search_approaches_the_maximum_within_the_bounds(peak: tuple[float, float]) -> None:
    wanted, distances = torch.tensor(peak), []
    for iterations in (1, 2, 5):
        method = CrossEntropyMethod(iterations, 64, 6)
        found = search(method, lambda action: -(action - wanted).square().sum(2), 50, 2)
        assert found.abs().max() <= 1
        distances.append((found - wanted.clamp(-1, 1)).norm(dim=1).mean().item())
    assert distances[0] >= distances[1] >= distances[2]
    assert distances[2] < 0.02


def test_rows_are_searched_separately_and_the_best_of_all_samples_is_returned() -> None:
    wanted, seen = torch.tensor([[-0.5], [0.5]]), []

    def values(action: torch.Tensor) -> torch.Tensor:
        value = -(action - wanted.unsqueeze(1)).abs().sum(2)
        seen.append(value)
        return value

    found = search(CrossEntropyMethod(4, 5, 2), values, 2, 1, seed=1)
    assert len(seen) == 4
    best = torch.cat(seen, dim=1).amax(1)
    torch.testing.assert_close(-(found - wanted).abs()[:, 0], best)


@pytest.mark.parametrize("value", [0.0, -1e30, torch.inf, -torch.inf, torch.nan])
def test_equal_and_undefined_values_give_vectors_within_the_bounds(value: float) -> None:
    found = search(CrossEntropyMethod(3, 4, 4), lambda action: torch.full(action.shape[:2], value), 2, 3)
    assert found.shape == (2, 3)
    assert found.abs().max() <= 1


def test_settings_out_of_range_are_refused() -> None:
    wrong: list[tuple[Callable[[], Any], str]] = [
        (lambda: prl.planners.CrossEntropy(num_samples=4), "num_elites must be at most num_samples=4, got 16"),
        (lambda: prl.planners.CrossEntropy(momentum=1.0), "CrossEntropy: momentum must be less than 1, got 1"),
        (lambda: prl.planners.RandomShooting(horizon=0), "RandomShooting: horizon must be at least 1, got 0"),
        (lambda: prl.planners.PathIntegral(temperature=0), "PathIntegral: temperature must be"),
        (
            lambda: prl.planners.ElitePathIntegral(num_samples=30, num_elites=31),
            "ElitePathIntegral: num_elites must be at most num_samples=30, got 31",
        ),
        (
            lambda: prl.planners.ElitePathIntegral(num_samples=20, num_elites=5),
            "ElitePathIntegral: num_proposals must be less than num_samples=20, got 24",
        ),
        (
            lambda: prl.planners.ElitePathIntegral(smallest_std=3.0),
            "ElitePathIntegral: smallest_std must be at most largest_std=2.0, got 3.0",
        ),
    ]
    for make, message in wrong:
        with pytest.raises(ValueError, match=message):
            make()
