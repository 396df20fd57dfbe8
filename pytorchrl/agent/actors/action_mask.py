"""Action masks: a part of dict observations that says which actions are allowed.

The mask is an observation like any other, so that storages keep it with each step, and targets know which actions the
next state allows. Networks do not take it as an input: it restricts what they return, distributions and action values.

Huang and Ontañón, "A Closer Look at Invalid Action Masking in Policy Gradient Algorithms" (arXiv 2006.14171).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from pytorchrl.agent.envs.spaces import choices_of


class HasParts(Protocol):
    """A view of dict observations; see :class:`~pytorchrl.agent.actors.view.View`."""

    def part(self, name: str) -> Tensor:
        """Return a part (N, ...) of the observations."""


@runtime_checkable
class Restrictable(Protocol):
    """An output of a network for discrete actions: a distribution, or action values."""

    def allowing(self, allowed: Tensor) -> Any:
        """Return the output given that the action is one of those allowed, (N, actions) bool."""


class AllowedActions:
    """Which actions are allowed, of each of N rows.

    Args:
        flags: (N, sum of ``choices``) bool.
        choices: number of actions of each component.
        shape: of one action, with as many components as there are choices.
    """

    def __init__(self, flags: Tensor, choices: Sequence[int], shape: tuple[int, ...]) -> None:
        self.flags = flags
        self._choices, self._shape = list(choices), shape

    def uniform(self, random: np.random.Generator) -> Tensor:
        """Draw a uniformly random allowed action for each row, (N, *action) int64; on the CPU."""
        flags = self.flags.cpu().numpy()
        ranks = np.where(flags, random.random(flags.shape), -1.0)
        parts = np.split(ranks, np.cumsum(self._choices)[:-1], axis=1)
        drawn = np.stack([part.argmax(axis=1) for part in parts], axis=1)
        return torch.from_numpy(drawn.reshape(len(flags), *self._shape))

    def include(self, action: Tensor) -> Tensor:
        """Return whether each row's action (N, *action) int64 is allowed, (N,) bool."""
        offsets = torch.tensor([0, *self._choices[:-1]], device=action.device).cumsum(0)
        return self.flags.gather(1, action.flatten(1) + offsets).all(1)


class ActionMask:
    """Reads which actions are allowed from a part of dict observations.

    Args:
        name: of the part. It has a number for each action of a Discrete space, in its order, or for each choice of each
            component of a MultiDiscrete space, concatenated; it is other than 0 where the action is allowed.
        observations: observation space of one environment.
        actions: action space of one environment.

    Raises:
        ValueError: observations have no such part or no other one, its size is another, or the actions are of another
            kind.
    """

    def __init__(self, name: str, observations: gym.Space[Any], actions: gym.Space[Any]) -> None:
        self.name = name
        if not isinstance(actions, spaces.Discrete | spaces.MultiDiscrete):
            raise ValueError(f"action_mask={name!r}: actions must be Discrete or MultiDiscrete, the space is {actions}")
        self._choices, self._shape = choices_of(actions), actions.shape or (1,)
        if not isinstance(observations, spaces.Dict) or name not in observations.spaces:
            raise ValueError(
                f"action_mask={name!r}: observations must be a Dict with this part, the space is {observations}; the "
                f"wrapper ObserveActionMask adds it to observations"
            )
        size = int(np.prod(observations.spaces[name].shape or ()))
        if size != sum(self._choices):
            raise ValueError(
                f"action_mask={name!r}: the part must have {sum(self._choices)} numbers, one for each action of "
                f"{actions}, its space is {observations.spaces[name]}"
            )
        self.encoded_space = spaces.Dict({key: one for key, one in observations.spaces.items() if key != name})
        """Space of the other parts, which networks take."""
        if not self.encoded_space.spaces:
            raise ValueError(f"action_mask={name!r}: observations have no part but the mask, {observations}")

    def of(self, view: HasParts) -> AllowedActions:
        """Return the actions allowed in each row of a view.

        Where a component has no allowed choice, as after the last step of an episode, all count as allowed.
        """
        flags = view.part(self.name).flatten(1) != 0
        blocks = flags.split_with_sizes(self._choices, dim=1)
        flags = torch.cat([block | ~block.any(1, keepdim=True) for block in blocks], dim=1)
        return AllowedActions(flags, self._choices, self._shape)

    def trials(self, observation: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return an observation (1, ...) twice: with only the first choices allowed, then with only the last ones.

        A policy that does not take the :attr:`only_allowed` actions ignores the mask.
        """
        mask = observation[self.name]
        flags = torch.stack(
            [
                torch.cat([torch.arange(count) == chosen for count, chosen in zip(self._choices, row, strict=True)])
                for row in self.only_allowed.flatten(1)
            ]
        )
        repeated = {name: part.expand(2, *part.shape[1:]).clone() for name, part in observation.items()}
        return {**repeated, self.name: flags.to(mask).reshape(2, *mask.shape[1:])}

    @property
    def only_allowed(self) -> Tensor:
        """The first choices and the last ones, (2, *action) int64; on the CPU."""
        last = torch.tensor(self._choices) - 1
        return torch.stack([torch.zeros_like(last), last]).view(2, *self._shape)

    def without(self, observation: Mapping[str, Any]) -> dict[str, Any]:
        """Return an observation without the mask."""
        return {key: part for key, part in observation.items() if key != self.name}
