"""Base class of actor-critics with a target policy and target critics."""

from abc import abstractmethod

from torch import Tensor

from pytorchrl.agent.actors.outputs import ScalarValue
from pytorchrl.agent.algorithms.actor_critic.parts.actor_critic import ActorCritic
from pytorchrl.agent.algorithms.actor_critic.parts.critics import smallest
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from storages.component.hyper_parameters import Count


class TargetActorCritic(ActorCritic):
    """An actor that maximises its critics' values; the critics bootstrap on actions of the target policy.

    Args:
        policy_delay: critic updates per update of the policy and of all target networks.
    """

    policy_delay: Count = 1

    @abstractmethod
    def next_action(self, rows: Rows) -> Tensor:
        """Return the target policy's actions (N, *action) in the next states."""

    @abstractmethod
    def policy_loss(self, rows: Rows) -> Tensor:
        """Return the policy's loss (), with gradients in the policy only."""

    def build_targets(self) -> None:
        """Make the target policy and the target critics."""
        self.target_pi = self.target(self.pi, every="policy_delay")
        self.target_critics = self.target(self.critics, every="policy_delay")

    def next_value(self, rows: Rows) -> ScalarValue:
        """Return the minimum of the target critics' values of the next actions."""
        return smallest(self.target_critics(rows.next, self.next_action(rows)))

    def policy_losses(self, rows: Rows) -> Losses:
        """Return the policy's loss in every ``policy_delay``-th update, else no loss."""
        return Losses({}) if (self.updates + 1) % self.policy_delay else self.delayed_losses(rows)

    def delayed_losses(self, rows: Rows) -> Losses:
        """Return the policy's loss, in updates of the policy."""
        return Losses({self.train_pi: self.policy_loss(rows)})
