"""CalQL: CQL with values calibrated by the returns of the data, for online fine-tuning."""

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

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

    def least_values(self, rows: Rows) -> Tensor:
        """Return lower bounds (N, M): the return-to-go for actions of the policy, none for uniform ones."""
        returns, number = rows[RTG].nan_to_num(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf), self.num_samples
        free = torch.full_like(returns, -torch.inf).expand(-1, number)
        return torch.cat([free, returns.expand(-1, 2 * number)], dim=1)
