"""SACWithValue: the original SAC, with a state-value network and a fixed temperature."""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from pytorchrl.agent.actors.heads import (
    ActionValue,
    DistributionHead,
    SquashedGaussianPolicy,
    StateValue,
    check_bounded,
)
from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.actors.outputs import ScalarValue
from pytorchrl.agent.actors.view import View
from pytorchrl.agent.algorithms.actor_critic.critics import loss_of_critics, smallest
from pytorchrl.agent.algorithms.off_policy import OffPolicyAlgorithm
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.explorers import Exploration, Explorer, explorer_for
from storages.component.hyper_parameters import Count, CountOrZero, NonNegativeOrSchedule, Positive, UnitInterval


class SACWithValue(OffPolicyAlgorithm):
    """Haarnoja et al., "Soft Actor-Critic: Off-Policy Maximum Entropy Deep RL" (arXiv 1801.01290), equations 5 to 13.

    The temperature is 1; the reward scale takes its place. Entropies are those of actions scaled to (-1, 1).

    Args:
        distribution: of the policy's actions, within their bounds and reparameterised.
        lr_pi: learning rate of the policy.
        lr_q: learning rate of the critics.
        lr_value: learning rate of the state-value network.
        polyak: weight that target networks keep in each of their updates.
        target_update_interval: updates between updates of the target networks.
        num_critics: number of critics, with separate weights.
        policy_delay: critic updates per update of the policy and of state values.
        reward_scale: factor of rewards in targets; stored rewards do not change.
    """

    actions = "bounded"
    unchangeable = frozenset({"distribution", "num_critics"})
    alpha: ClassVar[float] = 1.0
    """The temperature, in scaled reward per nat of entropy."""
    lr_alpha: ClassVar[float] = 0.0

    distribution: DistributionHead = SquashedGaussianPolicy()
    lr_pi: NonNegativeOrSchedule = 3e-4
    lr_q: NonNegativeOrSchedule = 3e-4
    lr_value: NonNegativeOrSchedule = 3e-4
    polyak: UnitInterval = 0.995
    target_update_interval: Count = 1
    num_critics: Count = 2
    policy_delay: Count = 1
    reward_scale: Positive = 5.0
    test_every: CountOrZero = 5_000

    @classmethod
    def check_hyper_parameters(cls, hyper_parameters: Mapping[str, Any]) -> None:
        """Check that the distribution is over bounded actions."""
        super().check_hyper_parameters(hyper_parameters)
        check_bounded(hyper_parameters["distribution"], cls.__name__)

    def build(self) -> None:
        """Make policy, critics, state values and their target."""
        self.pi = self.actor.make("policy", self.distribution, acts=True)
        self.critics = self.actor.make_ensemble("critics", ActionValue(), self.num_critics, codec=self.codec)
        self.value = self.actor.make("value", StateValue())
        self.train_pi = self.train("policy", self.pi, lr="lr_pi")
        self.train_critics = self.train("critics", self.critics, lr="lr_q")
        self.train_value = self.train("value", self.value, lr="lr_value")
        self.target_state_value = self.target(self.value, every="target_update_interval")
        # Never trained: checkpoints have held a temperature of 1 from the first on.
        self.variable("log_alpha", 0.0, lr="lr_alpha")

    def losses(self, rows: Rows) -> Losses:
        """Return the loss of the critics against scaled rewards plus values of the next states (equations 7 and 8)."""
        with torch.no_grad():
            next_value = ScalarValue(self.target_state_value(rows.next))
            target = next_value.backup(self.reward_scale * rows.reward, rows.discount)
        loss, errors = loss_of_critics(self.critics(rows.now, rows.action), target, rows)
        metrics = {"critic_loss": loss.detach(), "alpha": loss.new_full((), self.alpha)}
        return Losses({self.train_critics: loss}, metrics, errors)

    def losses_after_step(self, rows: Rows) -> Losses | None:
        """Return the losses of policy (equation 12) and state values (equation 5), with the updated critics."""
        if (self.updates + 1) % self.policy_delay:
            return None
        action, log_prob = self.pi(rows.now).sample_with_log_prob(self.generator)
        with self.critics.frozen():
            value = smallest(self.critics(rows.now, action)).mean
        policy_loss = rows.mean(log_prob - value)
        value_loss = self.value_loss(self.value, self.state_value(rows, value, log_prob), rows)
        metrics = {"policy_loss": policy_loss, "q_value": rows.mean(value), "entropy": -rows.mean(log_prob)}
        losses = {self.train_pi: policy_loss, self.train_value: value_loss}
        return Losses(losses, {name: metric.detach() for name, metric in metrics.items()})

    def state_value(self, rows: Rows, value: Tensor, log_prob: Tensor) -> Tensor:
        """Return the targets (N, 1) of state values: soft values of the policy's action (equation 3).

        Args:
            rows: of a batch.
            value: (N, 1), of the policy's action, by the critics.
            log_prob: (N, 1), of that action.
        """
        return value - log_prob

    def value_loss(self, network: Network, target: Tensor, rows: Rows) -> Tensor:
        """Return half of the mean squared difference () of a state-value network from targets (N, 1)."""
        value = ScalarValue(network(rows.now), huber_threshold=None)
        return value.weighted_loss(rows.weight, ScalarValue(target.detach()))[0]

    def policy(self, view: View, exploration: Exploration) -> Any:
        """Return the distribution of actions."""
        return self.pi(view)

    def default_explorer(self) -> Explorer:
        """Return sampling from the policy."""
        return explorer_for(self.distribution)
