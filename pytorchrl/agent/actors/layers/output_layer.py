"""Output layers of heads: one linear layer, or dueling streams, whose numbers are converted to the head's output."""

from typing import Any

from torch import Tensor, nn


class OutputLayer(nn.Module):
    """One linear layer of the features, whose numbers :meth:`output` converts; here they are the output.

    Args:
        layer: from features to numbers.
    """

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, features: Tensor) -> Any:
        """Map (N, features) to the output."""
        return self.output(self.layer(features))

    def output(self, numbers: Tensor) -> Any:
        """Convert the numbers (N, numbers) of the layer to the output."""
        return numbers


class ConvertedNumbers(nn.Module):
    """Numbers of an :class:`OutputLayer` or of dueling streams, which :meth:`output` converts.

    Args:
        numbers: from features to numbers.
    """

    def __init__(self, numbers: nn.Module) -> None:
        super().__init__()
        self.numbers = numbers

    def forward(self, features: Tensor) -> Any:
        """Map (N, features) to the output."""
        return self.output(self.numbers(features))

    def output(self, numbers: Tensor) -> Any:
        """Convert the numbers (N, numbers) to the output."""
        return numbers
