"""Policies of several options on the same features, one of which acts in each row."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self, cast

import torch
from torch import Tensor, nn

from pytorchrl.agent.actors.action_mask import Restrictable
from pytorchrl.agent.actors.actor import Actor, Head
from pytorchrl.agent.actors.outputs import Distribution


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
