"""TRPO by single paths: natural policy gradients of whole episodes' returns, without a value function."""

from collections.abc import Mapping
from typing import ClassVar

from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.algorithms.needs import Needs
from pytorchrl.agent.algorithms.policy_gradient.parts.natural_gradient import NaturalGradient
from storages.component.hyper_parameters import NonNegative


class TRPOSinglePath(NaturalGradient):
    """Schulman et al., "Trust Region Policy Optimization" (arXiv 1502.05477), section 5.1.

    An action is worth the discounted sum of the rewards that came after it. Without a value function there is nothing
    that the return of an episode could lean on where it was cut, so that the storage has to leave such episodes out.
    """

    sources: ClassVar[Mapping[str, Needs]] = {"main": Needs("rollout", values=False)}

    normalize_advantages = False
    damping: NonNegative = 1e-3

    def make_networks(self) -> tuple[Network, ...]:
        """The policy alone."""
        return (self.make_policy(),)

    def value_functions(self) -> Mapping[str, Network]:
        """None: the storage's advantages are returns."""
        return {}
