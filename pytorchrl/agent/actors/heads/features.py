"""The head of feature vectors."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from pytorchrl.agent.actors.actor import Actor
from pytorchrl.agent.actors.layers.initialisation import orthogonal
from pytorchrl.agent.actors.layers.mlp import MLP


@dataclass(frozen=True)
class Features:
    """An embedding of observations, (N, size), by layers without noise.

    Args:
        size: of the embedding.
        hidden_sizes: units of the hidden layers before it.
    """

    size: int
    hidden_sizes: Sequence[int] = ()

    def build(self, features: int, actor: Actor) -> nn.Module:
        """Return the module from (N, features) to (N, size)."""
        hidden = MLP(features, self.hidden_sizes, "relu", "orthogonal")
        last = nn.Linear(hidden.output_size, self.size)
        orthogonal(last, math.sqrt(2))
        return nn.Sequential(hidden, last)
