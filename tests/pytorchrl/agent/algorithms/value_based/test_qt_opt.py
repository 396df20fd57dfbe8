"""QtOpt's update equals slow numpy loops over rows, iterations and samples; its greedy actions have large values."""

from typing import Any

import numpy as np
import pytest
import torch

import pytorchrl as prl
from storages.transition import ACT, DISCOUNT, ERRORS, OBS, OBS2, REW, WEIGHTS
from tests.support.by_hand import copies, exploring, layer_of, linear, numeric_gradient, numpy, replayed
from tests.support.comparison import assert_equal
from tests.support.soft_critics import drawn, made, n_step_batch
from tests.support.value_learning import huber

ROWS, SIZE = 5, 2


class ByHand:
    def __init__(self, algorithm: Any, batch: dict[str, torch.Tensor]) -> None:
        self.batch = {key: numpy(value) for key, value in batch.items()}
        self.taken = (self.batch[ACT] + 1) / 2  # the Box is [-3, 1]: middle -1, half range 2
        self.algorithm, self.online = algorithm, layer_of(algorithm.q.head)
        target, lagged = layer_of(algorithm.q_target.head), layer_of(algorithm.q_lagged.head)
        draw = lambda g: torch.empty(ROWS, algorithm.num_samples, SIZE).normal_(generator=g)  # noqa: E731
        noise = drawn(algorithm.generator, [draw] * algorithm.num_iterations)
        self.targets = []
        for row in range(ROWS):
            obs2 = self.batch[OBS2][row]
            best = self.searched(target, obs2, [each[row] for each in noise])
            after = min(self.value(layer, obs2, best) for layer in (target, lagged))
            self.targets.append(self.batch[REW][row, 0] + self.batch[DISCOUNT][row, 0] * after)

    def value(self, layer: Any, obs: Any, action: Any) -> float:
        return float(linear(layer, np.concatenate([obs, action]))[0])

    def searched(self, layer: Any, obs: Any, noise: list[Any]) -> Any:
        means, deviations = [0.0] * SIZE, [1.0] * SIZE
        found: list[tuple[float, list[float]]] = []
        for of_iteration in noise:
            samples = []
            for numbers in of_iteration:
                action = [
                    min(1.0, max(-1.0, mean + deviation * number))
                    for mean, deviation, number in zip(means, deviations, numbers, strict=True)
                ]
                samples.append((self.value(layer, obs, action), action))
            found += samples
            elites = [action for _, action in sorted(samples, reverse=True)[: self.algorithm.num_elites]]
            for number in range(SIZE):
                column = [action[number] for action in elites]
                means[number] = sum(column) / len(column)
                squares = sum((each - means[number]) ** 2 for each in column)
                deviations[number] = (squares / len(column)) ** 0.5
        return max(found)[1]

    def difference(self, row: int) -> float:
        return self.value(self.online, self.batch[OBS][row], self.taken[row]) - self.targets[row]

    def loss(self) -> float:
        threshold = self.algorithm.huber_threshold
        return sum(self.batch[WEIGHTS][r, 0] * huber(self.difference(r), threshold) for r in range(ROWS)) / ROWS


@pytest.mark.parametrize(
    "settings",
    [{}, {"num_iterations": 3, "num_samples": 7, "num_elites": 1}, {"num_iterations": 1, "huber_threshold": None}],
)
def test_losses_errors_and_gradients_equal_those_of_numpy_loops(settings: dict[str, Any]) -> None:
    algorithm, batch = made(prl.QtOpt, **settings), n_step_batch()
    before, by_hand = copies(batch), ByHand(algorithm, batch)
    gradients, result = algorithm.compute_gradients(batch)
    np.testing.assert_allclose(result.metrics["loss"], by_hand.loss(), rtol=1e-4)
    errors = [abs(by_hand.difference(row)) for row in range(ROWS)]
    np.testing.assert_allclose(numpy(result.info[ERRORS])[:, 0], errors, rtol=1e-4)
    for name, part in zip(("weight", "bias"), by_hand.online, strict=True):
        expected = numeric_gradient(by_hand.loss, part)
        np.testing.assert_allclose(numpy(gradients[f"q.head.layer.{name}"]), expected, rtol=2e-3, atol=1e-4)
    assert len(gradients) == 2
    assert_equal(batch, before)


def test_the_smaller_value_of_target_and_lagged_network_is_bootstrapped() -> None:
    algorithm, batch = made(prl.QtOpt), n_step_batch()
    rows = algorithm.read(batch)

    def value_when_lagged_differs_by(number: float) -> torch.Tensor:
        algorithm.q_lagged.load_state_dict(algorithm.q_target.state_dict())
        with torch.no_grad():
            algorithm.q_lagged.head.layer.bias.add_(number)
        algorithm.seed(0)
        value: torch.Tensor = algorithm.next_value(rows).mean
        return value

    equal = value_when_lagged_differs_by(0.0)
    torch.testing.assert_close(value_when_lagged_differs_by(3.0), equal)
    torch.testing.assert_close(value_when_lagged_differs_by(-3.0), equal - 3)


def test_the_lagged_network_is_copied_from_the_target_at_intervals() -> None:
    algorithm, batch = made(prl.QtOpt, lag=3, polyak=0.5), n_step_batch()
    for number in range(1, 8):
        before = copies(algorithm.q_lagged.state_dict())
        algorithm.update(batch)
        expected = algorithm.q_target.state_dict() if number % 3 == 0 else before
        assert_equal(dict(algorithm.q_lagged.state_dict()), dict(expected))
        assert not torch.equal(algorithm.q_target.head.layer.weight, algorithm.q.head.layer.weight)


def test_the_greedy_action_is_near_the_best_corner_of_a_linear_function() -> None:
    algorithm = made(prl.QtOpt, num_iterations=3)
    obs, done = torch.randn(6, 3), torch.zeros(6, 1)
    exploration = exploring(algorithm, 6, deterministic=True)
    chosen = algorithm.acting_step(obs, None, done, exploration)
    slopes = algorithm.q.head.layer.weight[0, 3:]
    # From the Box [-3, 1], in which the environments act.
    best = torch.where(slopes > 0, 1.0, -3.0)
    torch.testing.assert_close(chosen.env_action, best.expand(6, 2), atol=0.2, rtol=0)
    again = algorithm.acting_step(obs, None, done, exploring(algorithm, 6, deterministic=True))
    assert torch.equal(again.env_action, chosen.env_action)


def test_one_of_two_distant_good_actions_is_found_where_a_quadratic_fails() -> None:
    # In units of [-1, 1], the reward is 1 at (-1, -1) and (1, 1), and falls with the distance to the nearer one.
    actions = np.random.default_rng(0).uniform(-1, 1, (128, 2)).astype(np.float32)

    def reward_of(action: Any) -> Any:
        distances = [np.square(action - peak).sum(-1, keepdims=True) for peak in (-1, 1)]
        return np.exp(-np.min(distances, axis=0)).astype(np.float32)

    batch = replayed(actions * 2 - 1)
    batch |= {OBS: torch.zeros(128, 3), REW: torch.from_numpy(reward_of(actions)), DISCOUNT: torch.zeros(128, 1)}
    settings: dict[Any, dict[str, int]] = {prl.QtOpt: {"num_samples": 16, "num_elites": 4}, prl.NAF: {}}
    found = {}
    for cls, of_search in settings.items():
        algorithm = made(cls, {"hidden_sizes": (32,)}, lr=prl.LinearSchedule(3e-2, 0), **of_search)
        for step in range(150):
            algorithm.set_progress(step, 150)
            algorithm.update(batch)
        exploration = exploring(algorithm, 1, deterministic=True)
        chosen = algorithm.acting_step(torch.zeros(1, 3), None, torch.zeros(1, 1), exploration)
        found[cls] = reward_of((chosen.env_action.numpy() + 1) / 2).item()
    assert found[prl.QtOpt] > 0.9
    assert found[prl.NAF] < 0.7


def test_more_elites_than_samples_are_refused() -> None:
    with pytest.raises(ValueError, match="QtOpt: num_elites must be at most num_samples=4, got 6"):
        prl.QtOpt.create_factory(num_samples=4)
    with pytest.raises(ValueError, match="num_elites"):
        made(prl.QtOpt).update_algorithm_parameter("num_elites", 65)
    with pytest.raises(ValueError, match="QtOpt: lag must be at least 1, got 0"):
        prl.QtOpt.create_factory(lag=0)
