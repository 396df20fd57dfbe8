"""EDAC: SAC with an ensemble of critics, diversified by their gradients in the data's actions."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from pytorchrl.agent.actors.outputs import Value
from pytorchrl.agent.algorithms.actor_critic.critics import loss_of_critics
from pytorchrl.agent.algorithms.actor_critic.sac import SAC
from pytorchrl.agent.algorithms.compiling import not_compiled
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from storages.component.hyper_parameters import Count, NonNegative, NonNegativeOrSchedule


class EDAC(SAC):
    """An et al., "Uncertainty-Based Offline RL with Diversified Q-Ensemble" (arXiv 2110.01548), algorithm 1.

    The minimum of many critics is low where they disagree, which is away from the data. Diverse gradients in the action
    reduce the number of critics that this takes. As squared errors are halved here, so is the weight of the similarity.

    Args:
        eta: weight of the mean cosine similarity of the critics' gradients in the data's actions; 0 is SAC-N.

    Raises:
        ValueError: ``eta`` is not 0, and there are fewer than two critics.
    """

    constrained_to_data: ClassVar[bool] = True

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

    @not_compiled("it differentiates the critics' gradients once more")
    def losses(self, rows: Rows) -> Losses:
        """Return SAC's loss of the critics with the weighted similarity of their gradients (algorithm 1)."""
        alpha = self.log_alpha.detach().exp()
        with torch.no_grad():
            target = self.target_value(rows, alpha)
        # Each critic has its own copy of the actions, so that one backward pass of their sum gives all gradients.
        actions = [rows.action.detach().clone().requires_grad_(self.eta > 0) for _ in self.critics]
        values = [critic(rows.now, action) for critic, action in zip(self.critics, actions, strict=True)]
        loss, errors = loss_of_critics(values, target, rows)
        metrics = {"alpha": alpha[0]}
        if self.eta:
            similarity = rows.weighted_mean(self.similarity(values, actions))
            loss = loss + 0.5 * self.eta * similarity
            metrics["similarity"] = similarity.detach() / len(values)
        return Losses({self.train_critics: loss}, {"critic_loss": loss.detach(), **metrics}, errors)

    def similarity(self, values: Sequence[Value], actions: Sequence[Tensor]) -> Tensor:
        """Return the mean cosine similarity (N, 1) to other critics' gradients, summed over critics (equation 5).

        Args:
            values: by each critic.
            actions: (N, *action), those that each critic has evaluated, as leaf tensors.
        """
        total = torch.stack([value.mean.sum() for value in values]).sum()
        gradients = torch.autograd.grad(total, actions, create_graph=True)
        directions = F.normalize(torch.stack(gradients).flatten(2), dim=2, eps=1e-10)  # (critics, N, A)
        # The sum over all pairs of different critics, without computing each of them.
        pairs = directions.sum(0).square() - directions.square().sum(0)
        return pairs.sum(1, keepdim=True) / (len(values) - 1)
