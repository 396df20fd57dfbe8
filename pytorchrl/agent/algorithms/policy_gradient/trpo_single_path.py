"""Single-path TRPO: natural policy gradients on Monte Carlo returns, without a value function."""

from collections.abc import Mapping
from typing import ClassVar

from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.algorithms.needs import Needs
from pytorchrl.agent.algorithms.policy_gradient.parts.natural_gradient import NaturalGradient
from storages.component.hyper_parameters import NonNegative


class TRPOSinglePath(NaturalGradient):
    """Schulman et al., "Trust Region Policy Optimization" (arXiv 1502.05477), section 5.1.

    Action values are Monte Carlo returns. Without a value function, truncated episodes cannot bootstrap, so the storage
    must drop them.
    """

    sources: ClassVar[Mapping[str, Needs]] = {"main": Needs("rollout", values=False)}

    normalize_advantages = False
    damping: NonNegative = 1e-3

    def make_networks(self) -> tuple[Network, ...]:
        """Make the policy only."""
        return (self.make_policy(),)

    def value_functions(self) -> Mapping[str, Network]:
        """Return none: the storage's advantages are returns."""
        return {}
