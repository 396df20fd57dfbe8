"""Observation normalisation by the running mean and standard deviation."""

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

_LARGEST = 10.0
_EPSILON = 1e-8

Moments: TypeAlias = tuple[Any, Any, Any]
"""Count, mean, and sum of squared deviations from the mean, of tensors or arrays."""


def add_to_moments(moments: Moments, values: Any) -> Moments:
    """Return the moments updated with the values (B, *shape)."""
    mean = values.mean(0)
    return combined_moments(moments, (len(values), mean, ((values - mean) ** 2).sum(0)))


def combined_moments(moments: Moments, further: Moments) -> Moments:
    """Return the moments of the values of both, of which ``further`` has at least one.

    Chan, Golub and LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances" (1979).
    """
    (count, mean, squares), (further_count, further_mean, further_squares) = moments, further
    difference = further_mean - mean
    total = count + further_count
    squares_between = difference**2 * (count * further_count / total)
    return total, mean + difference * (further_count / total), squares + (further_squares + squares_between)


def moments_since(earlier: Moments, moments: Moments) -> Moments:
    """Return the moments of the values that were added to ``earlier``: the inverse of :func:`combined_moments`."""
    (count, mean, squares), (total, mean_of_all, squares_of_all) = earlier, moments
    number = total - count
    if not number:
        return number, mean * 0, squares * 0
    mean_since = mean_of_all + (mean_of_all - mean) * (count / number)
    squares_between = (mean_since - mean) ** 2 * (count * number / total)
    # Rounding may leave a negative sum where all values were equal.
    return number, mean_since, (squares_of_all - squares - squares_between).clip(0)


class RunningNormalization(nn.Module):
    """The running mean and variance of arrays, and a normalisation that is updated to them on request.

    Normalised numbers are float32. The mean is subtracted in ``dtype`` before that, because float32 has steps of 128 at
    a billion, such as a time in seconds since 1970.

    Args:
        shape: of one array.
        largest: normalised numbers are clipped to [-largest, largest].
        dtype: in which numbers are normalised, float32, or float64 for arrays that have more digits.
    """

    statistics = frozenset({"count", "mean", "squares", "shift", "scale"})

    count: Tensor
    mean: Tensor
    squares: Tensor
    shift: Tensor
    scale: Tensor

    def __init__(self, shape: tuple[int, ...], largest: float = _LARGEST, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self._largest = largest
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(shape, dtype=torch.float64))
        self.register_buffer("squares", torch.zeros(shape, dtype=torch.float64))
        self.register_buffer("shift", torch.zeros(shape, dtype=dtype))
        self.register_buffer("scale", torch.ones(shape, dtype=dtype))

    @torch.no_grad()
    def add(self, values: Tensor) -> None:
        """Update the running statistics with values (B, *shape); one that is not finite leaves them unchanged."""
        moments = add_to_moments((self.count, self.mean, self.squares), values.double())
        # NaN or infinity in the statistics would never leave them. It is the storage that refuses or keeps the values.
        # A sum of squares is finite only if all are, and is faster than `isfinite`.
        if math.isfinite(moments[2].sum()):
            self._set_moments(moments)

    @property
    def moments(self) -> Moments:
        """Copies of the running statistics, on the CPU."""
        count, mean, squares = (each.to("cpu", copy=True) for each in (self.count, self.mean, self.squares))
        return count, mean, squares

    @torch.no_grad()
    def add_moments(self, moments: Moments) -> None:
        """Update the running statistics with the values that have these moments, on the CPU."""
        if moments[0]:
            self._set_moments(combined_moments(self.moments, moments))

    def _set_moments(self, moments: Moments) -> None:
        for buffer, value in zip((self.count, self.mean, self.squares), moments, strict=True):
            buffer.copy_(value)

    @torch.no_grad()
    def use_newest(self) -> None:
        """Normalise by the current running statistics from now on."""
        self.shift.copy_(self.mean)
        self.scale.copy_((self.squares / self.count + _EPSILON).rsqrt())

    def forward(self, values: Tensor) -> Tensor:
        """Normalise values (B, *shape); returns float32."""
        normalised = ((values - self.shift) * self.scale).clamp(-self._largest, self._largest)
        return normalised if normalised.dtype is torch.float32 else normalised.float()


class ObservationNormalization(nn.Module):
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
        self.parts = nn.ModuleList(
            RunningNormalization(parts[name].shape or (1,), largest, _precision_of(parts[name])) for name in self._keys
        )

    def add(self, observation: Any) -> None:
        """Update the running statistics with observations (B, *obs)."""
        for key, part in self._parts():
            part.add(observation[key] if self._is_dict else observation)

    @property
    def names(self) -> list[str]:
        """Names of the parts that are normalised; "" for an observation that is no dict."""
        return list(self._keys)

    @property
    def moments(self) -> list[Moments]:
        """Copies of the running statistics of each part, on the CPU."""
        return [part.moments for _, part in self._parts()]

    def add_moments(self, moments: Sequence[Moments]) -> None:
        """Update the running statistics with observations of which only these moments are known."""
        for (_, part), of_part in zip(self._parts(), moments, strict=True):
            part.add_moments(of_part)

    @property
    def scaling(self) -> list[tuple[Tensor, Tensor]]:
        """Copies of the shift and scale with which each part is normalised."""
        return [(part.shift.clone(), part.scale.clone()) for _, part in self._parts()]

    @torch.no_grad()
    def use_scaling(self, scaling: Sequence[tuple[Tensor, Tensor]]) -> None:
        """Normalise as when :attr:`scaling` was read."""
        for (_, part), (shift, scale) in zip(self._parts(), scaling, strict=True):
            part.shift.copy_(shift)
            part.scale.copy_(scale)

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


def _precision_of(space: gym.Space[Any]) -> torch.dtype:
    """Return the dtype in which the numbers of a space are normalised without loss."""
    is_exact = np.can_cast(space.dtype, np.float32) if space.dtype is not None else True
    return torch.float32 if is_exact else torch.float64


def normalised_space(space: gym.Space[Any], largest: float) -> gym.Space[Any]:
    """Return the space of normalised observations, each Box within [-largest, largest]."""
    if isinstance(space, spaces.Dict):
        return spaces.Dict({name: normalised_space(part, largest) for name, part in space.spaces.items()})
    return spaces.Box(-largest, largest, space.shape, np.float32) if isinstance(space, spaces.Box) else space
