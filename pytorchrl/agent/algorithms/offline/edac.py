"""EDAC: SAC with an ensemble of critics, diversified by their gradients in the data's actions."""

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


class CriticOutput(NamedTuple):
    """Output of one critic for the rows."""

    value: Value
    """Q-values of the actions taken."""
    action: Tensor
    """(N, *action): those actions, as a leaf tensor for this critic's gradient."""


class EDAC(SAC):
    """An et al., "Uncertainty-Based Offline RL with Diversified Q-Ensemble" (arXiv 2110.01548), algorithm 1.

    The minimum of many critics is low where they disagree, which is away from the data. Diverse gradients in the action
    reduce the number of critics that this takes. As squared errors are halved here, so is the weight of the similarity.

    Args:
        eta: weight of the mean cosine similarity of the critics' gradients in the data's actions; 0 is SAC-N.

    Raises:
        ValueError: ``eta`` is not 0, and there are fewer than two critics.
    """

    lr_q: NonNegativeOrSchedule = 3e-4
    num_critics: Count = 10
    eta: NonNegative = 1.0

    @classmethod
    def check_hyper_parameters(cls, hyper_parameters: Mapping[str, Any]) -> None:
        """Check that there are critics to compare."""
        super().check_hyper_parameters(hyper_parameters)
        if hyper_parameters["eta"] and hyper_parameters["num_critics"] < 2:
            raise ValueError(
                f"{cls.__name__}: eta={hyper_parameters['eta']} diversifies the critics' gradients, which needs at "
                f"least 2 critics, got num_critics={hyper_parameters['num_critics']}"
            )

    def critic_outputs(self, rows: Rows) -> Sequence[Any]:
        """Return the values of the actions taken; each critic gets its own copy of the actions."""
        actions = [rows.action.detach().clone().requires_grad_(self.eta > 0) for _ in self.critics]
        return [CriticOutput(critic(rows.now, each), each) for critic, each in zip(self.critics, actions, strict=True)]

    def values_of_taken(self, outputs: Sequence[Any], rows: Rows) -> Sequence[Value]:
        """Return the values without their actions."""
        return [each.value for each in outputs]

    def critic_losses(self, outputs: Sequence[Any], target: Value, rows: Rows) -> Losses:
        """Return the critics' loss with the weighted similarity of their gradients."""
        losses = super().critic_losses(outputs, target, rows)
        if not self.eta:
            return losses
        similarity = rows.weighted_mean(self.similarity(outputs))
        loss = losses.of[self.train_critics] + 0.5 * self.eta * similarity
        metrics = {"critic_loss": loss.detach(), "similarity": similarity.detach() / len(outputs)}
        return Losses({**losses.of, self.train_critics: loss}, losses.metrics | metrics, losses.errors)

    def similarity(self, outputs: Sequence[CriticOutput]) -> Tensor:
        """Return the mean cosine similarity (N, 1) to other critics' gradients, summed over critics (equation 5)."""
        values, actions = [each.value.mean.sum() for each in outputs], [each.action for each in outputs]
        # Each critic has its own leaf, so that one backward pass of the sum gives all gradients.
        gradients = torch.autograd.grad(torch.stack(values).sum(), actions, create_graph=True)
        directions = F.normalize(torch.stack(gradients).flatten(2), dim=2, eps=1e-10)  # (critics, N, A)
        # The sum over all pairs of different critics, without computing each of them.
        pairs = directions.sum(0).square() - directions.square().sum(0)
        return pairs.sum(1, keepdim=True) / (len(outputs) - 1)
