"""HyAR: TD3 in a learnt space of latent actions, which are decoded to discrete choices with parameters."""

from collections import deque
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import cast

import torch
from torch import Tensor

from pytorchrl.agent.actors.actor import Head
from pytorchrl.agent.actors.codec import ActionCodec
from pytorchrl.agent.actors.heads import ActionValue, DeterministicPolicy
from pytorchrl.agent.actors.network import Ensemble
from pytorchrl.agent.actors.view import View
from pytorchrl.agent.algorithms.actor_critic.hybrid_representation import HybridRepresentation
from pytorchrl.agent.algorithms.actor_critic.td3 import TD3
from pytorchrl.agent.algorithms.results import Losses, Metrics
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.envs.spaces import HybridBox
from pytorchrl.agent.explorers import Exploration
from storages.component.hyper_parameters import Count, CountOrZero, NonNegative, NonNegativeOrSchedule, UnitInterval
from storages.storage import Storage
from storages.transition import Batch

LATENT_ACTION = "LatentAction"
"""(E, size): latent action of which ACT was decoded, in [-1, 1]; other numbers where it was not."""
NO_LATENT_ACTION = 2.0
"""Stands for each number of a latent action that there is not."""
_ROWS_OF_SCALE = 5_000  # from which bounds and tolerance are computed, as in the authors' code


class HyAR(TD3):
    """TD3 in a learnt space of latent actions, which stand for discrete choices with parameters.

    Embeddings of choices and a conditional variational autoencoder of parameters learn a representation of actions,
    first from random steps, later at intervals from the storage. Stored latent actions are replaced where they mean
    others by now. Li et al., "HyAR: Addressing Discrete-Continuous Action Reinforcement Learning via Hybrid Action
    Representation" (arXiv 2109.05490), algorithm 1.

    Args:
        embedding_size: numbers of the embedding of a choice (d1).
        latent_size: numbers of the latent of the parameters (d2).
        lr_representation: learning rate of embeddings and autoencoder.
        pretraining_updates: updates of the representation in the first update phase.
        representation_every: updates of the critics between later phases in which the representation alone learns.
        representation_updates: updates of the representation in such a phase.
        kl_weight: weight of the KL divergence of the latents from a standard normal distribution, beside the squared
            error of decoded parameters in [-1, 1].
        dynamics_weight: weight of the error of the predicted change of the observation (beta), of a Dict in its parts
            of floating-point numbers; 0 predicts none.
        embedding_noise: standard deviation of the noise on the embedding that replaces a stored one.
        latent_range: share of the latents of recent actions, in the middle of each dimension, that the policy reaches.

    Raises:
        ValueError: changes are to be predicted, and observations have no floating-point numbers.
    """

    actions = "hybrid"
    unchangeable = frozenset({"embedding_size", "latent_size", "dynamics_weight"})

    embedding_size: Count = 6
    latent_size: Count = 6
    lr_representation: NonNegativeOrSchedule = 1e-3
    pretraining_updates: CountOrZero = 5_000
    representation_every: Count = 1_000
    representation_updates: Count = 20
    kl_weight: NonNegative = 0.05
    dynamics_weight: NonNegative = 1.0
    embedding_noise: NonNegative = 0.1
    latent_range: UnitInterval = 0.96

    def build(self) -> None:
        """Make the representation, and the networks of TD3 for latent actions."""
        # Others are refused before.
        space = cast("HybridBox", self.action_space)
        arguments = self.actor, space, self.embedding_size, self.latent_size
        learnt = self.representation = HybridRepresentation(*arguments, predicts=self.dynamics_weight > 0)
        self.train_representation = self.train(
            "representation", *learnt.networks, lr="lr_representation", max_grad_norm=None
        )
        self.training.counters["represented_at"] = 0
        super().build()

    def policy_head(self) -> Head:
        """Return a deterministic head for latent actions."""
        return DeterministicPolicy(size=self.representation.size)

    def make_critics(self) -> Ensemble:
        """Return the critics, of observations and latent actions."""
        return self.actor.make_ensemble("critics", ActionValue(), self.num_critics, beside=self.representation.size)

    def policy(self, view: View, exploration: Exploration) -> Tensor:
        """Return the decoded actions of the policy."""
        return self.representation.action(view, self.pi(view))

    def act(self, view: View, exploration: Exploration) -> tuple[Tensor, Mapping[str, Tensor]]:
        """Return actions decoded of explored latent ones, or random actions; and the latent actions."""
        if exploration.deterministic:
            return self.policy(view, exploration), {}
        latent: list[Tensor] = []

        def latent_action() -> Tensor:
            latent.append(self.pi(view))
            return latent[0]

        # Explorers draw random actions from the environment's, and do not ask the policy then.
        chosen = self._explorer.act(latent_action, exploration)
        if latent:
            return self.representation.action(view, chosen), {LATENT_ACTION: chosen}
        return chosen, {LATENT_ACTION: _no_latent_action(chosen, self.representation.size)}

    @property
    def optional_fields(self) -> Mapping[str, tuple[int, float]]:
        """The latent actions, which data lack."""
        return {LATENT_ACTION: (self.representation.size, NO_LATENT_ACTION)}

    def read(self, batch: Batch) -> Rows:
        """Return a batch as rows, whose actions are latent ones."""
        seen = self.actor.with_float32_observations(batch)
        return _LatentRows(batch, self.codec, self.representation, self.embedding_noise, self.generator, seen)

    def _read_actions(self, batch: Batch) -> Rows:
        """Return a batch as rows, whose actions are the environments' own."""
        return super().read(batch)

    def update_phase(self, sources: Mapping[str, Storage]) -> Iterator[Metrics]:
        """Update the representation if it is due, else policy and critics; yields the metrics of each update."""
        due = self._updates_of_representation()
        if not due:
            yield from super().update_phase(sources)
            return
        recent: deque[Batch] = deque(maxlen=max(1, _ROWS_OF_SCALE // self.mini_batch_size))
        for batch in sources["main"].generate_batches(due, self.mini_batch_size):
            yield self.update_representation(batch)
            recent.append(batch)
        rows = [self._read_actions(batch) for batch in recent]
        self.representation.set_scale(rows, self.latent_range, self.generator)
        self.training.counters["represented_at"] = self.updates

    def _updates_of_representation(self) -> int:
        """Return how many updates of the representation are due now."""
        left = self.pretraining_updates - int(self.representation.latents.updates)
        if left > 0:
            return left
        since = self.updates - self.training.counters["represented_at"]
        return self.representation_updates if since >= self.representation_every else 0

    def update_representation(self, batch: Batch) -> Metrics:
        """Update embeddings and autoencoder on one batch."""
        losses = self.representation.losses(self._read_actions(batch), self.generator)
        loss = losses.weighted(self.kl_weight, self.dynamics_weight)
        self.minimise(Losses({self.train_representation: loss}))
        self.representation.latents.updates.add_(1)
        return {"representation_loss": loss.detach(), **losses.metrics}


class _LatentRows(Rows):
    """Rows whose actions are latent ones, corrected by the present representation.

    Args:
        batch: of a storage, with or without latent actions.
        codec: of the actions.
        representation: of the actions.
        noise: standard deviation of the noise on replaced embeddings.
        generator: of the random numbers.
        seen: as of :class:`Rows`.
    """

    def __init__(
        self,
        batch: Batch,
        codec: ActionCodec,
        representation: HybridRepresentation,
        noise: float,
        generator: torch.Generator,
        seen: Batch,
    ) -> None:
        super().__init__(batch, codec, seen)
        self._representation, self._noise, self._generator = representation, noise, generator

    @cached_property
    def action(self) -> Tensor:
        """(N, size)."""
        learnt, action = self._representation, Rows(self.batch, self._codec).action
        stored = self[LATENT_ACTION] if LATENT_ACTION in self.batch else _no_latent_action(action, learnt.size)
        return learnt.correct(self.now, action, stored, self._noise, self._generator)


def _no_latent_action(action: Tensor, size: int) -> Tensor:
    """Return the latent actions (E, size) stored with actions (E, A) that have none."""
    return action.new_full((len(action), size), NO_LATENT_ACTION)
