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

    Values of the policy's actions are not lowered below the data's return-to-go in the same state. The data set must
    provide these: ``prl.from_dataset(..., returns_to_go=gamma)``.
    """

    sources: ClassVar[Mapping[str, Needs]] = {"main": Needs("replay", collected=False, returns_to_go=True)}

    def least_values(self, rows: Rows) -> Tensor:
        """Return lower bounds (N, M): the data's return-to-go for policy actions, none for uniform ones."""
        returns, number = rows[RTG], self.num_samples
        free = torch.full_like(returns, -torch.inf).expand(-1, number)
        return torch.cat([free, returns.expand(-1, 2 * number)], dim=1)
