"""What algorithms have in common whose policy and critics each follow the other's target."""

from abc import abstractmethod

from torch import Tensor

from pytorchrl.agent.actors.outputs import ScalarValue
from pytorchrl.agent.algorithms.actor_critic.parts.critics import smallest
from pytorchrl.agent.algorithms.actor_critic.parts.judged_policy import JudgedPolicy
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from storages.component.hyper_parameters import Count


class PolicyAndCritics(JudgedPolicy):
    """A policy that climbs its critics, whose targets are taken from next actions of the policy's target.

    Args:
        policy_delay: updates of the critics between those of the policy and of all targets.
    """

    policy_delay: Count = 1

    @abstractmethod
    def next_action(self, rows: Rows) -> Tensor:
        """(N, *action): the target policy's actions after the rows'."""

    @abstractmethod
    def policy_loss(self, rows: Rows) -> Tensor:
        """(): what the policy's step makes smaller; gradients are left in the policy alone."""

    def build_targets(self) -> None:
        """Copies of policy and critics that follow them."""
        self.target_pi = self.target(self.pi, every="policy_delay")
        self.target_critics = self.target(self.critics, every="policy_delay")

    def next_value(self, rows: Rows) -> ScalarValue:
        """The smallest of the target critics' values of the next actions."""
        return smallest(self.target_critics(rows.next, self.next_action(rows)))

    def policy_losses(self, rows: Rows) -> Losses:
        """The policy's loss in every ``policy_delay``-th update."""
        return Losses({}) if (self.updates + 1) % self.policy_delay else self.delayed_losses(rows)

    def delayed_losses(self, rows: Rows) -> Losses:
        """The policy's loss, in updates that do not leave it out."""
        return Losses({self.train_pi: self.policy_loss(rows)})
