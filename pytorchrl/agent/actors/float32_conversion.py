"""Conversion of observations to float32, in which networks compute."""

import math
import warnings
from collections.abc import Collection, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from storages.transition import BURN_IN, LEAD_OUT, OBS, OBS2, Batch

_LEAST_ROWS = 8
"""Of which a spread is determined."""
_LEAST_SPREAD = 1e-6
"""Smaller ones are taken for rounding in the environment, such as of a simulated body at rest."""


class Float32Conversion:
    """Converts float64 observations to float32, once for all networks of an actor.

    It warns where rounding to float32 loses more than the spread of a number in a batch, such as of a time in seconds
    since 1970: float32 has steps of 128 there.

    Args:
        space: of one observation.
        normalised: names of the parts that are normalised instead, which are converted after that.
        converts: whether float64 becomes float32; False where a user's encoder takes observations as they are.
    """

    def __init__(self, space: gym.Space[Any], normalised: Collection[str], *, converts: bool) -> None:
        parts = space.spaces if isinstance(space, spaces.Dict) else {"": space}
        # Networks convert integers themselves.
        self._may_lose = {
            name: part
            for name, part in parts.items()
            if converts
            and name not in normalised
            and isinstance(part, spaces.Box)
            and not np.can_cast(part.dtype, np.float32)
        }
        """Parts whose numbers have more digits than float32, and of which no loss is known yet."""
        self._converts = any(np.issubdtype(part.dtype, np.floating) for part in self._may_lose.values())
        self._batches = 0

    def __call__(self, observation: Any) -> Any:
        """Return observations, or a dict of such, with float32 in place of float64."""
        return _with_float32(observation) if self._converts else observation

    def of_batch(self, batch: Batch) -> Batch:
        """Return a batch whose float64 observations are float32, those of its burn-in and lead-out too.

        Batches 1, 2, 4, 8 and so on are examined for a loss.
        """
        if self._may_lose and not torch.compiler.is_compiling():
            self._batches += 1
            if self._batches.bit_count() == 1:
                self._warn_of_loss(batch[OBS])
        if not self._converts:
            return batch
        converted = {key: _with_float32(batch[key]) for key in (OBS, OBS2) if key in batch}
        within = {
            key: batch[key] | {OBS: _with_float32(batch[key][OBS])} for key in (BURN_IN, LEAD_OUT) if key in batch
        }
        return batch | converted | within

    @torch.no_grad()
    def _warn_of_loss(self, observation: Any) -> None:
        for name, space in list(self._may_lose.items()):
            part: Tensor = observation[name] if isinstance(observation, Mapping) else observation
            numbers = part.reshape(-1, math.prod(space.shape or (1,)))
            if len(numbers) < _LEAST_ROWS:
                continue
            exact = numbers.double()
            spread, lost = exact.std(0), (exact - numbers.float().double()).abs().amax(0)
            is_lost = ((2 * lost > spread) & (spread > _LEAST_SPREAD)).cpu()
            if is_lost.any():
                del self._may_lose[name]
                at = int(is_lost.int().argmax())
                is_float = part.is_floating_point()
                which = f"the part {name!r} of observations" if name else "observations"
                way_out = (
                    "normalize_observations=True of the actor subtracts their mean before that"
                    if is_float
                    else "let the environment subtract a constant"
                )
                warnings.warn(
                    f"{which}: number {at} of {space.shape} is about {float(exact[0, at]):.10g} with a standard "
                    f"deviation of {float(spread[at]):.3g}, and networks compute in float32, which rounds it by up to "
                    f"{float(lost[at]):.3g}; {way_out}",
                    RuntimeWarning,
                    stacklevel=2,
                )

    def __deepcopy__(self, memo: Mapping[int, Any]) -> "Float32Conversion":
        """Return itself, which copies of an actor share, so that there is one warning of a loss."""
        return self


def _with_float32(observation: Any) -> Any:
    """Return an observation, or a dict of such, with float32 numbers in place of float64."""
    if isinstance(observation, Mapping):
        return {name: _with_float32(part) for name, part in observation.items()}
    return observation.float() if observation.dtype is torch.float64 else observation
