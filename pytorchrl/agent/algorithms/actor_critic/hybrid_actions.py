"""Choices and parameters in arrays of actions, as the wrapper JoinActions joins them."""

from itertools import accumulate

import torch
import torch.nn.functional as F
from torch import Tensor

from pytorchrl.agent.envs.spaces import HybridBox


class HybridActions:
    """Conversion between arrays (N, A) of actions in [-1, 1], and choices (N, C) with parameters (N, P).

    Args:
        space: has the columns of the scores of the C choices; all others are parameters.
        device: of the actions.
    """

    def __init__(self, space: HybridBox, device: torch.device) -> None:
        self.counts = [count for _, count in space.choices]
        """Alternatives of each choice."""
        scores = [first + number for first, count in space.choices for number in range(count)]
        parameters = [column for column in range(space.shape[0]) if column not in set(scores)]
        self.num_parameters = len(parameters)
        self._scores, self._parameters = (torch.tensor(columns, device=device) for columns in (scores, parameters))
        self._ends = tuple(accumulate(self.counts[:-1]))
        self._order = torch.tensor(scores + parameters, device=device).argsort()

    def choices(self, action: Tensor) -> Tensor:
        """Return the alternatives with the largest scores, (N, C) int64."""
        of_each = action[:, self._scores].tensor_split(self._ends, dim=1)
        return torch.stack([scores.argmax(1) for scores in of_each], dim=1)

    def parameters(self, action: Tensor) -> Tensor:
        """Return the parameters (N, P)."""
        return action[:, self._parameters]

    def joined(self, choices: Tensor, parameters: Tensor) -> Tensor:
        """Return actions (N, A), with a score of 1 for what is chosen, and of -1 for all else."""
        flags = [F.one_hot(chosen, count) for chosen, count in zip(choices.unbind(1), self.counts, strict=True)]
        scores = 2 * torch.cat(flags, dim=1).to(parameters.dtype) - 1
        return torch.cat([scores, parameters], dim=1)[:, self._order]
