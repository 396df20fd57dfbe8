"""SAC: off-policy maximum-entropy actor-critic for continuous actions."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from pytorchrl.agent.actors.actor import Head
from pytorchrl.agent.actors.heads import ActionValue, DistributionHead, SquashedGaussianPolicy, check_bounded
from pytorchrl.agent.actors.network import Ensemble
from pytorchrl.agent.actors.outputs import Value
from pytorchrl.agent.actors.view import View
from pytorchrl.agent.algorithms.actor_critic.critics import loss_of_critics, smallest
from pytorchrl.agent.algorithms.checks import ActionKind
from pytorchrl.agent.algorithms.off_policy import OffPolicyAlgorithm
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.explorers import Exploration, Explorer, explorer_for
from storages.component.hyper_parameters import Count, CountOrZero, NonNegativeOrSchedule, Positive, UnitInterval


class SAC(OffPolicyAlgorithm):
    """Haarnoja et al., "Soft Actor-Critic Algorithms and Applications" (arXiv 1812.05905), equations 5, 7 and 18.

    Entropies are those of actions scaled to (-1, 1), not of the bounds of the Box.

    Args:
        distribution: of the policy's actions, within their bounds and reparameterised.
        lr_pi: learning rate of the policy.
        lr_q: learning rate of the critics.
        lr_alpha: learning rate of the temperature.
        polyak: weight that target networks keep in each of their updates.
        target_update_interval: updates between updates of the target networks.
        num_critics: number of critics, with separate weights.
        policy_delay: critic updates per update of the policy and of the temperature.
        initial_alpha: initial temperature, in reward per nat of entropy.
        learn_alpha: tune the temperature to a target entropy; False keeps the initial one.
        target_entropy: entropy that the temperature is tuned to, in nats; None takes minus the action's dimension.
    """

    actions: ClassVar[ActionKind] = "bounded"
    unchangeable = frozenset({"distribution", "num_critics", "initial_alpha"})

    distribution: DistributionHead = SquashedGaussianPolicy()
    lr_pi: NonNegativeOrSchedule = 3e-4
    lr_q: NonNegativeOrSchedule = 1e-3
    lr_alpha: NonNegativeOrSchedule = 3e-4
    polyak: UnitInterval = 0.995
    target_update_interval: Count = 1
    num_critics: Count = 2
    policy_delay: Count = 1
    initial_alpha: Positive = 1.0
    learn_alpha: bool = True
    target_entropy: float | None = None
    test_every: CountOrZero = 5_000

    @classmethod
    def check_hyper_parameters(cls, hyper_parameters: Mapping[str, Any]) -> None:
        """Check that the distribution is over bounded actions."""
        super().check_hyper_parameters(hyper_parameters)
        check_bounded(hyper_parameters["distribution"], cls.__name__)

    def build(self) -> None:
        """Make policy, critics, target critics and log-temperature."""
        self.pi = self.actor.make("policy", self.distribution, acts=True)
        self.critics = self.make_critics()
        self.train_pi = self.train("policy", self.pi, lr="lr_pi")
        self.train_critics = self.train("critics", self.critics, lr="lr_q")
        self.target_critics = self.target(self.critics, every="target_update_interval")
        self.train_alpha = self.variable("log_alpha", math.log(self.initial_alpha), lr="lr_alpha")

    def losses(self, rows: Rows) -> Losses:
        """Return the loss of the critics against soft values of the next states (equation 5)."""
        alpha = self.log_alpha.detach().exp()
        with torch.no_grad():
            target = self.target_value(rows, alpha)
        values = self.critics(rows.now, rows.action)
        loss, errors = loss_of_critics(values, target, rows)
        return Losses({self.train_critics: loss}, {"critic_loss": loss.detach(), "alpha": alpha[0]}, errors)

    def target_value(self, rows: Rows, alpha: Tensor) -> Value:
        """Return rewards plus discounted soft values of one next action (equations 2 and 3)."""
        next_action, log_prob = self.pi(rows.next).sample_with_log_prob(self.generator)
        value, discount = self.value_for_target(self.target_critics(rows.next, next_action)), rows.discount
        return value.backup(rows.reward - alpha * discount * log_prob, discount)

    def losses_after_step(self, rows: Rows) -> Losses | None:
        """Return the losses of policy (equation 7) and temperature (equation 18), with the updated critics."""
        if (self.updates + 1) % self.policy_delay:
            return None
        log_alpha = self.log_alpha
        alpha = log_alpha.detach().exp()
        action, log_prob = self.pi(rows.now).sample_with_log_prob(self.generator)
        # Gradients pass through the critics without computing theirs, which halves the backward pass.
        with self.critics.frozen():
            value = self.value_for_policy(self.critics(rows.now, action)).mean
        policy_loss, entropy = rows.mean(alpha * log_prob - value), -rows.mean(log_prob.detach())
        losses = {self.train_pi: policy_loss}
        if self.learn_alpha:
            # The loss is of the log-temperature, which keeps the temperature positive.
            target = -float(self.codec.size) if self.target_entropy is None else self.target_entropy
            losses[self.train_alpha] = (log_alpha * (entropy - target)).sum()
        metrics = {"policy_loss": policy_loss.detach(), "q_value": rows.mean(value.detach()), "entropy": entropy}
        return Losses(losses, metrics)

    def value_for_target(self, values: Sequence[Value]) -> Value:
        """Return the value that targets bootstrap on: the minimum of the critics."""
        return smallest(values)

    def value_for_policy(self, values: Sequence[Value]) -> Value:
        """Return the value that the policy maximises: the minimum of the critics."""
        return smallest(values)

    def make_critics(self) -> Ensemble:
        """Make the critics, of observations and actions."""
        return self.actor.make_ensemble("critics", self.critic_head(), self.num_critics, codec=self.codec)

    def critic_head(self) -> Head:
        """Return the critics' head: the expected return."""
        return ActionValue()

    def policy(self, view: View, exploration: Exploration) -> Any:
        """Return the distribution of actions."""
        return self.pi(view)

    def default_explorer(self) -> Explorer:
        """Return sampling from the policy."""
        return explorer_for(self.distribution)

    @property
    def log_alpha(self) -> Tensor:
        """(1,): log-temperature."""
        return self.training.variables["log_alpha"]

    @property
    def alpha(self) -> float:
        """The temperature, in reward per nat of entropy."""
        return self.log_alpha.exp().item()
