"""DiscreteBCQ: DQN restricted to actions that are likely in the data."""

import torch
from torch import Tensor

from pytorchrl.agent.actors.heads import Policy
from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.actors.outputs import ActionValues, Categorical, ScalarValues
from pytorchrl.agent.actors.view import View
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.algorithms.value_based.dqn import DQN
from pytorchrl.agent.explorers import Exploration
from storages.component.hyper_parameters import Count, NonNegative, NonNegativeOrSchedule, UnitInterval


class DiscreteBCQ(DQN):
    """Fujimoto et al., "Benchmarking Batch Deep Reinforcement Learning Algorithms" (arXiv 1910.01708), section 4.

    An imitation network learns the probabilities of the data's actions. Acting and bootstrapping are restricted to
    actions whose probability, relative to the most likely one, reaches a threshold. Both networks are trained by one
    optimiser and may share a body.

    Args:
        threshold: relative probability (tau): 0 is double DQN, 1 is behaviour cloning.
        logit_penalty: weight of the squared logits of the imitation network.
    """

    lr: NonNegativeOrSchedule = 3e-4
    update_every: Count = 1
    mini_batch_size: Count = 100
    threshold: UnitInterval = 0.3
    logit_penalty: NonNegative = 0.01

    def networks_beside(self) -> tuple[Network, ...]:
        """Make the imitation network."""
        self.imitation = self.actor.make("imitation", Policy(), acts=True)
        return (self.imitation,)

    def policy(self, view: View, exploration: Exploration) -> ActionValues:
        """Return the values of likely actions, and -inf for others."""
        return self._of_likely(view, self.q(view))

    def chosen_next(self, rows: Rows, values: ActionValues) -> Tensor:
        """Return the greedy next actions (N, 1) among the likely ones."""
        return self._of_likely(rows.next, values).greedy()

    def losses(self, rows: Rows) -> Losses:
        """Return the sum of the Q-learning, imitation and logit losses."""
        losses = super().losses(rows)
        cloned: Categorical = self.imitation(rows.now)
        imitation_loss = rows.weighted_mean(-cloned.log_prob(rows.action))
        penalty = rows.weighted_mean(cloned.logits.square().mean(1, keepdim=True))
        total = losses.of[self.trained] + imitation_loss + self.logit_penalty * penalty
        return Losses(
            {self.trained: total}, {**losses.metrics, "imitation_loss": imitation_loss.detach()}, losses.errors
        )

    def _of_likely(self, view: View, values: ActionValues) -> ActionValues:
        cloned: Categorical = self.imitation(view)
        shares = (cloned.log_probs - cloned.log_probs.amax(1, keepdim=True)).exp()
        return ScalarValues(values.values.masked_fill(shares < self.threshold, -torch.inf))
