"""Single-path TRPO: natural policy gradients on Monte Carlo returns, without a value function."""

from collections.abc import Mapping
from typing import ClassVar

from pytorchrl.agent.actors.heads import in_units_of_environments
from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.algorithms.needs import Needs
from pytorchrl.agent.algorithms.policy_gradient.natural_gradient import refuse_random_outputs
from pytorchrl.agent.algorithms.policy_gradient.trpo import TRPO
from pytorchrl.agent.optimizers import FlatParameters
from storages.component.hyper_parameters import NonNegative


class TRPOSinglePath(TRPO):
    """Schulman et al., "Trust Region Policy Optimization" (arXiv 1502.05477), section 5.1.

    Action values are Monte Carlo returns. Without a value function, truncated episodes cannot bootstrap, so the storage
    must drop them.
    """

    sources: ClassVar[Mapping[str, Needs]] = {"main": Needs("rollout", values=False)}
    unused: ClassVar[Mapping[str, str]] = {**TRPO.unused, "losses": "override surrogate"}

    normalize_advantages = False
    damping: NonNegative = 1e-3
    # There is no value function to fit.
    lr_value: ClassVar[float] = 0.0  # type: ignore[misc]
    value_epochs: ClassVar[int] = 0  # type: ignore[misc]
    value_mini_batches: ClassVar[int] = 1  # type: ignore[misc]

    def build(self) -> None:
        """Make the policy, which has no optimiser.

        Raises:
            ValueError: outputs of the actor's networks are random, or depend on the other rows of a batch.
        """
        refuse_random_outputs(self.actor, type(self).__name__)
        self.make_networks()
        self._weights = FlatParameters(p for p in self.pi.parameters() if p.requires_grad)

    def make_networks(self) -> tuple[Network, ...]:
        """Make the policy only."""
        self.pi = self.actor.make("policy", in_units_of_environments(self.distribution), acts=True)
        return (self.pi,)

    def value_functions(self) -> Mapping[str, Network]:
        """Return none: the storage's advantages are returns."""
        return {}
