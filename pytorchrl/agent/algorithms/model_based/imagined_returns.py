"""Returns of imagined sequences, and the moving range that scales them."""

import torch
from torch import Tensor, nn

_PERCENTILES = (0.05, 0.95)
_DECAY = 0.99


def lambda_returns(reward: Tensor, discount: Tensor, values: Tensor, trace_lambda: float) -> Tensor:
    """Return ``R_t = r_t + d_t ((1 - lambda) v_{t+1} + lambda R_{t+1})``, (H, N, 1), where ``R_H = v_H``.

    Hafner et al., "Mastering Diverse Domains through World Models" (arXiv 2301.04104), section "Critic learning".

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


class ReturnScale(nn.Module):
    """The moving range of returns from the 5th to the 95th percentile, section "Actor learning" of the same paper."""

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
