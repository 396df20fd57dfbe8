"""Values of continuous actions whose greedy actions are searched for by the cross-entropy method."""

import torch
from torch import Tensor

from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.actors.outputs import ActionValueFunction, ScalarValue
from pytorchrl.agent.actors.view import Repeated, View
from pytorchrl.agent.planners.cross_entropy import CrossEntropyMethod


class SearchedValues(ActionValueFunction):
    """Values of continuous actions within [-1, 1], by a network that takes actions; greedy ones are searched for.

    Args:
        network: from observations and actions to a :class:`ScalarValue`.
        view: of B rows.
        search: for greedy actions.
        like: (B, A), whose shape and device those of the actions are.
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

        # Actions lie within [-1, 1]: a standard deviation of 1 covers them.
        mean, std = torch.zeros_like(self._like), torch.ones_like(self._like)
        return self._search(values, mean, std, self._generator).best

    def of(self, action: Tensor) -> ScalarValue:
        """Values of actions (B, A)."""
        value: ScalarValue = self._network(self._view, action)
        return value
