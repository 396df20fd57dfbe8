"""How new observations are: what a network cannot predict yet of the answers of a random one."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from pytorchrl.agent.actors.actor import Actor
from pytorchrl.agent.actors.heads import Features
from pytorchrl.agent.actors.layers.normalization import ObservationNormalization, RunningNormalization
from pytorchrl.agent.algorithms.rows import Rows
from storages.transition import OBS2

_LARGEST = 5.0  # of normalised numbers, as in the paper


class Novelty:
    """A random network, a predictor of it, and the statistics of what they see and of their differences.

    Burda et al., "Exploration by Random Network Distillation" (arXiv 1810.12894), sections 2.2 and 2.4.

    Args:
        actor: makes the networks, and saves them and the statistics.
        size: numbers that the random network makes of an observation, and units of the predictor's layers.
    """

    def __init__(self, actor: Actor, size: int) -> None:
        self.seen = ObservationNormalization(actor.observation_space, images=True, largest=_LARGEST)
        self.random = actor.make_apart("random", Features(size), self.seen).requires_grad_(False)
        self.predictor = actor.make_apart("predictor", Features(size, (size, size)), self.seen)
        self._scale = RunningNormalization((1,))
        actor.add("intrinsic_returns", self._scale)
        self._returns = torch.zeros((0, 1), device=actor.device)
        """(E, 1): discounted sums of errors up to now; of no environment before the first rollout."""

    def count(self, rows: Rows) -> None:
        """Count what followed into the statistics of observations."""
        self.seen.add(rows[OBS2])

    def errors(self, rows: Rows) -> Tensor:
        """(N, 1): the predictor's, of what followed."""
        error: Tensor = self.predictor(rows.next) - self.random(rows.next)
        return error.square().mean(1, keepdim=True)

    @torch.no_grad()
    def scaled(self, errors: Tensor, gamma: float) -> Tensor:
        """Errors (T, E, 1) of the newest steps over the standard deviation of their discounted sums so far.

        Args:
            errors: (T, E, 1).
            gamma: discount factor of one step.
        """
        if not len(self._returns):
            self._returns = torch.zeros_like(errors[0])
        for error in errors:
            self._returns = self._returns * gamma + error
            self._scale.add(self._returns)
        self._scale.use_newest()
        return errors * self._scale.scale

    def state_dict(self) -> dict[str, Any]:
        """What the actor does not save."""
        return {"returns": self._returns}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state returned by `state_dict`."""
        self._returns = state["returns"].to(self._returns.device)
