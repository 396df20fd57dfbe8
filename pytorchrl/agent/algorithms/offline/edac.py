"""EDAC: SAC with many critics, which are kept from agreeing on how values grow around the data's actions."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from pytorchrl.agent.actors.outputs import Value
from pytorchrl.agent.algorithms.actor_critic.sac import SAC
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from storages.component.hyper_parameters import Count, NonNegative, NonNegativeOrSchedule


class Judged(NamedTuple):
    """What a critic makes of the rows."""

    value: Value
    """Of the actions taken."""
    action: Tensor
    """(N, *action): those actions, a leaf that this critic's gradients are taken in."""


class EDAC(SAC):
    """An et al., "Uncertainty-Based Offline RL with Diversified Q-Ensemble" (arXiv 2110.01548), algorithm 1.

    The smallest value of many critics is low where they disagree, which they do away from the data; where their
    gradients in the action point in different directions, fewer critics are enough. Squared errors are halved here, and
    so is the weight of the similarity beside them.

    Args:
        eta: weight of the mean cosine similarity of the critics' gradients in the data's actions; 0 makes it SAC-N.

    Raises:
        ValueError: there are no two critics whose gradients could be compared.
    """

    lr_q: NonNegativeOrSchedule = 3e-4
    num_critics: Count = 10
    eta: NonNegative = 1.0

    @classmethod
    def check_hyper_parameters(cls, hyper_parameters: Mapping[str, Any]) -> None:
        """Refuse to compare the gradients of one critic."""
        super().check_hyper_parameters(hyper_parameters)
        if hyper_parameters["eta"] and hyper_parameters["num_critics"] < 2:
            raise ValueError(
                f"{cls.__name__}: eta={hyper_parameters['eta']} drives critics apart, of which there must be at least "
                f"2; got num_critics={hyper_parameters['num_critics']}"
            )

    def judge(self, rows: Rows) -> Sequence[Any]:
        """Values of the actions taken, each critic's with actions of its own."""
        actions = [rows.action.detach().clone().requires_grad_(self.eta > 0) for _ in self.critics]
        return [Judged(critic(rows.now, each), each) for critic, each in zip(self.critics, actions, strict=True)]

    def values_of_taken(self, judged: Sequence[Any], rows: Rows) -> Sequence[Value]:
        """Without their actions."""
        return [each.value for each in judged]

    def critic_losses(self, judged: Sequence[Any], target: Value, rows: Rows) -> Losses:
        """The critics' errors, and how much their gradients agree."""
        losses = super().critic_losses(judged, target, rows)
        if not self.eta:
            return losses
        similarity = rows.weighted_mean(self.similarity(judged))
        loss = losses.of[self.train_critics] + 0.5 * self.eta * similarity
        metrics = {"critic_loss": loss.detach(), "similarity": similarity.detach() / len(judged)}
        return Losses({**losses.of, self.train_critics: loss}, losses.metrics | metrics, losses.errors)

    def similarity(self, judged: Sequence[Judged]) -> Tensor:
        """(N, 1): of each critic's gradient with those of the others on average, summed over critics (equation 5)."""
        values, actions = [each.value.mean.sum() for each in judged], [each.action for each in judged]
        # Of each critic in its own actions, so that the gradient of the sum is that of each.
        gradients = torch.autograd.grad(torch.stack(values).sum(), actions, create_graph=True)
        directions = F.normalize(torch.stack(gradients).flatten(2), dim=2, eps=1e-10)  # (critics, N, A)
        # All pairs of different critics, of which there are as many as critics squared.
        pairs = directions.sum(0).square() - directions.square().sum(0)
        return pairs.sum(1, keepdim=True) / (len(judged) - 1)
