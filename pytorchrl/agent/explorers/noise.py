"""Noise on continuous actions: independent at each step, or correlated over time."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pytorchrl.agent.explorers.explorer import Exploration, Explorer, best_action, output_error
from storages.component.hyper_parameters import NonNegativeOrSchedule, Positive


@dataclass(frozen=True)
class GaussianNoise(Explorer):
    """The greedy action plus independent Gaussian noise, clipped to the bounds of the actions.

    Fujimoto et al., "Addressing Function Approximation Error in Actor-Critic Methods" (TD3, arXiv 1802.09477),
    section 6.1, with sigma = 0.1.

    Args:
        sigma: standard deviation of the noise, on the scale of bounded actions in [-1, 1].
        clip: the noise is clipped to [-clip, clip]; None for no clipping.
    """

    sigma: NonNegativeOrSchedule
    clip: Positive | None = None

    def act(self, output: Callable[[], Any], exploration: Exploration) -> Tensor:
        """(E, *action)."""
        action = _real_action(self, output())
        noise = torch.empty_like(action).normal_(generator=exploration.generator) * exploration.at(self.sigma)
        if self.clip is not None:
            noise = noise.clamp(-self.clip, self.clip)
        return exploration.clip(action + noise)

    def check_output(self, output: Any) -> None:
        """Refuse an output without continuous actions."""
        _real_action(self, output)


@dataclass(frozen=True)
class OrnsteinUhlenbeck(Explorer):
    """The greedy action plus an Ornstein-Uhlenbeck process, clipped to the bounds of the actions.

    Uhlenbeck and Ornstein, "On the Theory of the Brownian Motion" (Physical Review 36, 1930), as Lillicrap et al. use
    it (DDPG, arXiv 1509.02971, section 3 and appendix), by the Euler-Maruyama method:
    ``x' = x - theta * x * dt + sigma * sqrt(dt) * N(0, 1)``. An episode begins with x = 0.

    Args:
        sigma: scale of the process's random part, for bounded actions in [-1, 1]. The stationary standard deviation of
            the noise is nearly ``sigma / sqrt(2 * theta)``.
        theta: rate at which the process reverts to 0.
        dt: time step.
    """

    sigma: NonNegativeOrSchedule
    theta: Positive = 0.15
    dt: Positive = 1e-2

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.theta * self.dt >= 2:
            raise ValueError(
                f"OrnsteinUhlenbeck: theta * dt must be less than 2, or the noise grows without limit, got "
                f"theta={self.theta} and dt={self.dt}"
            )

    def act(self, output: Callable[[], Any], exploration: Exploration) -> Tensor:
        """(E, *action)."""
        action = _real_action(self, output())
        before = exploration.state.get(_NOISE)
        if before is None:
            before = torch.zeros_like(action)
        if exploration.starts is not None:
            before = before * (1 - exploration.starts.view(-1, *[1] * (action.ndim - 1)))
        drawn = torch.empty_like(action).normal_(generator=exploration.generator)
        noise = before * (1 - self.theta * self.dt) + drawn * (exploration.at(self.sigma) * math.sqrt(self.dt))
        exploration.state[_NOISE] = noise
        return exploration.clip(action + noise)

    def check_output(self, output: Any) -> None:
        """Refuse an output without continuous actions."""
        _real_action(self, output)


_NOISE = "OrnsteinUhlenbeck"


def _real_action(explorer: Explorer, output: Any) -> Tensor:
    action = best_action(output)
    if not action.is_floating_point():
        raise output_error(explorer, "continuous actions", output)
    return action
