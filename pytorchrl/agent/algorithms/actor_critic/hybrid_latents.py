"""Discrete choices with parameters, embeddings of the choices, and latents of the parameters."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pytorchrl.agent.actors.actor import Actor
from pytorchrl.agent.actors.layers.linear_layers import OutputLayer
from pytorchrl.agent.envs.spaces import HybridBox

_INITIAL_BOUND = 2.0
"""Most of a standard normal distribution, the prior of the latents of parameters, lies within this bound."""
_SMALLEST_HALF_RANGE = 1e-3
"""Avoids division by 0."""


class HybridLatents(nn.Module):
    """Tables of embeddings, and the bounds between which latents of parameters are scaled to [-1, 1].

    Embeddings are the tanh of the table's numbers, so that a policy with actions in (-1, 1) reaches all of them.

    Args:
        counts: alternatives of each of the C choices.
        embedding_size: numbers of an embedding (d1).
        latent_size: numbers of the latent of the parameters (d2).
    """

    low: Tensor
    high: Tensor
    tolerance: Tensor
    updates: Tensor

    def __init__(self, counts: Sequence[int], embedding_size: int, latent_size: int) -> None:
        super().__init__()
        tables = [torch.empty(count, embedding_size).uniform_(-1, 1) for count in counts]
        self.tables = nn.ParameterList([nn.Parameter(table) for table in tables])
        self.sizes = embedding_size * len(counts), latent_size
        """Numbers of the embeddings of all choices together, and of the latent of the parameters."""
        self.register_buffer("low", torch.full((latent_size,), -_INITIAL_BOUND))
        self.register_buffer("high", torch.full((latent_size,), _INITIAL_BOUND))
        self.register_buffer("tolerance", torch.zeros(()))
        self.register_buffer("updates", torch.zeros((), dtype=torch.int64))
        # All are part of the weights, so that a policy acts by them, and reinitialised networks learn them again.

    def embed(self, choices: Tensor) -> Tensor:
        """Return the embeddings (N, C * d1) of choices (N, C)."""
        pairs = zip(self.tables, choices.unbind(1), strict=True)
        return torch.cat([table[chosen].tanh() for table, chosen in pairs], dim=1)

    def nearest(self, embedded: Tensor) -> Tensor:
        """Return the choices (N, C) whose embeddings are the nearest to vectors (N, C * d1)."""
        pairs = zip(self.tables, embedded.chunk(len(self.tables), dim=1), strict=True)
        distances = [(vector[:, None] - table.tanh()).square().sum(2) for table, vector in pairs]
        return torch.stack([distance.argmin(1) for distance in distances], dim=1)

    def scale(self, latent: Tensor) -> Tensor:
        """Scale latents (N, d2) from their bounds to [-1, 1], and clip them."""
        return ((latent - self._middle) / self._half_range).clamp(-1, 1)

    def unscale(self, scaled: Tensor) -> Tensor:
        """Scale numbers (N, d2) in [-1, 1] to the bounds of latents."""
        return scaled * self._half_range + self._middle

    def set_scale(self, latents: Tensor, errors: Tensor, central_range: float) -> None:
        """Take the bounds of each dimension, and the tolerance, from recent actions.

        Args:
            latents: (N, d2), of their parameters.
            errors: (N, 1), of their decoded parameters; the tolerance is the mean.
            central_range: share of the latents between the bounds, such as 0.96.
        """
        tail = (1 - central_range) / 2
        self.low.copy_(latents.quantile(tail, dim=0))
        self.high.copy_(latents.quantile(1 - tail, dim=0))
        self.tolerance.copy_(errors.mean())

    @property
    def _middle(self) -> Tensor:
        return (self.low + self.high) / 2

    @property
    def _half_range(self) -> Tensor:
        return ((self.high - self.low) / 2).clamp(min=_SMALLEST_HALF_RANGE)


class Decoded(NamedTuple):
    """Output of the decoder."""

    parameters: Tensor
    """(N, P), of the action, in (-1, 1)."""
    change: Tensor
    """(N, D), predicted change of the observation; D is 0 where none is predicted."""


@dataclass(frozen=True)
class HybridDecoder:
    """Parameters and the change of an observation.

    Args:
        num_parameters: P.
        num_changes: D.
    """

    num_parameters: int
    num_changes: int

    def build(self, features: int, actor: Actor) -> nn.Module:
        """Return the module from (N, features) to :class:`Decoded`."""
        layer = actor.linear(features, self.num_parameters + self.num_changes)
        return _DecoderLayer(layer, self.num_parameters)


class _DecoderLayer(OutputLayer):
    def __init__(self, layer: nn.Module, num_parameters: int) -> None:
        super().__init__(layer)
        self._num_parameters = num_parameters

    def output(self, numbers: Tensor) -> Decoded:
        return Decoded(numbers[:, : self._num_parameters].tanh(), numbers[:, self._num_parameters :])


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

    def join(self, choices: Tensor, parameters: Tensor) -> Tensor:
        """Return actions (N, A), with a score of 1 for what is chosen, and of -1 for all else."""
        flags = [F.one_hot(chosen, count) for chosen, count in zip(choices.unbind(1), self.counts, strict=True)]
        scores = 2 * torch.cat(flags, dim=1).to(parameters.dtype) - 1
        return torch.cat([scores, parameters], dim=1)[:, self._order]
