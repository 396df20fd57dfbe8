"""LQR, iterative LQR and differential dynamic programming find the minima that other methods find."""

from typing import Any

import numpy as np
import pytest
import torch

import pytorchrl as prl
from tests.support.by_hand import numpy

STEPS = 6
A = torch.tensor([[1.0, 0.3], [0.1, 0.9]], dtype=torch.float64)
B = torch.tensor([[0.0], [0.4]], dtype=torch.float64)
Q, R, FINAL = torch.diag(torch.tensor([1.0, 0.2])).double(), torch.tensor([[0.1]]).double(), 3 * torch.eye(2).double()
START = torch.tensor([1.0, -0.5], dtype=torch.float64)


def linear(state: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
    return A @ state + B @ action


def quadratic(state: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
    return state @ Q @ state + action @ R @ action


def quadratic_at_end(state: torch.Tensor) -> torch.Tensor:
    return state @ FINAL @ state


def best_actions() -> Any:
    """The minimum (H,) of the quadratic total cost, by least squares over all actions at once."""
    a, b = numpy(A), numpy(B)
    power = [np.linalg.matrix_power(a, step) for step in range(STEPS + 1)]
    rows, wanted = [], []
    for step in range(STEPS + 1):
        root = np.sqrt(numpy(Q if step < STEPS else FINAL))
        columns = [power[step - 1 - at] @ b if at < step else np.zeros((2, 1)) for at in range(STEPS)]
        rows.append(root @ np.hstack(columns))
        wanted.append(-root @ power[step] @ numpy(START))
    rows.append(np.sqrt(numpy(R))[0, 0] * np.eye(STEPS))
    wanted.append(np.zeros(STEPS))
    return np.linalg.lstsq(np.vstack(rows), np.concatenate(wanted), rcond=None)[0]


def test_the_regulator_takes_the_actions_of_least_squares() -> None:
    gains = prl.planners.linear_quadratic_regulator(A, B, Q, R, FINAL, STEPS)
    assert gains.shape == (STEPS, 1, 2)
    state, taken = START, []
    for gain in gains:
        taken.append(gain @ state)
        state = linear(state, taken[-1])
    np.testing.assert_allclose(torch.cat(taken), best_actions(), atol=1e-9)


@pytest.mark.parametrize("second_order", [False, True])
def test_one_iteration_solves_a_linear_problem_with_quadratic_costs(second_order: bool) -> None:
    start = torch.ones(STEPS, 1).double()
    kept = start.clone()
    found = prl.planners.optimise_trajectory(
        linear, quadratic, quadratic_at_end, START, start, second_order=second_order, iterations=1
    )
    assert torch.equal(start, kept)
    np.testing.assert_allclose(found.actions[:, 0], best_actions(), atol=1e-9)
    gains = prl.planners.linear_quadratic_regulator(A, B, Q, R, FINAL, STEPS)
    np.testing.assert_allclose(found.gains, gains, atol=1e-9)
    assert len(found.costs) == 2
    for step in range(STEPS):
        np.testing.assert_allclose(linear(found.states[step], found.actions[step]), found.states[step + 1])


def swinging(state: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
    """A pendulum, whose angle is 0 when it is up, and whose motor can lift it."""
    angle, speed = state
    speed = speed + 0.05 * (10 * torch.sin(angle) + 10 * action[0])
    return torch.stack([angle + 0.05 * speed, speed])


def swing_cost(state: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
    return 0.05 * (1 - torch.cos(state[0])) + 1e-3 * action.square().sum()


def swing_end(state: torch.Tensor) -> torch.Tensor:
    return 20 * (1 - torch.cos(state[0])) + state[1] ** 2


@pytest.mark.quick_share(0.5)
@pytest.mark.parametrize("second_order", [False, True])
def test_a_pendulum_is_swung_up_from_hanging_and_the_costs_gradient_vanishes(second_order: bool) -> None:
    hanging, still = torch.tensor([np.pi, 0.0]), 0.01 * torch.ones(30, 1).double()
    found = prl.planners.optimise_trajectory(
        swinging, swing_cost, swing_end, hanging, still, second_order=second_order, iterations=150
    )
    assert torch.cos(found.states[-1, 0]) > 0.95
    assert all(later < earlier for earlier, later in zip(found.costs, found.costs[1:], strict=False))
    actions = found.actions.clone().requires_grad_()
    state, total = hanging, torch.zeros(())
    for action in actions:
        total = total + swing_cost(state, action)
        state = swinging(state, action)
    total = total + swing_end(state)
    assert total.item() == pytest.approx(found.costs[-1])
    (gradient,) = torch.autograd.grad(total, actions)
    assert gradient.abs().max() < 1e-2


def test_the_controller_holds_the_trajectory_against_a_disturbance() -> None:
    hanging = torch.tensor([np.pi, 0.0])
    found = prl.planners.optimise_trajectory(
        swinging, swing_cost, swing_end, hanging, 0.01 * torch.ones(30, 1).double()
    )
    ends = {}
    for controlled in (False, True):
        state = hanging + torch.tensor([0.05, -0.1])
        for step in range(30):
            correction = found.gains[step] @ (state - found.states[step]) if controlled else 0.0
            state = swinging(state, found.actions[step] + correction)
        ends[controlled] = swing_end(state).item()
    assert ends[True] < ends[False] / 2


def test_a_cost_without_a_minimum_in_its_approximation_is_still_lowered() -> None:
    def concave(state: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        return (state.square() - 1).square().sum() + 1e-4 * action.square().sum()

    found = prl.planners.optimise_trajectory(
        lambda state, action: state + 0.1 * action,
        concave,
        lambda state: (state.square() - 1).square().sum(),
        torch.tensor([0.1]).double(),
        torch.zeros(30, 1).double(),
    )
    assert abs(found.states[-1, 0]) == pytest.approx(1, abs=0.05)


def test_wrong_dynamics_and_costs_are_refused() -> None:
    optimise, start = prl.planners.optimise_trajectory, torch.zeros(3, 1).double()
    with pytest.raises(ValueError, match=r"must return a state of shape \(2,\), got \(1,\)"):
        optimise(lambda state, action: state[:1], quadratic, quadratic_at_end, START, start)
    with pytest.raises(ValueError, match="the cost of the given actions is nan"):
        optimise(lambda state, action: state * torch.nan, quadratic, quadratic_at_end, START, start)
