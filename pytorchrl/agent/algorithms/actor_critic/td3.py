"""TD3: a deterministic policy and two critics of it, which learn more often."""

import torch
from torch import Tensor

from pytorchrl.agent.actors.heads import ActionValue, DeterministicPolicy
from pytorchrl.agent.actors.outputs import ScalarValue
from pytorchrl.agent.actors.view import View
from pytorchrl.agent.algorithms.actor_critic.critics import errors_of_critics, loss_of_critics, smallest
from pytorchrl.agent.algorithms.off_policy import OffPolicyAlgorithm
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.explorers import Exploration, Explorer, GaussianNoise
from storages.hyper_parameters import Count, CountOrZero, NonNegative, NonNegativeOrSchedule, UnitInterval


class TD3(OffPolicyAlgorithm):
    """Fujimoto et al., "Addressing Function Approximation Error in Actor-Critic Methods" (arXiv 1802.09477).

    Actions are scaled from the bounds of the action space to [-1, 1], and so are the standard deviations of noise.

    Args:
        lr_pi: learning rate of the policy.
        lr_q: learning rate of the critics.
        polyak: how much of the targets stays at each of their updates.
        num_critics: critics, the smallest of whose values counts.
        policy_delay: updates of the critics between those of the policy and of all targets.
        exploration_noise: standard deviation of the noise on actions.
        target_noise: standard deviation of the noise on the target policy's actions.
        target_noise_clip: the largest noise on the target policy's actions.
    """

    actions = "bounded"
    unchangeable = OffPolicyAlgorithm.unchangeable | {"num_critics"}

    lr_pi: NonNegativeOrSchedule = 1e-3
    lr_q: NonNegativeOrSchedule = 1e-3
    polyak: UnitInterval = 0.995
    num_critics: Count = 2
    policy_delay: Count = 2
    exploration_noise: NonNegativeOrSchedule = 0.1
    target_noise: NonNegative = 0.2
    target_noise_clip: NonNegative = 0.5
    test_every: CountOrZero = 5_000

    def build(self) -> None:
        """A policy and critics, each with its target."""
        self.pi = self.actor.make("policy", DeterministicPolicy(), acts=True)
        self.critics = self.actor.make_ensemble("critics", ActionValue(), self.num_critics, codec=self.codec)
        self.train_pi = self.train("policy", self.pi, lr="lr_pi")
        self.train_critics = self.train("critics", self.critics, lr="lr_q")
        self.target_pi = self.target(self.pi, every="policy_delay")
        self.target_critics = self.target(self.critics, every="policy_delay")

    def default_explorer(self) -> Explorer:
        """Gaussian noise on actions."""
        return GaussianNoise(self.exploration_noise)

    def policy(self, view: View, exploration: Exploration) -> Tensor:
        """One action for each row."""
        action: Tensor = self.pi(view)
        return action

    def losses(self, rows: Rows) -> Losses:
        """The critics' errors (algorithm 1), and in every ``policy_delay``-th update the policy's.

        The policy learns from the critics as they are before their step.
        """
        target = self._clipped_double_target(rows)
        values = self.critics(rows.now, rows.action)
        critic_loss = loss_of_critics(values, target, rows)
        losses = {self.train_critics: critic_loss}
        metrics = {"critic_loss": critic_loss.detach(), "q_value": rows.mean(values[0].mean.detach())}
        if (self.updates + 1) % self.policy_delay == 0:
            with self.critics.frozen():
                policy_loss = -rows.mean(self.critics[0](rows.now, self.pi(rows.now)).mean)
            losses[self.train_pi] = policy_loss
            metrics["policy_loss"] = policy_loss.detach()
        return Losses(losses, metrics, errors_of_critics(values, target, rows))

    @torch.no_grad()
    def _clipped_double_target(self, rows: Rows) -> ScalarValue:
        """The smallest target critic's value of the target policy's action, smoothed by noise (section 5.3)."""
        action = self.target_pi(rows.next)
        noise = torch.empty_like(action).normal_(0, self.target_noise, generator=self.generator)
        action = (action + noise.clamp(-self.target_noise_clip, self.target_noise_clip)).clamp(-1, 1)
        return ScalarValue(smallest(self.target_critics(rows.next, action))).backup(rows.reward, rows.discount)
