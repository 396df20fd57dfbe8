"""Feature extractors of vectors and discrete observations."""

import math
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np
import torch
import torch.nn.functional as F
from gymnasium import spaces
from torch import Tensor, nn

from pytorchrl.agent.envs.spaces import choices_of

Choices: TypeAlias = spaces.Discrete | spaces.MultiDiscrete
"""Spaces of one or several discrete variables."""


class VectorFeatures(nn.Module):
    """Arrays, flattened to float32 vectors.

    Args:
        space: of arrays.
    """

    def __init__(self, space: gym.Space[Any]) -> None:
        super().__init__()
        self.output_size = math.prod(space.shape or (1,))
        self.is_flat = len(space.shape or (1,)) == 1
        """Whether the arrays are vectors already."""

    def forward(self, observation: Tensor) -> Tensor:
        """(B, *obs) to (B, output_size)."""
        flat = observation if self.is_flat else observation.flatten(1)
        return flat if flat.dtype == torch.float32 else flat.float()


class OneHotFeatures(nn.Module):
    """A Discrete observation as a one-hot vector.

    Args:
        space: of the observation.
    """

    def __init__(self, space: spaces.Discrete) -> None:
        super().__init__()
        self.output_size = int(space.n)
        self._start = int(space.start)

    def forward(self, observation: Tensor) -> Tensor:
        """(B, 1) to (B, output_size)."""
        return F.one_hot(observation[:, 0].long() - self._start, self.output_size).float()


class TableRows(nn.Module):
    """Row indices of discrete observations in a table with one row for each value of each discrete variable.

    Args:
        space: of the observation.
    """

    offsets: Tensor

    def __init__(self, space: Choices) -> None:
        super().__init__()
        counts = np.array(choices_of(space))
        before = np.cumsum(counts) - counts
        offsets = before - np.atleast_1d(space.start).ravel()
        self.choices, self.total = len(counts), int(counts.sum())
        self.register_buffer("offsets", torch.as_tensor(offsets, dtype=torch.int64), persistent=False)

    def forward(self, observation: Tensor) -> Tensor:
        """(B, *obs) to (B, choices) int64."""
        return observation.flatten(1).long() + self.offsets


class MultiOneHotFeatures(nn.Module):
    """A MultiDiscrete observation as concatenated one-hot vectors.

    Args:
        space: of the observation.
    """

    def __init__(self, space: spaces.MultiDiscrete) -> None:
        super().__init__()
        self.rows = TableRows(space)
        self.output_size = self.rows.total

    def forward(self, observation: Tensor) -> Tensor:
        """(B, *obs) to (B, output_size)."""
        rows = self.rows(observation)
        # Not `len`, which is a constant in an exported network.
        shape = rows.shape[0], self.output_size
        return torch.zeros(shape, device=rows.device).scatter_(1, rows, 1.0)


class EmbeddingFeatures(nn.Module):
    """A learnt embedding of a Discrete observation, or of each variable of a MultiDiscrete one.

    Args:
        space: of the observation.
        size: of the embedding of one variable.

    Raises:
        ValueError: the space is neither Discrete nor MultiDiscrete.
    """

    def __init__(self, space: gym.Space[Any], size: int = 16) -> None:
        super().__init__()
        if not isinstance(space, Choices):
            raise ValueError(f"{type(self).__name__}: the space must be Discrete or MultiDiscrete, got {space}")
        self.rows = TableRows(space)
        self.table = nn.Embedding(self.rows.total, size)
        self.output_size = self.rows.choices * size

    def forward(self, observation: Tensor) -> Tensor:
        """(B, *obs) to (B, output_size)."""
        vectors: Tensor = self.table(self.rows(observation))
        return vectors.flatten(1)
