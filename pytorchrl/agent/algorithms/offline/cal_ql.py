"""CalQL: CQL with values calibrated by the returns of the data, for online fine-tuning."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from pytorchrl.agent.actors.batched_passes import soft_maximum_of_critic
from pytorchrl.agent.actors.outputs import Value
from pytorchrl.agent.algorithms.needs import Needs
from pytorchrl.agent.algorithms.offline.cql import CQL
from pytorchrl.agent.algorithms.rows import Rows
from storages.transition import RTG


class CalQL(CQL):
    """Nakamoto et al., "Cal-QL: Calibrated Offline RL Pre-Training" (arXiv 2303.05479), equation 5.

    Values of the policy's actions are not lowered below the return-to-go in the same state, of the data and of the
    steps that are collected in fine-tuning. There is no bound in an episode that has not ended.
    """

    sources: ClassVar[Mapping[str, Needs]] = {"main": Needs("replay", returns_to_go=True)}

    def gaps(self, values: Sequence[Value], rows: Rows) -> Tensor:
        """Return CQL's gaps (critics,), with the return-to-go as lower bound of the values of the policy's actions."""
        action, log_density = self.proposals(rows)
        returns, number = rows[RTG].nan_to_num(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf), self.num_samples
        # There is no bound for the uniform actions, which come first.
        free = torch.full_like(returns, -torch.inf).expand(-1, number)
        least = torch.cat([free, returns.expand(-1, 2 * number)], dim=1)
        given = rows.now, action, log_density, rows.weight, least
        soft_maxima = [soft_maximum_of_critic(critic, *given) for critic in self.critics]
        return torch.stack(soft_maxima) - torch.stack([rows.weighted_mean(value.mean) for value in values])
