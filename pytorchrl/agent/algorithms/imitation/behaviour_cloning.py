"""Behaviour cloning: supervised learning of the data's actions."""

from collections.abc import Mapping
from typing import ClassVar

from pytorchrl.agent.actors.heads import DistributionHead, Policy, in_units_of_environments
from pytorchrl.agent.actors.outputs import Distribution
from pytorchrl.agent.actors.view import View
from pytorchrl.agent.algorithms.needs import Needs
from pytorchrl.agent.algorithms.off_policy import OffPolicyAlgorithm
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.explorers import Exploration, Explorer, explorer_for
from storages.component.hyper_parameters import NonNegative, NonNegativeOrSchedule


class BehaviourCloning(OffPolicyAlgorithm):
    """Pomerleau, "Efficient Training of Artificial Neural Networks for Autonomous Navigation" (1991).

    Args:
        distribution: of the policy's actions, such as ``heads.MixturePolicy()`` for multimodal data.
        lr: learning rate.
        entropy_coef: weight of the entropy bonus.
    """

    sources: ClassVar[Mapping[str, Needs]] = {"main": Needs("any", collected=False, sequences=True)}
    unchangeable = frozenset({"distribution"})

    distribution: DistributionHead = Policy()
    lr: NonNegativeOrSchedule = 1e-3
    entropy_coef: NonNegative = 0.0

    def build(self) -> None:
        """Make the stochastic policy."""
        self.pi = self.actor.make("policy", in_units_of_environments(self.distribution), acts=True)
        self.trained = self.train("policy", self.pi)

    def losses(self, rows: Rows) -> Losses:
        """Return the negative log-likelihood of the data's actions, minus the entropy bonus."""
        policy = self.policy(rows.now, None)
        surprise, entropy = -policy.log_prob(rows.action), rows.mean(policy.entropy())
        loss = rows.weighted_mean(surprise) - self.entropy_coef * entropy
        metrics = {"loss": loss.detach(), "entropy": entropy.detach()}
        return Losses({self.trained: loss}, metrics, rows.per_row(surprise.detach()))

    def policy(self, view: View, exploration: Exploration | None) -> Distribution:
        """Return the distribution of actions, for acting and, without an exploration, for losses."""
        policy: Distribution = self.pi(view)
        return policy

    def default_explorer(self) -> Explorer:
        """Return sampling from the policy."""
        return explorer_for(self.distribution)
