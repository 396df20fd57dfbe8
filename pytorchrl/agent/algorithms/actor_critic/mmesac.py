"""Max-min entropy reinforcement learning, on SAC with a state-value network.

MMESAC: SAC that seeks states where its policy has had little entropy so far, and raises the entropy there.
DEMMESAC: MMESAC with separate critics and a separate policy for exploration.
"""

import torch
from torch import Tensor

from pytorchrl.agent.actors.heads import ActionValue, StateValue
from pytorchrl.agent.actors.outputs import ScalarValue
from pytorchrl.agent.algorithms.actor_critic.critics import loss_of_critics, smallest
from pytorchrl.agent.algorithms.actor_critic.sac_with_value import SACWithValue
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from storages.component.hyper_parameters import NonNegative


class MMESAC(SACWithValue):
    """Han and Sung, "A Max-Min Entropy Framework for Reinforcement Learning" (arXiv 2106.10517).

    As in the authors' code, the entropy that state values lose is relative to the largest of the batch, and the weight
    of the policy's entropy (alpha_pi) is the inverse of ``reward_scale``.

    Args:
        alpha_q: weight of the entropy that state values lose (alpha_Q), in scaled reward per nat.
    """

    alpha_q: NonNegative = 1.0

    def state_value(self, rows: Rows, value: Tensor, log_prob: Tensor) -> Tensor:
        """Return the targets (N, 1) of state values: the critics' values minus the policy's weighted entropy."""
        # Values of states with the largest entropy are those of the critics alone, so that the others gain.
        entropy = -log_prob - rows.maximum(-log_prob).clamp(min=0)
        return value - self.alpha_q * entropy


class DEMMESAC(MMESAC):
    """Disentangled max-min entropy SAC, by Han and Sung (arXiv 2106.10517).

    Critics of rewards value the policy that acts, without its entropy. Critics of exploration, which have no rewards,
    value an exploration policy, which never acts: its state values lose ``alpha_q`` times its entropy. The policy that
    acts maximises the minimum of each ensemble, and its entropy; in the authors' code, it is the first critic of each.
    """

    def build(self) -> None:
        """Make the networks of rewards, and the same networks of exploration."""
        super().build()
        make, number = self.actor.make, self.num_critics
        self.exploration_pi = make("exploration_policy", self.distribution)
        critics = self.actor.make_ensemble("exploration_critics", ActionValue(), number, codec=self.codec)
        self.exploration_critics, self.exploration_value = critics, make("exploration_value", StateValue())
        self.train_exploration_pi = self.train("exploration_policy", self.exploration_pi, lr="lr_pi")
        self.train_exploration_critics = self.train("exploration_critics", critics, lr="lr_q")
        self.train_exploration_value = self.train("exploration_value", self.exploration_value, lr="lr_value")
        self.target_exploration_value = self.target(self.exploration_value, every="target_update_interval")

    def losses(self, rows: Rows) -> Losses:
        """Return the losses of both ensembles of critics; errors are those of the critics of rewards."""
        losses = super().losses(rows)
        with torch.no_grad():
            next_value = ScalarValue(self.target_exploration_value(rows.next))
            target = next_value.backup(torch.zeros_like(rows.reward), rows.discount)
        loss, _ = loss_of_critics(self.exploration_critics(rows.now, rows.action), target, rows)
        metrics = {**losses.metrics, "exploration_critic_loss": loss.detach()}
        return Losses({**losses.of, self.train_exploration_critics: loss}, metrics, losses.errors)

    def losses_after_step(self, rows: Rows) -> Losses | None:
        """Return the losses of both policies and both state values in every ``policy_delay``-th update, else None."""
        if (self.updates + 1) % self.policy_delay:
            return None
        action, log_prob = self.pi(rows.now).sample_with_log_prob(self.generator)
        explored, exploring_log_prob = self.exploration_pi(rows.now).sample_with_log_prob(self.generator)
        with self.critics.frozen(), self.exploration_critics.frozen():
            value = smallest(self.critics(rows.now, action)).mean
            novelty = smallest(self.exploration_critics(rows.now, action)).mean
            exploring = smallest(self.exploration_critics(rows.now, explored)).mean
        policy_loss = rows.mean(log_prob - value - novelty)
        exploring_target = self.state_value(rows, exploring, exploring_log_prob)
        losses = {
            self.train_pi: policy_loss,
            self.train_exploration_pi: rows.mean(exploring_log_prob - exploring),
            self.train_value: self.value_loss(self.value, value, rows),
            self.train_exploration_value: self.value_loss(self.exploration_value, exploring_target, rows),
        }
        metrics = {"policy_loss": policy_loss, "q_value": rows.mean(value), "entropy": -rows.mean(log_prob)}
        return Losses(losses, {name: metric.detach() for name, metric in metrics.items()})
