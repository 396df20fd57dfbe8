"""What algorithms have in common whose policy learns from critics of its actions."""

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor

from pytorchrl.agent.actors.actor import Head
from pytorchrl.agent.actors.heads import ActionValue
from pytorchrl.agent.actors.view import View
from pytorchrl.agent.algorithms.actor_critic.critics import judge_critics, smallest
from pytorchrl.agent.algorithms.off_policy import OffPolicyAlgorithm
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.explorers import Exploration
from storages.component.hyper_parameters import Count, CountOrZero, NonNegativeOrSchedule, UnitInterval


class PolicyAndCritics(OffPolicyAlgorithm):
    """A policy over bounded actions and critics of it, each with its target.

    Actions are scaled from the bounds of the action space to [-1, 1].

    Args:
        lr_pi: learning rate of the policy.
        lr_q: learning rate of the critics.
        polyak: how much of the targets stays at each of their updates.
        num_critics: critics, the smallest of whose values counts in targets.
        policy_delay: updates of the critics between those of the policy and of all targets.
    """

    actions = "bounded"
    unchangeable = OffPolicyAlgorithm.unchangeable | {"num_critics"}

    lr_pi: NonNegativeOrSchedule = 1e-3
    lr_q: NonNegativeOrSchedule = 1e-3
    polyak: UnitInterval = 0.995
    num_critics: Count = 1
    policy_delay: Count = 1
    test_every: CountOrZero = 5_000

    @abstractmethod
    def policy_head(self) -> Head:
        """What the policy makes of features."""

    @abstractmethod
    def next_action(self, rows: Rows) -> Tensor:
        """(N, *action): the target policy's actions after the rows'."""

    @abstractmethod
    def policy_loss(self, rows: Rows) -> Tensor:
        """(): what the policy's step makes smaller; gradients are left in the policy alone."""

    def build(self) -> None:
        """A policy and critics, each with its target."""
        self.pi = self.actor.make("policy", self.policy_head(), acts=True)
        self.critics = self.actor.make_ensemble("critics", ActionValue(), self.num_critics, codec=self.codec)
        self.train_pi = self.train("policy", self.pi, lr="lr_pi")
        self.train_critics = self.train("critics", self.critics, lr="lr_q")
        self.target_pi = self.target(self.pi, every="policy_delay")
        self.target_critics = self.target(self.critics, every="policy_delay")

    def policy(self, view: View, exploration: Exploration) -> Any:
        """An action for each row, or the distribution of actions."""
        return self.pi(view)

    def losses(self, rows: Rows) -> Losses:
        """The critics' errors, and in every ``policy_delay``-th update the policy's loss.

        The policy learns from the critics as they are before their step.
        """
        with torch.no_grad():
            following = smallest(self.target_critics(rows.next, self.next_action(rows)))
            target = following.backup(rows.reward, rows.discount)
        values = self.critics(rows.now, rows.action)
        critic_loss, errors = judge_critics(values, target, rows)
        losses = {self.train_critics: critic_loss}
        metrics = {"critic_loss": critic_loss.detach(), "q_value": rows.mean(values[0].mean.detach())}
        if (self.updates + 1) % self.policy_delay == 0:
            losses[self.train_pi] = policy_loss = self.policy_loss(rows)
            metrics["policy_loss"] = policy_loss.detach()
        return Losses(losses, metrics, errors)
