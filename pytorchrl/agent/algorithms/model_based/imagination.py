"""Imagined sequences of a policy in a recurrent state-space model, their returns, and the scale of these.

Hafner et al., "Mastering Diverse Domains through World Models" (DreamerV3, arXiv 2301.04104), sections "Critic
learning" and "Actor learning".
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from pytorchrl.agent.actors.heads.two_hot import TwoHotPrediction
from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.actors.outputs import Distribution
from pytorchrl.agent.actors.view import Observations
from pytorchrl.agent.algorithms.model_based.latent_states import Latent, drawn, random_draw
from pytorchrl.agent.algorithms.model_based.recurrent_state_space_model import RecurrentStateSpaceModel

_PERCENTILES = (0.05, 0.95)
_DECAY = 0.99


class Imagined(NamedTuple):
    """Sequences of H steps from each of N latent states."""

    features: Tensor
    """(H + 1, N, features), of the latent states."""
    action: Tensor
    """(H, N, *action)."""
    reward: Tensor
    """(H, N, 1)."""
    discount: Tensor
    """(H, N, 1), of the value of the state after the step."""


@torch.no_grad()
def imagine(
    model: RecurrentStateSpaceModel,
    latent: Latent,
    policy: Network,
    horizon: int,
    gamma: float,
    generator: torch.Generator,
) -> Imagined:
    """Take steps of a policy from latent states, whose stochastic parts are drawn without observations.

    Args:
        model: predicts states, rewards, and whether episodes go on.
        latent: of N rows.
        policy: gives distributions of actions for the features of latent states.
        horizon: number of steps.
        gamma: discount factor of a step after which the episode goes on.
        generator: of actions and latent states.
    """
    features, actions, draw = [latent.features], [], random_draw(generator)
    for _ in range(horizon):
        distribution: Distribution = policy(Observations(features[-1]))
        actions.append(distribution.sample(generator))
        recurrent = model.advance(latent, actions[-1])
        latent = drawn(recurrent, model.prior(recurrent), draw)
        features.append(latent.features)
    reached, shape = Observations(torch.cat(features[1:])), (horizon, -1, 1)
    reward: TwoHotPrediction = model.reward(reached)
    discount = gamma * model.goes_on(reached).sigmoid()
    return Imagined(torch.stack(features), torch.stack(actions), reward.mean.view(shape), discount.view(shape))


def lambda_returns(reward: Tensor, discount: Tensor, values: Tensor, trace_lambda: float) -> Tensor:
    """Return ``R_t = r_t + d_t ((1 - lambda) v_{t+1} + lambda R_{t+1})``, (H, N, 1), where ``R_H = v_H``.

    Args:
        reward: (H, N, 1), of each step.
        discount: (H, N, 1), of the value of the state after it.
        values: (H + 1, N, 1), of the states before the steps, and after the last one.
        trace_lambda: weight of longer returns.
    """
    following, returns = values[-1], []
    for step in reversed(range(len(reward))):
        following = reward[step] + discount[step] * torch.lerp(values[step + 1], following, trace_lambda)
        returns.append(following)
    return torch.stack(returns[::-1])


def probability_of_reaching(discount: Tensor) -> Tensor:
    """Return the product (H, N, 1) of the discounts of the steps before each step, by which its losses are weighted."""
    return torch.cat([torch.ones_like(discount[:1]), discount[:-1]]).cumprod(0)


class ReturnScale(nn.Module):
    """The moving range of returns from the 5th to the 95th percentile."""

    statistics = frozenset({"low", "high"})

    low: Tensor
    high: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("low", torch.zeros(()))
        self.register_buffer("high", torch.zeros(()))

    @torch.no_grad()
    def forward(self, returns: Tensor, is_real: Tensor | None) -> Tensor:
        """Follow the returns (H, N, 1) of rows that are real, (N, 1) or None for all; return the range ()."""
        numbers = returns if is_real is None else returns.where(is_real, torch.nan)
        low, high = torch.nanquantile(numbers, numbers.new_tensor(_PERCENTILES))
        self.low.lerp_(low, 1 - _DECAY)
        self.high.lerp_(high, 1 - _DECAY)
        return self.high - self.low
