"""Behaviour cloning: act as the data does, by supervised learning."""

from collections.abc import Mapping
from typing import ClassVar

from pytorchrl.agent.actors.heads import DistributionHead, Policy, in_units_of_environments
from pytorchrl.agent.actors.outputs import Distribution
from pytorchrl.agent.actors.view import View
from pytorchrl.agent.algorithms.needs import Needs
from pytorchrl.agent.algorithms.off_policy import OffPolicyAlgorithm
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.explorers import Exploration, Explorer, drawing_from
from storages.component.hyper_parameters import NonNegative, NonNegativeOrSchedule


class BehaviourCloning(OffPolicyAlgorithm):
    """Pomerleau, "Efficient Training of Artificial Neural Networks for Autonomous Navigation" (1991).

    Args:
        distribution: of the policy's actions, such as ``heads.MixturePolicy()`` where several actions are right.
        lr: learning rate.
        entropy_coef: weight of the policy's entropy, which is raised.
    """

    sources: ClassVar[Mapping[str, Needs]] = {"main": Needs("any", collected=False, sequences=True)}
    unchangeable = OffPolicyAlgorithm.unchangeable | {"distribution"}

    distribution: DistributionHead = Policy()
    lr: NonNegativeOrSchedule = 1e-3
    entropy_coef: NonNegative = 0.0

    def build(self) -> None:
        """A stochastic policy."""
        self.pi = self.actor.make("policy", in_units_of_environments(self.distribution), acts=True)
        self.trained = self.train("policy", self.pi)

    def default_explorer(self) -> Explorer:
        """Draw actions from the policy."""
        return drawing_from(self.distribution)

    def policy(self, view: View, exploration: Exploration) -> Distribution:
        """The distribution of actions."""
        policy: Distribution = self.pi(view)
        return policy

    def losses(self, rows: Rows) -> Losses:
        """The negative log probability of the data's actions."""
        policy = self.pi(rows.now)
        surprise, entropy = -policy.log_prob(rows.action), rows.mean(policy.entropy())
        loss = rows.weighted_mean(surprise) - self.entropy_coef * entropy
        metrics = {"loss": loss.detach(), "entropy": entropy.detach()}
        return Losses({self.trained: loss}, metrics, rows.per_row(surprise.detach()))
