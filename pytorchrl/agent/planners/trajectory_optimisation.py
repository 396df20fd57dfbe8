"""Trajectory optimisation with known differentiable dynamics: LQR, iterative LQR, differential dynamic programming."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.func import jacrev, vmap

Dynamics: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""From a state (S,) and an action (A,) to the next state (S,), by operations of torch."""
Cost: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""From a state (S,) and an action (A,) to the cost () of the step."""
FinalCost: TypeAlias = Callable[[Tensor], Tensor]
"""From the last state (S,) to its cost ()."""


class Trajectory(NamedTuple):
    """A trajectory of H steps, and the controller that holds it."""

    states: Tensor
    """(H + 1, S)."""
    actions: Tensor
    """(H, A)."""
    gains: Tensor
    """(H, A, S): in a state x near ``states[t]``, take ``actions[t] + gains[t] @ (x - states[t])``."""
    costs: list[float]
    """Total cost of the given actions, and after each iteration that lowered it."""


def linear_quadratic_regulator(
    state_matrix: Tensor, action_matrix: Tensor, state_cost: Tensor, action_cost: Tensor, final_cost: Tensor, steps: int
) -> Tensor:
    """Return the gains (H, A, S) of the optimal controller ``action = gains[t] @ state`` of a linear system.

    It minimises the sum of ``x' state_cost x + u' action_cost u`` over the steps, plus ``x' final_cost x`` at the end,
    for ``x' = state_matrix x + action_matrix u``, by the Riccati recursion (Bertsekas, "Dynamic Programming and Optimal
    Control", section 3.1).

    Args:
        state_matrix: (S, S).
        action_matrix: (S, A).
        state_cost: (S, S), symmetric and positive semi-definite.
        action_cost: (A, A), symmetric and positive definite.
        final_cost: (S, S), symmetric and positive semi-definite.
        steps: number of steps (H).
    """
    value, gains = final_cost, []
    for _ in range(steps):
        by_action = action_matrix.T @ value
        gain = -torch.linalg.solve(action_cost + by_action @ action_matrix, by_action @ state_matrix)
        closed = state_matrix + action_matrix @ gain
        value = state_cost + gain.T @ action_cost @ gain + closed.T @ value @ closed
        gains.append(gain)
    return torch.stack(gains[::-1])


def optimise_trajectory(
    dynamics: Dynamics,
    cost: Cost,
    final_cost: FinalCost,
    state: Tensor,
    actions: Tensor,
    *,
    second_order: bool = False,
    iterations: int = 100,
    tolerance: float = 1e-9,
) -> Trajectory:
    """Lower the total cost of a sequence of actions until a local minimum.

    Each iteration solves a quadratic approximation around the trajectory, and searches along its solution. With the
    second derivatives of the dynamics it is differential dynamic programming (Mayne, 1966), without them iterative LQR
    (Todorov and Li, 2005); regularisation and line search are those of Tassa et al., "Synthesis and Stabilization of
    Complex Behaviors through Online Trajectory Optimization" (IROS 2012).

    Args:
        dynamics: twice differentiable.
        cost: of each step, twice differentiable.
        final_cost: of the state after the last step, twice differentiable.
        state: (S,), the first one; double precision is best.
        actions: (H, A), from which the search starts; not modified.
        second_order: use the second derivatives of the dynamics.
        iterations: most iterations.
        tolerance: stop where an iteration lowers the cost by less than this share of it.

    Raises:
        ValueError: the cost of the given actions is not finite, or the dynamics return another shape than the state's.
    """
    problem = _Problem(dynamics, cost, final_cost, second_order)
    states = problem.states_of(state, actions)
    costs = [problem.total_cost(states, actions)]
    if not torch.isfinite(torch.tensor(costs[0])):
        raise ValueError(f"optimise_trajectory: the cost of the given actions is {costs[0]}; start from others")
    gains = actions.new_zeros((*actions.shape, len(state)))
    regularisation = 0.0
    for _ in range(iterations):
        step = problem.backward(states, actions, regularisation)
        found = None if step is None else problem.forward(states, actions, *step, costs[-1])
        if step is None or found is None:
            regularisation = max(_LEAST_REGULARISATION, 10 * regularisation)
            if regularisation > _MOST_REGULARISATION:
                break
            continue
        (states, actions), gains = found, step[1]
        costs.append(problem.total_cost(states, actions))
        regularisation = regularisation / 10 if regularisation > _LEAST_REGULARISATION else 0.0
        if costs[-2] - costs[-1] <= tolerance * abs(costs[-2]):
            break
    return Trajectory(states, actions, gains, costs)


class _Problem:
    """Dynamics and costs, with their derivatives in all steps at once."""

    def __init__(self, dynamics: Dynamics, cost: Cost, final_cost: FinalCost, second_order: bool) -> None:
        self._dynamics, self._cost, self._final_cost = dynamics, cost, final_cost
        self._slopes = vmap(jacrev(dynamics, (0, 1)))
        self._curvatures = vmap(_hessian(dynamics)) if second_order else None
        self._cost_slopes = vmap(jacrev(cost, (0, 1)))
        self._cost_curvatures = vmap(_hessian(cost))

    def states_of(self, state: Tensor, actions: Tensor) -> Tensor:
        """Return the states (H + 1, S) that actions (H, A) lead to."""
        states = [state]
        for action in actions:
            following = self._dynamics(states[-1], action)
            if following.shape != state.shape:
                raise ValueError(
                    f"optimise_trajectory: dynamics must return a state of shape {tuple(state.shape)}, got "
                    f"{tuple(following.shape)}"
                )
            states.append(following)
        return torch.stack(states)

    def total_cost(self, states: Tensor, actions: Tensor) -> float:
        """Return the cost of a trajectory."""
        return float(vmap(self._cost)(states[:-1], actions).sum() + self._final_cost(states[-1]))

    def backward(self, states: Tensor, actions: Tensor, regularisation: float) -> tuple[Tensor, Tensor] | None:
        """Return changes of actions (H, A) and gains (H, A, S); None where the approximation has no minimum."""
        before = states[:-1]
        by_state, by_action = self._slopes(before, actions)
        cost_by_state, cost_by_action = self._cost_slopes(before, actions)
        (cost_xx, _), (cost_ux, cost_uu) = self._cost_curvatures(before, actions)
        curved = None if self._curvatures is None else self._curvatures(before, actions)
        slope, curvature = jacrev(self._final_cost)(states[-1]), jacrev(jacrev(self._final_cost))(states[-1])
        changes, gains = [], []
        for step in reversed(range(len(actions))):
            f_x, f_u = by_state[step], by_action[step]
            q_x, q_u = cost_by_state[step] + f_x.T @ slope, cost_by_action[step] + f_u.T @ slope
            q_xx = cost_xx[step] + f_x.T @ curvature @ f_x
            q_ux = cost_ux[step] + f_u.T @ curvature @ f_x
            q_uu = cost_uu[step] + f_u.T @ curvature @ f_u
            if curved is not None:
                (f_xx, _), (f_ux, f_uu) = ([each[step] for each in row] for row in curved)
                q_xx, q_ux, q_uu = (
                    quadratic + torch.einsum("s,sij->ij", slope, second)
                    for quadratic, second in ((q_xx, f_xx), (q_ux, f_ux), (q_uu, f_uu))
                )
            # Changes of the state, and not of the action, are penalised.
            regular_ux, regular_uu = q_ux + regularisation * f_u.T @ f_x, q_uu + regularisation * f_u.T @ f_u
            root, failed = torch.linalg.cholesky_ex(regular_uu)
            if failed:
                return None
            change = -torch.cholesky_solve(q_u.unsqueeze(1), root).squeeze(1)
            gain = -torch.cholesky_solve(regular_ux, root)
            slope = q_x + gain.T @ (q_uu @ change + q_u) + q_ux.T @ change
            curvature = q_xx + gain.T @ q_uu @ gain + gain.T @ q_ux + q_ux.T @ gain
            curvature = (curvature + curvature.T) / 2
            changes.append(change)
            gains.append(gain)
        return torch.stack(changes[::-1]), torch.stack(gains[::-1])

    def forward(
        self, states: Tensor, actions: Tensor, changes: Tensor, gains: Tensor, cost: float
    ) -> tuple[Tensor, Tensor] | None:
        """Return states and actions of a lower cost along the changes; None if there are none."""
        for halvings in range(_MOST_HALVINGS):
            share, reached, taken = 0.5**halvings, [states[0]], []
            for step, action in enumerate(actions):
                taken.append(action + share * changes[step] + gains[step] @ (reached[-1] - states[step]))
                reached.append(self._dynamics(reached[-1], taken[-1]))
            new_states, new_actions = torch.stack(reached), torch.stack(taken)
            if self.total_cost(new_states, new_actions) < cost:
                return new_states, new_actions
        return None


def _hessian(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Any]:
    """Return the second derivatives of a function of state and action: by (state, action), of (state, action)."""
    # `torch.func.hessian` compiles by torch.jit, which is deprecated.
    return jacrev(jacrev(function, (0, 1)), (0, 1))


_LEAST_REGULARISATION, _MOST_REGULARISATION = 1e-6, 1e10
_MOST_HALVINGS = 12
