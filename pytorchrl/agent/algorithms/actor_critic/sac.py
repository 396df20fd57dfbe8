"""SAC: a stochastic policy over bounded actions that is rewarded for its entropy, and critics of it."""

import math

import torch
from torch import Tensor

from pytorchrl.agent.actors.heads import ActionValue, SquashedGaussianPolicy
from pytorchrl.agent.actors.outputs import ScalarValue, SquashedGaussian
from pytorchrl.agent.actors.view import View
from pytorchrl.agent.algorithms.actor_critic.critics import errors_of_critics, loss_of_critics, smallest
from pytorchrl.agent.algorithms.off_policy import OffPolicyAlgorithm
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.explorers import Exploration, Explorer, Sample
from storages.hyper_parameters import Count, CountOrZero, NonNegativeOrSchedule, Positive, UnitInterval


class SAC(OffPolicyAlgorithm):
    """Haarnoja et al., "Soft Actor-Critic Algorithms and Applications" (arXiv 1812.05905).

    Entropies are those of actions scaled to (-1, 1), not of the bounds of the Box.

    Args:
        lr_pi: learning rate of the policy.
        lr_q: learning rate of the critics.
        lr_alpha: learning rate of the temperature.
        polyak: how much of the target critics stays at each update.
        num_critics: critics, the smallest of whose values counts.
        initial_alpha: the temperature at first: what a nat of entropy is worth in reward.
        learn_alpha: let the temperature follow the entropy; False keeps the initial one.
        target_entropy: nats that the temperature aims at; None takes the negative number of an action's numbers.
    """

    actions = "bounded"
    unchangeable = OffPolicyAlgorithm.unchangeable | {"num_critics", "initial_alpha"}

    lr_pi: NonNegativeOrSchedule = 3e-4
    lr_q: NonNegativeOrSchedule = 1e-3
    lr_alpha: NonNegativeOrSchedule = 3e-4
    polyak: UnitInterval = 0.995
    num_critics: Count = 2
    initial_alpha: Positive = 1.0
    learn_alpha: bool = True
    target_entropy: float | None = None
    test_every: CountOrZero = 5_000

    def build(self) -> None:
        """A policy, critics with their targets, and the temperature's logarithm."""
        self.pi = self.actor.make("policy", SquashedGaussianPolicy(), acts=True)
        self.critics = self.actor.make_ensemble("critics", ActionValue(), self.num_critics, codec=self.codec)
        self.train_pi = self.train("policy", self.pi, lr="lr_pi")
        self.train_critics = self.train("critics", self.critics, lr="lr_q")
        self.target_critics = self.target(self.critics)
        self.train_alpha = self.variable("log_alpha", math.log(self.initial_alpha), lr="lr_alpha")

    def default_explorer(self) -> Explorer:
        """Draw actions from the policy."""
        return Sample()

    def policy(self, view: View, exploration: Exploration) -> SquashedGaussian:
        """The distribution of actions."""
        policy: SquashedGaussian = self.pi(view)
        return policy

    @property
    def log_alpha(self) -> Tensor:
        """(1,): logarithm of the temperature."""
        return self.training.variables["log_alpha"]

    @property
    def alpha(self) -> float:
        """The temperature: what a nat of entropy is worth in reward."""
        return self.log_alpha.exp().item()

    def losses(self, rows: Rows) -> Losses:
        """Equations 5, 7 and 18 of the paper, all at the same weights."""
        alpha = self.log_alpha.detach().exp()
        target = self._soft_target(rows, alpha)
        values = self.critics(rows.now, rows.action)

        action, log_prob = self.pi(rows.now).sample_with_log_prob(self.generator)
        # The policy's gradient passes through the critics and leaves none behind: half of their work saved.
        with self.critics.frozen():
            q = smallest(self.critics(rows.now, action))
        policy_loss = rows.mean(alpha * log_prob - q)
        critic_loss = loss_of_critics(values, target, rows)

        entropy = -rows.mean(log_prob.detach())
        losses = {self.train_critics: critic_loss, self.train_pi: policy_loss}
        if self.learn_alpha:
            losses[self.train_alpha] = (self.log_alpha * (entropy - self._entropy_aimed_at())).sum()
        metrics = {
            "critic_loss": critic_loss.detach(),
            "policy_loss": policy_loss.detach(),
            "q_value": rows.mean(q.detach()),
            "entropy": entropy,
            "alpha": alpha[0],
        }
        return Losses(losses, metrics, errors_of_critics(values, target, rows))

    @torch.no_grad()
    def _soft_target(self, rows: Rows, alpha: Tensor) -> ScalarValue:
        """Equation 3, the smallest target critic standing for the value."""
        action, log_prob = self.pi(rows.next).sample_with_log_prob(self.generator)
        soft = smallest(self.target_critics(rows.next, action)) - alpha * log_prob
        return ScalarValue(soft).backup(rows.reward, rows.discount)

    def _entropy_aimed_at(self) -> float:
        return -float(self.codec.size) if self.target_entropy is None else self.target_entropy
