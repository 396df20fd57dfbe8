"""Observation normalisation by the running mean and standard deviation."""

from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from pytorchrl.agent.actors.layers.quick_module import QuickModule

_LARGEST = 10.0
_EPSILON = 1e-8

Moments: TypeAlias = tuple[Any, Any, Any]
"""Count, mean, and sum of squared deviations from the mean, of tensors or arrays."""


def add_to_moments(moments: Moments, values: Any) -> Moments:
    """Return the moments updated with the values (B, *shape).

    Chan, Golub and LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances" (1979).
    """
    count, mean, squares = moments
    mean_of_values = values.mean(0)
    difference = mean_of_values - mean
    total = count + len(values)
    squares_between = difference**2 * (count * len(values) / total)
    squares_of_values = ((values - mean_of_values) ** 2).sum(0)
    return total, mean + difference * (len(values) / total), squares + (squares_of_values + squares_between)


class RunningNormalization(QuickModule):
    """The running mean and variance of arrays, and a normalisation that is updated to them on request.

    Args:
        shape: of one array.
        largest: normalised numbers are clipped to [-largest, largest].
    """

    count: Tensor
    mean: Tensor
    squares: Tensor
    shift: Tensor
    scale: Tensor

    def __init__(self, shape: tuple[int, ...], largest: float = _LARGEST) -> None:
        super().__init__()
        self._largest = largest
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(shape, dtype=torch.float64))
        self.register_buffer("squares", torch.zeros(shape, dtype=torch.float64))
        self.register_buffer("shift", torch.zeros(shape))
        self.register_buffer("scale", torch.ones(shape))

    @torch.no_grad()
    def add(self, values: Tensor) -> None:
        """Update the running statistics with values (B, *shape)."""
        count, mean, squares = add_to_moments((self.count, self.mean, self.squares), values.double())
        self.count.copy_(count)
        self.mean.copy_(mean)
        self.squares.copy_(squares)

    @torch.no_grad()
    def use_newest(self) -> None:
        """Normalise by the current running statistics from now on."""
        self.shift.copy_(self.mean)
        self.scale.copy_((self.squares / self.count + _EPSILON).rsqrt())

    def forward(self, values: Tensor) -> Tensor:
        """Normalise values (B, *shape)."""
        return ((values - self.shift) * self.scale).clamp(-self._largest, self._largest)


class ObservationNormalization(QuickModule):
    """A :class:`RunningNormalization` of each part of an observation that has a floating-point dtype.

    Args:
        space: of one observation.
        images: whether a Box of integers, such as pixels, is normalised, too; there may then be no part to normalise.
        largest: as of :class:`RunningNormalization`.

    Raises:
        ValueError: there is no such part, and ``images`` is False.
    """

    def __init__(self, space: gym.Space[Any], *, images: bool = False, largest: float = _LARGEST) -> None:
        super().__init__()
        parts = space.spaces if isinstance(space, spaces.Dict) else {"": space}
        self._is_dict = isinstance(space, spaces.Dict)
        self._keys = [
            name
            for name, part in parts.items()
            if isinstance(part, spaces.Box) and (images or np.issubdtype(part.dtype, np.floating))
        ]
        self.largest = largest
        if not self._keys and not images:
            raise ValueError(
                f"normalize_observations: there are no floating-point numbers to normalise in {space}; uint8 images "
                f"are scaled to [0, 1] without it"
            )
        self.parts = nn.ModuleList(RunningNormalization(parts[name].shape or (1,), largest) for name in self._keys)

    def add(self, observation: Any) -> None:
        """Update the running statistics with observations (B, *obs)."""
        for key, part in self._parts():
            part.add(observation[key] if self._is_dict else observation)

    @property
    def has_counted(self) -> bool:
        """Whether there are any statistics; synchronises with the device."""
        return any(bool(part.count) for _, part in self._parts())

    def use_newest(self) -> None:
        """Normalise by the current running statistics from now on, if there are any."""
        for _, part in self._parts():
            if part.count:
                part.use_newest()

    def forward(self, observation: Any) -> Any:
        """Normalise observations (B, *obs); parts without statistics are left as they are."""
        if not self._keys:
            return observation
        if not self._is_dict:
            return self.parts[0](observation)
        return observation | {key: part(observation[key]) for key, part in self._parts()}

    def _parts(self) -> list[tuple[str, RunningNormalization]]:
        return list(zip(self._keys, self.parts, strict=True))  # type: ignore[arg-type]


def normalised_space(space: gym.Space[Any], largest: float) -> gym.Space[Any]:
    """Return the space of normalised observations, each Box within [-largest, largest]."""
    if isinstance(space, spaces.Dict):
        return spaces.Dict({name: normalised_space(part, largest) for name, part in space.spaces.items()})
    return spaces.Box(-largest, largest, space.shape, np.float32) if isinstance(space, spaces.Box) else space
