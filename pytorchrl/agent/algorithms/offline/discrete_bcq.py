"""DiscreteBCQ: DQN from data among actions that the data takes often enough."""

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

    A second network learns the probabilities of the data's actions. Only those count, when acting and bootstrapping,
    that are at least so likely as a share of the likeliest. Both networks are stepped together, and may share a body.

    Args:
        threshold: that share: 0 is double DQN, 1 the likeliest action, as behaviour cloning has it.
        logit_penalty: weight of the squares of the second network's logits.
    """

    lr: NonNegativeOrSchedule = 3e-4
    update_every: Count = 1
    mini_batch_size: Count = 100
    threshold: UnitInterval = 0.3
    logit_penalty: NonNegative = 0.01

    def networks_beside(self) -> tuple[Network, ...]:
        """The probabilities of the data's actions."""
        self.imitation = self.actor.make("imitation", Policy(), acts=True)
        return (self.imitation,)

    def policy(self, view: View, exploration: Exploration) -> ActionValues:
        """The values of actions that are likely enough; -inf of others."""
        return self._of_likely(view, self.q(view))

    def chosen_next(self, rows: Rows, values: ActionValues) -> Tensor:
        """(N, 1): the best of the next actions that are likely enough."""
        return self._of_likely(rows.next, values).greedy()

    def losses(self, rows: Rows) -> Losses:
        """The distance of the actions' values to their targets, and what cloning the data's actions loses."""
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
