"""Environments in which some actions are not allowed, and which raise an error if one of these is taken."""

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

import pytorchrl as prl

NEVER = 1
"""A choice that is never allowed, of the first component."""


class Masked(gym.Env[Any, Any]):
    """Episodes of 1 to 6 steps, with a random mask in each; that of a terminal observation allows nothing.

    The larger the choice, the larger the reward, which also depends on the observation.

    Args:
        choices: number of choices of each component; one is a Discrete space, several are a MultiDiscrete one.
        start: first number of the actions.
        as_numbers: whether the mask is a Box of real numbers, which normalisation would count.
    """

    def __init__(self, choices: Sequence[int] = (4,), start: int = 0, as_numbers: bool = False) -> None:
        self._choices, self._start = list(choices), start
        binary, numbers = spaces.MultiBinary(sum(choices)), spaces.Box(0, 1, (sum(choices),), np.float32)
        parts = {"observation": spaces.Box(-1, 1, (3,), np.float32), "action_mask": numbers if as_numbers else binary}
        self._dtype = np.float32 if as_numbers else np.int8
        self.observation_space = spaces.Dict(parts)
        several = spaces.MultiDiscrete(self._choices, start=[start] * len(self._choices))
        self.action_space = spaces.Discrete(self._choices[0], start=start) if len(choices) == 1 else several

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._left = int(self.np_random.integers(1, 7))
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        chosen = np.atleast_1d(action) - self._start
        offsets = np.cumsum([0, *self._choices[:-1]])
        if not self._mask[offsets + chosen].all():
            raise ValueError(f"{action} is not allowed by {self._mask}")
        self._left -= 1
        reward = float(chosen.sum() * self._observation[0])
        ends = self._left == 0
        terminates = ends and bool(self.np_random.integers(2))
        return self._seen(terminates), reward, terminates, ends and not terminates, {}

    def _seen(self, is_terminal: bool = False) -> dict[str, Any]:
        self._observation = self.np_random.uniform(-1, 1, 3).astype(np.float32)
        parts = [self.np_random.integers(0, 2, count).astype(np.int8) for count in self._choices]
        for position, part in enumerate(parts):
            part[0 if position else 2] = 1
        parts[0][NEVER] = 0
        self._mask = np.concatenate(parts) * np.int8(not is_terminal)
        return {"observation": self._observation, "action_mask": self._mask.astype(self._dtype)}


@torch.no_grad()
def change_outputs_never_used(scheme: prl.Scheme) -> dict[int, Tensor]:
    """Change what the networks return for the choice that is never allowed; return which numbers, by parameter."""
    networks = [scheme.actor, *(target.network for target in scheme.algorithm.training.targets.values())]
    changed: dict[int, Tensor] = {}
    for network in networks:
        for layer in network.modules():
            if isinstance(layer, nn.Linear) and layer.out_features in (4, 20):
                for parameter in (layer.weight, layer.bias):
                    rows = torch.arange(len(parameter)).view(4, -1)[NEVER]
                    parameter[rows] += 3 * torch.arange(1, len(rows) + 1).view(-1, *[1] * (parameter.ndim - 1))
                    changed[id(parameter)] = rows
    return changed


def assert_learnt_alike(plain: prl.Scheme, other: prl.Scheme, changed: dict[int, Tensor]) -> None:
    """Two actors have the same parameters, but for those changed in the other."""
    for expected, found in zip(plain.actor.parameters(), other.actor.parameters(), strict=True):
        kept = torch.ones(len(expected), dtype=torch.bool)
        if id(found) in changed:
            kept[changed[id(found)]] = False
        torch.testing.assert_close(found[kept], expected[kept], rtol=1e-4, atol=1e-5)
