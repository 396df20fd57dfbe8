"""Novelty of observations: errors in predicting the features of a fixed random network."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from pytorchrl.agent.actors.actor import Actor
from pytorchrl.agent.actors.heads import Features
from pytorchrl.agent.actors.layers.normalization import ObservationNormalization, RunningNormalization
from pytorchrl.agent.algorithms.rows import Rows
from storages.transition import OBS2, SKIPPED

_LARGEST = 5.0  # bound of normalised observations, as in the paper


class Novelty:
    """A fixed random network, its predictor, and the statistics that normalise observations and errors.

    Burda et al., "Exploration by Random Network Distillation" (arXiv 1810.12894), sections 2.2 and 2.4.

    Args:
        actor: makes the networks, and saves them and the statistics.
        size: output size of the random network, and units of the predictor's layers.
    """

    def __init__(self, actor: Actor, size: int) -> None:
        self.seen = ObservationNormalization(actor.encoded_space, images=True, largest=_LARGEST)
        self.random = actor.make_apart("random", Features(size), self.seen).requires_grad_(False)
        self.predictor = actor.make_apart("predictor", Features(size, (size, size)), self.seen)
        self._scale = RunningNormalization((1,))
        actor.add("intrinsic_returns", self._scale)
        self._returns = torch.zeros((0, 1), device=actor.device)
        """(E, 1): running discounted sums of errors; E is 0 before the first rollout."""

    def count(self, rows: Rows) -> None:
        """Add the next observations of steps that were made to the statistics."""
        seen: Any = rows[OBS2]
        if SKIPPED in rows.batch:
            made = rows[SKIPPED][:, 0] == 0
            if not made.any():
                return
            seen = {name: part[made] for name, part in seen.items()} if isinstance(seen, dict) else seen[made]
        self.seen.add(seen)

    def errors(self, rows: Rows) -> Tensor:
        """Return the predictor's mean squared errors (N, 1) for next observations."""
        error: Tensor = self.predictor(rows.next) - self.random(rows.next)
        return error.square().mean(1, keepdim=True)

    @torch.no_grad()
    def scaled(self, errors: Tensor, gamma: float, made: Tensor | None = None) -> Tensor:
        """Return errors (T, E, 1) divided by the running standard deviation of their discounted sums.

        Args:
            errors: (T, E, 1), of the newest steps.
            gamma: discount factor of one step.
            made: (T, E, 1), whether each step was made; others get 0. None where all were.
        """
        if not len(self._returns):
            self._returns = torch.zeros_like(errors[0])
        for step, error in enumerate(errors):
            returns = self._returns * gamma + error
            if made is None:
                self._returns = returns
                self._scale.add(returns)
            else:
                self._returns = torch.where(made[step], returns, self._returns)
                if made[step].any():
                    self._scale.add(self._returns[made[step]][:, None])
        self._scale.use_newest()
        scaled = errors * self._scale.scale
        return scaled if made is None else scaled * made

    def state_dict(self) -> dict[str, Any]:
        """Return the state that is not part of the actor's."""
        return {"returns": self._returns}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state returned by `state_dict`."""
        self._returns = state["returns"].to(self._returns.device)
