"""Base class of an actor with critics trained by temporal differences."""

from abc import abstractmethod
from typing import Any, ClassVar

import torch

from pytorchrl.agent.actors.actor import Head
from pytorchrl.agent.actors.heads import ActionValue
from pytorchrl.agent.actors.network import Ensemble
from pytorchrl.agent.actors.outputs import ScalarValue
from pytorchrl.agent.actors.view import View
from pytorchrl.agent.algorithms.action_spaces import ActionKind
from pytorchrl.agent.algorithms.actor_critic.parts.regression import Regression
from pytorchrl.agent.algorithms.off_policy import OffPolicyAlgorithm
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.explorers import Exploration
from storages.component.hyper_parameters import Count, CountOrZero, NonNegativeOrSchedule, UnitInterval


class ActorCritic(OffPolicyAlgorithm):
    """An actor for bounded continuous actions, with critics and target critics.

    Actions are scaled from the bounds of the action space to [-1, 1].

    Args:
        lr_pi: learning rate of the policy.
        lr_q: learning rate of the critics.
        polyak: weight that target networks keep in each of their updates.
        num_critics: number of critics; targets take their minimum.
    """

    actions: ClassVar[ActionKind] = "bounded"
    unchangeable = frozenset({"num_critics"})

    lr_pi: NonNegativeOrSchedule = 1e-3
    lr_q: NonNegativeOrSchedule = 1e-3
    polyak: UnitInterval = 0.995
    num_critics: Count = 1
    test_every: CountOrZero = 5_000

    @abstractmethod
    def policy_head(self) -> Head:
        """Return the head of the policy."""

    @abstractmethod
    def next_value(self, rows: Rows) -> ScalarValue:
        """Return the values of the next states, for the critics' TD targets."""

    @abstractmethod
    def policy_losses(self, rows: Rows) -> Losses:
        """Return the losses of the policy and of networks trained with it; empty in delayed updates."""

    def build(self) -> None:
        """Make policy, critics and target networks."""
        self.pi = self.actor.make("policy", self.policy_head(), acts=True)
        self.critics = self.make_critics()
        self.train_pi = self.train("policy", self.pi, lr="lr_pi")
        self.train_critics = self.train("critics", self.critics, lr="lr_q")
        with_graph = self.overrides(ActorCritic.losses)
        self.regression = Regression(self.critics, self.train_critics, with_graph=with_graph)
        self.build_targets()

    def make_critics(self) -> Ensemble:
        """Return the critics, of observations and actions."""
        return self.actor.make_ensemble("critics", ActionValue(), self.num_critics, codec=self.codec)

    def build_targets(self) -> None:
        """Make the target critics."""
        self.target_critics = self.target(self.critics)

    def policy(self, view: View, exploration: Exploration) -> Any:
        """Return an action for each row, or the distribution of actions."""
        return self.pi(view)

    def losses(self, rows: Rows) -> Losses:
        """Return the critics' loss."""
        with torch.no_grad():
            target = self.next_value(rows).backup(rows.reward, rows.discount)
        fit = self.regression(target, rows)
        metrics = {"critic_loss": fit.loss.detach(), "q_value": rows.mean(fit.values[0].mean)}
        return Losses({self.train_critics: fit.loss}, metrics, fit.errors, gradients=fit.gradients)

    def losses_after_step(self, rows: Rows) -> Losses:
        """Return the policy's loss, with the critics updated before."""
        losses = self.policy_losses(rows)
        if self.train_pi in losses.of:
            losses.metrics["policy_loss"] = losses.of[self.train_pi].detach()
        return losses
