"""Offline DQN, kept close to the data.

DiscreteBCQ: DQN restricted to actions that are likely in the data.
DiscreteCQL: DQN with a penalty on the Q-values of actions outside the data.
"""

from typing import ClassVar

import torch

from pytorchrl.agent.actors.heads import Policy
from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.actors.outputs import ActionValues, Categorical, ScalarValues, Value
from pytorchrl.agent.actors.view import View
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.algorithms.value_based.dqn import DQN
from pytorchrl.agent.explorers import Exploration
from storages.component.hyper_parameters import Count, NonNegative, NonNegativeOrSchedule, Positive, UnitInterval


class DiscreteBCQ(DQN):
    """Fujimoto et al., "Benchmarking Batch Deep Reinforcement Learning Algorithms" (arXiv 1910.01708), section 4.

    An imitation network learns the probabilities of the data's actions. Acting and bootstrapping are restricted to
    actions whose probability, relative to the most likely one, reaches a threshold. Both networks are trained by one
    optimiser and may share a body.

    Args:
        threshold: relative probability (tau): 0 is double DQN, 1 is behaviour cloning.
        logit_penalty: weight of the squared logits of the imitation network.
    """

    constrained_to_data: ClassVar[bool] = True

    lr: NonNegativeOrSchedule = 3e-4
    update_every: Count = 1
    mini_batch_size: Count = 100
    threshold: UnitInterval = 0.3
    logit_penalty: NonNegative = 0.01

    def build(self) -> None:
        """Make the Q-network and the imitation network, trained together, and the Q-network's target."""
        self.q = self.actor.make("q", self.head(), acts=True)
        self.imitation = self.actor.make("imitation", Policy(), acts=True)
        self.trained = self.train("q", self.q, self.imitation)
        self.q_target: Network = self.target(self.q, every="target_update_interval")

    def losses(self, rows: Rows) -> Losses:
        """Return the sum of DQN's loss, the cross-entropy of the data's actions, and the penalty of logits."""
        losses = super().losses(rows)
        cloned: Categorical = self.imitation(rows.now)
        imitation_loss = rows.weighted_mean(-cloned.log_prob(rows.action))
        penalty = rows.weighted_mean(cloned.logits.square().mean(1, keepdim=True))
        of_imitation = self.reduced(imitation_loss + self.logit_penalty * penalty, rows)
        metrics = {**losses.metrics, "imitation_loss": imitation_loss.detach()}
        return Losses({self.trained: losses.of[self.trained] + of_imitation}, metrics, losses.errors)

    def target_value(self, rows: Rows) -> Value:
        """Return DQN's target, whose next action is the greedy one among the likely ones."""
        values: ActionValues = self.q_target(rows.next)
        chooser: ActionValues = self.q(rows.next) if self.double else values
        return values.of(self._of_likely(rows.next, chooser).greedy()).backup(rows.reward, rows.discount)

    def policy(self, view: View, exploration: Exploration) -> ActionValues:
        """Return the values of likely actions, and -inf for others."""
        return self._of_likely(view, self.q(view))

    def _of_likely(self, view: View, values: ActionValues) -> ActionValues:
        cloned: Categorical = self.imitation(view)
        shares = (cloned.log_probs - cloned.log_probs.amax(1, keepdim=True)).exp()
        return ScalarValues(values.values.masked_fill(shares < self.threshold, -torch.inf))


class DiscreteCQL(DQN):
    """Kumar et al., "Conservative Q-Learning for Offline Reinforcement Learning" (arXiv 2006.04779), CQL(H).

    The Bellman error is squared, as in the paper, so that large rewards outweigh the penalty as small ones do. With
    Huber's loss, whose gradient never exceeds its threshold, the penalty decides alone where errors are large.

    Args:
        conservative_weight: weight of the penalty, the gap between the log-sum-exp of all actions' values and the value
            of the data's action (alpha, equation 4).
    """

    constrained_to_data: ClassVar[bool] = True

    huber_threshold: Positive | None = None
    conservative_weight: NonNegative = 1.0

    def losses(self, rows: Rows) -> Losses:
        """Return equation 4: DQN's loss with the conservative penalty."""
        with torch.no_grad():
            target = self.target_value(rows)
        values: ActionValues = self.q(rows.now)
        value, expected = values.of(rows.action), values.values
        bellman_loss, errors = value.weighted_loss(rows.weight, target)
        gap = rows.weighted_mean(expected.logsumexp(1, keepdim=True) - expected.gather(1, rows.action))
        loss = bellman_loss + self.conservative_weight * gap
        metrics = {
            "loss": loss.detach(),
            "q_value": rows.mean(value.mean.detach()),
            "conservative_gap": gap.detach(),
        }
        return Losses({self.trained: self.reduced(loss, rows)}, metrics, rows.per_row(errors))
