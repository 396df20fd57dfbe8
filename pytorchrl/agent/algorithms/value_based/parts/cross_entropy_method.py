"""The cross-entropy method, by which greedy actions are searched for in a continuous action space."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.actors.outputs import ActionValueFunction, ScalarValue
from pytorchrl.agent.actors.view import Repeated, View


@dataclass(frozen=True)
class CrossEntropyMethod:
    """Search for the actions of the largest value, by samples of a normal distribution that is fitted to the best ones.

    Kalashnikov et al., "QT-Opt" (arXiv 1806.10293), section 4.2. The first distribution has a mean of 0 and a standard
    deviation of 1 in each dimension, where actions lie within [-1, 1].

    Args:
        num_iterations: distributions that are sampled from.
        num_samples: of each distribution, for each row (N).
        num_elites: samples of the largest value, to which the next distribution is fitted (M).
    """

    num_iterations: int
    num_samples: int
    num_elites: int

    @torch.no_grad()
    def __call__(self, values: Callable[[Tensor], Tensor], like: Tensor, generator: torch.Generator) -> Tensor:
        """Return the best of all sampled actions, (B, A).

        Args:
            values: from actions (B, num_samples, A) to their values (B, num_samples).
            like: (B, A), whose shape and device those of the result are.
            generator: of the samples.
        """
        rows, size = like.shape
        mean, std = like.new_zeros((rows, 1, size)), like.new_ones((rows, 1, size))
        best, best_value = torch.zeros_like(like), like.new_full((rows, 1), -torch.inf)
        for _ in range(self.num_iterations):
            noise = like.new_empty((rows, self.num_samples, size)).normal_(generator=generator)
            action = (mean + std * noise).clamp(-1, 1)
            largest, chosen = values(action).topk(self.num_elites, dim=1)
            # By `take_along_dim`, an exported network would be for a fixed number of rows.
            elites = action.gather(1, chosen.unsqueeze(2).expand(-1, -1, size))
            mean, std = elites.mean(1, keepdim=True), elites.std(1, correction=0, keepdim=True)
            best = torch.where(largest[:, :1] > best_value, elites[:, 0], best)
            best_value = torch.maximum(largest[:, :1], best_value)
        return best


class SearchedValues(ActionValueFunction):
    """Values of continuous actions within [-1, 1], by a network that takes actions; greedy ones are searched for.

    Args:
        network: from observations and actions to a :class:`ScalarValue`.
        view: of B rows.
        search: for greedy actions.
        like: (B, A), as of :meth:`CrossEntropyMethod.__call__`.
        generator: of the search.
    """

    def __init__(
        self, network: Network, view: View, search: CrossEntropyMethod, like: Tensor, generator: torch.Generator
    ) -> None:
        self._network, self._view, self._search = network, view, search
        self._like, self._generator = like, generator

    def greedy(self) -> Tensor:
        """Actions of the largest value found, (B, A); each call searches anew."""
        number = self._search.num_samples
        view = Repeated(self._view, number)

        def values(action: Tensor) -> Tensor:
            value: Tensor = self._network(view, action.flatten(0, 1)).mean
            return value.view(-1, number)

        return self._search(values, self._like, self._generator)

    def of(self, action: Tensor) -> ScalarValue:
        """Values of actions (B, A)."""
        value: ScalarValue = self._network(self._view, action)
        return value
