"""Which option acts in each environment, and what a rollout's returns lack if it acts on after the rollout's end."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.actors.view import View
from pytorchrl.agent.explorers import Exploration
from storages.on_policy import VanillaOnPolicyBuffer
from storages.transition import DONE2, REW

OPTION = "Option"
"""(E, 1) int64: the option that acts."""
OPTION_BEFORE = "OptionBefore"
"""(E, 1) int64: the option that acted in the step before; meaningless where an episode begins."""


class OptionInUse(NamedTuple):
    """Options (E, 1) of environments, and the values (E, options) of all options."""

    option: Tensor
    before: Tensor
    values: Tensor


class ValueOverOptions(nn.Module):
    """V(s), (N, 1): the expected value of an epsilon-greedy choice of an option.

    Args:
        option_values: the values (N, options) of all options.
    """

    def __init__(self, option_values: Network) -> None:
        super().__init__()
        self.option_values = option_values
        self.epsilon = 0.0

    def forward(self, view: View) -> Tensor:
        """Map a view of N rows to (N, 1)."""
        return self.of(self.option_values(view))

    def of(self, values: Tensor) -> Tensor:
        """(N, options) to (N, 1)."""
        return values.max(1, keepdim=True).values.lerp(values.mean(1, keepdim=True), self.epsilon)


def option_in_use(values: Tensor, terminations: Tensor, exploration: Exploration, epsilon: float) -> OptionInUse:
    """Keep the option of each environment, or choose another where it terminates or an episode begins.

    Without exploration, an option terminates where that is more likely than not, and the best one is chosen.

    Args:
        values: (E, options), of all options.
        terminations: (E, options), probabilities that they terminate.
        exploration: whose state has the options in use.
        epsilon: probability of a random option, where one is chosen.
    """
    number = values.shape[1]
    chosen, before = values.argmax(1, keepdim=True), exploration.state.get(OPTION)
    is_first = before is None
    before = torch.zeros_like(chosen) if before is None else before
    probability = terminations.gather(1, before)
    if exploration.deterministic:
        ends = probability > 0.5
    else:
        draws = torch.empty((3, *chosen.shape), device=values.device).uniform_(generator=exploration.generator)
        ends = draws[0] < probability
        anyone = (draws[2] * number).long().clamp(max=number - 1)
        chosen = torch.where(draws[1] < epsilon, anyone, chosen)
    if is_first:
        ends = torch.ones_like(ends)
    elif exploration.starts is not None:
        ends = ends | (exploration.starts > 0)
    return OptionInUse(torch.where(ends, chosen, before), before, values)


def bootstrap_from_options(
    rollout: VanillaOnPolicyBuffer, excess: Callable[[Any, Any, Tensor, Tensor], Tensor], gamma: float
) -> None:
    """Add to rewards by how much ``U(s', w)`` exceeds ``V(s')``, where returns bootstrap from the latter.

    ``U`` is the value of arriving with the option in use (Bacon et al., arXiv 1609.05140, equation 3); ``V``, that of
    choosing again, is all that storages ask for.

    Args:
        rollout: with the field ``OPTION``; its rewards are replaced.
        excess: from observations, recurrent states, episode starts and options (N, 1) to the difference (N, 1).
        gamma: discount factor.
    """
    ring = rollout.ring
    ends, worthless = ring.broken(), ring.rollout(DONE2)[..., 0].astype(np.bool_) | ring.skipped()
    ends[-1] = True
    option = torch.from_numpy(ring.rollout(OPTION)[ends & ~worthless])  # (N, 1)

    def of_ends(obs: Any, rhs: Any, done: Tensor) -> Tensor:
        return excess(obs, rhs, done, option.to(done.device))

    missing = rollout.evaluation.next_values(np.zeros(ends.shape, np.float32), ends, worthless, of_ends)
    rewards = ring.rollout(REW)[..., 0] + gamma * missing
    rollout.insert_single_tensor_slice(REW, torch.from_numpy(rewards[..., None]))
