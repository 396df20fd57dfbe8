"""Base class of soft actor-critics for all action spaces."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pytorchrl.agent.actors.actor import Head
from pytorchrl.agent.actors.layers.mlp import Layers
from pytorchrl.agent.actors.network import Ensemble
from pytorchrl.agent.actors.outputs import Distribution, Value
from pytorchrl.agent.actors.view import View
from pytorchrl.agent.algorithms.actor_critic.parts.critics import Expected, critic_loss_of
from pytorchrl.agent.algorithms.actor_critic.parts.maximum_entropy import MaximumEntropy
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.algorithms.training import Trained
from pytorchrl.agent.explorers import Exploration, Explorer, Sample
from storages.component.hyper_parameters import Count, CountOrZero, NonNegativeOrSchedule, UnitInterval


class SoftActorCritic(MaximumEntropy):
    """A stochastic policy with an entropy bonus, and an ensemble of critics.

    Args:
        lr_pi: learning rate of the policy.
        lr_q: learning rate of the critics.
        polyak: weight that target networks keep in each of their updates.
        num_critics: number of critics, with separate weights.
        policy_delay: critic updates per update of the policy and of the temperature or state values.
    """

    unchangeable = frozenset({"num_critics"})

    lr_pi: NonNegativeOrSchedule = 3e-4
    lr_q: NonNegativeOrSchedule = 1e-3
    polyak: UnitInterval = 0.995
    num_critics: Count = 2
    policy_delay: Count = 1
    test_every: CountOrZero = 5_000

    @abstractmethod
    def policy_head(self) -> Head:
        """Return the head of the policy."""

    @abstractmethod
    def make_critics(self) -> Ensemble:
        """Make the Q-networks."""

    @abstractmethod
    def critic_outputs(self, rows: Rows) -> Sequence[Any]:
        """Return each critic's output for the rows, with gradients."""

    @abstractmethod
    def values_of_taken(self, outputs: Sequence[Any], rows: Rows) -> Sequence[Value]:
        """Return the values of the actions taken, given the critics' outputs."""

    @abstractmethod
    def expect(self, rows: Rows) -> Expected:
        """Return the policy's expected value and entropy, with gradients in the policy only."""

    @abstractmethod
    def expect_next(self, rows: Rows) -> Expected:
        """Return the policy's expected value and entropy in the next states, by the target critics."""

    def build(self) -> None:
        """Make policy, critics, target networks and log-temperature."""
        self.pi = self.actor.make("policy", self.policy_head(), acts=True, layers=self.policy_layers())
        self.critics = self.make_critics()
        self.train_pi = self.train("policy", self.pi, lr="lr_pi")
        self.train_critics = self.train("critics", self.critics, lr="lr_q")
        self.build_targets()
        super().build()

    def policy_layers(self) -> Layers:
        """Return additional layers of the policy, such as batch normalisation."""
        return {}

    def build_targets(self) -> None:
        """Make the target critics."""
        self.target_critics = self.target(self.critics)

    def default_explorer(self) -> Explorer:
        """Return sampling from the policy."""
        return Sample()

    def policy(self, view: View, exploration: Exploration) -> Distribution:
        """Return the distribution of actions."""
        policy: Distribution = self.pi(view)
        return policy

    def losses(self, rows: Rows) -> Losses:
        """Return the critics' losses."""
        alpha = self.log_alpha.detach().exp()
        outputs, target = self.evaluate_with_target(rows, alpha)
        losses = self.critic_losses(outputs, target, rows)
        losses.metrics["alpha"] = alpha[0]
        return losses

    def losses_after_step(self, rows: Rows) -> Losses | None:
        """Return the losses of policy and temperature in every ``policy_delay``-th update, else None."""
        if (self.updates + 1) % self.policy_delay:
            return None
        alpha, now = self.log_alpha.detach().exp(), self.expect(rows)
        value = now.value.mean
        policy_loss, entropy = -rows.mean(value + alpha * now.entropy), rows.mean(now.entropy.detach())
        losses = {self.train_pi: policy_loss, **self.losses_beside(rows, now, entropy)}
        q_value = rows.mean(value.detach())
        return Losses(losses, {"policy_loss": policy_loss.detach(), "q_value": q_value, "entropy": entropy})

    def critic_losses(self, outputs: Sequence[Any], target: Value, rows: Rows) -> Losses:
        """Return the critics' loss, given their outputs."""
        loss, errors = critic_loss_of(self.values_of_taken(outputs, rows), target, rows)
        return Losses({self.train_critics: loss}, {"critic_loss": loss.detach()}, errors)

    def evaluate_with_target(self, rows: Rows, alpha: Tensor) -> tuple[Sequence[Any], Value]:
        """Return each critic's output for the rows, and the TD target."""
        with torch.no_grad():
            target = self.target_value(rows, alpha)
        return self.critic_outputs(rows), target

    def target_value(self, rows: Rows, alpha: Tensor) -> Value:
        """Return rewards plus discounted soft values of the next states."""
        return self.backed_up(rows, self.expect_next(rows), alpha)

    def backed_up(self, rows: Rows, after: Expected, alpha: Tensor) -> Value:
        """Return rewards plus discounted soft values, given the policy's value and entropy in the next states."""
        bonus = alpha * after.entropy
        return after.value.backup(torch.addcmul(rows.reward, rows.discount, bonus), rows.discount)

    def losses_beside(self, rows: Rows, now: Expected, entropy: Tensor) -> dict[Trained, Tensor]:
        """Return further losses of the policy's update: the temperature's.

        Args:
            rows: of a batch.
            now: the policy's value and entropy in each row, with gradients.
            entropy: (), mean entropy of the policy, without a gradient.
        """
        return self.temperature_loss(entropy, rows)
