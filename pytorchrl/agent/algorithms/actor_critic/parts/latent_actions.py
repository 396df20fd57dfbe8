"""Latent actions in exploration, in storages, and in batches."""

from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor

from pytorchrl.agent.actors.codec import ActionCodec
from pytorchrl.agent.algorithms.actor_critic.parts.hybrid_representation import HybridRepresentation
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.explorers import Exploration, Explorer
from storages.transition import Batch

LATENT_ACTION = "LatentAction"
"""(E, size): latent action of which ACT was decoded, in [-1, 1]; other numbers where it was not."""
NO_LATENT_ACTION = 2.0
"""Stands for each number of a latent action that there is not."""


def no_latent_action(action: Tensor, size: int) -> Tensor:
    """Return what is stored (E, size) of actions (E, A) that were not decoded of latent ones."""
    return action.new_full((len(action), size), NO_LATENT_ACTION)


def explored(explorer: Explorer, policy: Callable[[], Tensor], exploration: Exploration) -> tuple[Tensor, bool]:
    """Return the explorer's choice, and whether it is of the policy's latent actions (E, size), or random (E, A).

    Explorers draw random actions from the environment's, and do not ask the policy then.
    """
    asked: list[Tensor] = []

    def latent_action() -> Tensor:
        asked.append(policy())
        return asked[0]

    chosen = explorer.act(latent_action, exploration)
    return chosen, bool(asked)


class LatentRows(Rows):
    """Rows whose actions are latent ones, corrected by the present representation.

    Args:
        batch: of a storage, with or without latent actions.
        codec: of the actions.
        representation: of the actions.
        noise: standard deviation of the noise on replaced embeddings.
        generator: of the random numbers.
    """

    def __init__(
        self,
        batch: Batch,
        codec: ActionCodec,
        representation: HybridRepresentation,
        noise: float,
        generator: torch.Generator,
    ) -> None:
        super().__init__(batch, codec)
        self._representation, self._noise, self._generator = representation, noise, generator

    @cached_property
    def action(self) -> Tensor:
        """(N, size)."""
        learnt, action = self._representation, Rows(self.batch, self._codec).action
        stored = self[LATENT_ACTION] if LATENT_ACTION in self.batch else no_latent_action(action, learnt.size)
        return learnt.corrected(self.now, action, stored, self._noise, self._generator)
