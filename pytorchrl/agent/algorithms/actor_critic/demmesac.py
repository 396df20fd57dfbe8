"""DEMMESAC: MMESAC with separate critics and a separate policy for exploration."""

import torch

from pytorchrl.agent.actors.heads import StateValue
from pytorchrl.agent.actors.outputs import ScalarValue
from pytorchrl.agent.algorithms.actor_critic.mmesac import MMESAC
from pytorchrl.agent.algorithms.actor_critic.parts.critics import Expected, critic_loss_of
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows


class DEMMESAC(MMESAC):
    """Disentangled max-min entropy SAC, by Han and Sung (arXiv 2106.10517).

    Critics of rewards value the policy that acts, without its entropy. Critics of exploration, which have no rewards,
    value an exploration policy, which never acts: its state values lose ``alpha_q`` times its entropy. The policy that
    acts maximises the minimum of each ensemble, and its entropy; in the authors' code, it is the first critic of each.
    """

    def build_targets(self) -> None:
        """Make the state values of rewards, all networks of exploration, and the targets of both state values."""
        super().build_targets()
        policy, layers = self.policy_head(), self.policy_layers()
        self.exploration_pi = self.actor.make("exploration_policy", policy, layers=layers)
        self.exploration_critics = self.make_critics("exploration_critics")
        self.exploration_value = self.actor.make("exploration_value", StateValue())
        self.train_exploration_pi = self.train("exploration_policy", self.exploration_pi, lr="lr_pi")
        self.train_exploration_critics = self.train("exploration_critics", self.exploration_critics, lr="lr_q")
        self.train_exploration_value = self.train("exploration_value", self.exploration_value, lr="lr_value")
        self.target_exploration_value = self.target(self.exploration_value)

    def losses(self, rows: Rows) -> Losses:
        """Return the losses of both ensembles of critics; errors are those of the critics of rewards."""
        losses = super().losses(rows)
        with torch.no_grad():
            following = ScalarValue(self.target_exploration_value(rows.next))
            target = following.backup(torch.zeros_like(rows.reward), rows.discount)
        loss, _ = critic_loss_of(self.exploration_critics(rows.now, rows.action), target, rows)
        losses.of = {**losses.of, self.train_exploration_critics: loss}
        losses.metrics["exploration_critic_loss"] = loss.detach()
        return losses

    def losses_after_step(self, rows: Rows) -> Losses | None:
        """Return the losses of both policies and both state values in every ``policy_delay``-th update, else None."""
        if (self.updates + 1) % self.policy_delay:
            return None
        action, log_prob = self.pi(rows.now).sample_with_log_prob(self.generator)
        explored, exploring_log_prob = self.exploration_pi(rows.now).sample_with_log_prob(self.generator)
        with self.critics.frozen(), self.exploration_critics.frozen():
            value = self.value_for_policy(self.critics(rows.now, action))
            novelty = self.value_for_policy(self.exploration_critics(rows.now, action))
            exploring = Expected(
                self.value_for_policy(self.exploration_critics(rows.now, explored)), -exploring_log_prob
            )
        policy_loss = rows.mean(log_prob - value.mean - novelty.mean)
        losses = {
            self.train_pi: policy_loss,
            self.train_exploration_pi: -rows.mean(exploring.value.mean + exploring.entropy),
            self.train_value: self.value_loss(self.value, value.mean, rows),
            self.train_exploration_value: self.value_loss(
                self.exploration_value, self.state_value(rows, exploring), rows
            ),
        }
        metrics = {"policy_loss": policy_loss, "q_value": rows.mean(value.mean), "entropy": -rows.mean(log_prob)}
        return Losses(losses, {name: metric.detach() for name, metric in metrics.items()})
