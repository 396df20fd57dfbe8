"""Options: which one acts in each environment, their policies, and the values that rollouts bootstrap from."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self, cast

import numpy as np
import torch
from torch import Tensor, nn

from pytorchrl.agent.actors.action_mask import Restrictable
from pytorchrl.agent.actors.actor import Actor, Head
from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.actors.outputs import Distribution
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


class OptionPolicies:
    """The distributions of actions of all options.

    Args:
        policies: of each option, for the same B observations.
    """

    def __init__(self, policies: Sequence[Distribution]) -> None:
        self._policies = policies

    def of(self, option: Tensor) -> Distribution:
        """Return the distribution of the option of each row, (B, 1) int64."""
        return _OfOption(self._policies, option)

    def allowing(self, allowed: Tensor) -> "OptionPolicies":
        """Return the policies given that the action is one of those allowed, (B, actions) bool."""
        return OptionPolicies([cast("Restrictable", policy).allowing(allowed) for policy in self._policies])


@dataclass(frozen=True)
class PolicyPerOption:
    """A policy for each option, :class:`OptionPolicies`.

    Args:
        policy: head of one.
        count: number of options.
    """

    policy: Head
    count: int

    def build(self, features: int, actor: Actor) -> nn.Module:
        """Return the module from features (N, features) to the output."""
        return _Policies(self.policy.build(features, actor) for _ in range(self.count))


class _Policies(nn.Module):
    def __init__(self, policies: Iterable[nn.Module]) -> None:
        super().__init__()
        self.policies = nn.ModuleList(policies)

    def forward(self, features: Tensor) -> OptionPolicies:
        return OptionPolicies([policy(features) for policy in self.policies])


class _OfOption(Distribution):
    """One of several distributions in each row.

    Args:
        policies: of each option.
        option: (B, 1) int64.
    """

    def __init__(self, policies: Sequence[Distribution], option: Tensor) -> None:
        self._policies, self._option = policies, option

    @property
    def parameters(self) -> tuple[Tensor, ...]:
        return tuple(parameter for policy in self._policies for parameter in policy.parameters)

    def sample(self, generator: torch.Generator, n: int | None = None) -> Tensor:
        # Each option draws in all rows, so that draws do not depend on which options are in use.
        samples = [policy.sample(generator, n) for policy in self._policies]
        return self._chosen(samples, samples[0].ndim - (1 if n is None else 2))

    def log_prob(self, action: Tensor) -> Tensor:
        return self._chosen([policy.log_prob(action) for policy in self._policies])

    def entropy(self) -> Tensor:
        return self._chosen([policy.entropy() for policy in self._policies])

    def mode(self) -> Tensor:
        modes = [policy.mode() for policy in self._policies]
        return self._chosen(modes, modes[0].ndim - 1)

    def kl(self, other: Self) -> Tensor:
        return self._chosen([own.kl(their) for own, their in zip(self._policies, other._policies, strict=True)])

    def detach(self) -> Self:
        return type(self)([policy.detach() for policy in self._policies], self._option)

    def _chosen(self, of_options: Sequence[Tensor], axes: int = 1) -> Tensor:
        """Return the rows (..., B, *shape) of each row's option; the shape has ``axes`` axes."""
        option = self._option.view(-1, *(1,) * axes)
        chosen, *others = of_options
        for number, rows in enumerate(others, start=1):
            chosen = torch.where(option == number, rows, chosen)
        return chosen
