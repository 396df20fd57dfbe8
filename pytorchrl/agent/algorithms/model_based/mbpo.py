"""MBPO: SAC on short rollouts of a learnt model."""

from collections.abc import Mapping
from typing import Annotated, ClassVar

import torch

from pytorchrl.agent.actors.view import Observations
from pytorchrl.agent.algorithms.actor_critic.sac import SAC
from pytorchrl.agent.algorithms.model_based.parts.dynamics_model import DynamicsModel, make_dynamics_model
from pytorchrl.agent.algorithms.needs import Needs
from pytorchrl.agent.algorithms.results import Losses, Result
from pytorchrl.agent.algorithms.rows import Rows
from storages.component.hyper_parameters import Count, NonNegativeOrSchedule, UnitInterval, Within
from storages.component.schedule import Schedule
from storages.transition import ACT, DISCOUNT, OBS, OBS2, REW, Batch

_REAL = "REAL"
"""Key of the storage's batch in one with transitions of the model."""


class MBPO(SAC):
    """Janner et al., "When to Trust Your Model: Model-Based Policy Optimization" (arXiv 1906.08253).

    SAC's batches are transitions of the model, drawn anew by the current policy in each update; the paper keeps those
    of the last 1,000 steps. The model learns in every update from the storage's batch, whose errors it determines.

    Args:
        ensemble_size: networks of the model.
        lr_model: learning rate of the model.
        rollout_length: most steps of the model from an observation of the storage (k). A row is one of the first k
            steps, or the last one of an episode that ends before; fractions of a schedule are rounded.
        real_share: share of the storage's own transitions in SAC's batches.

    Raises:
        ValueError: observations are not a Box of floating-point numbers, or the actor has a memory.
    """

    sources: ClassVar[Mapping[str, Needs]] = {"main": Needs("replay", single_steps=True)}
    unchangeable = SAC.unchangeable | {"ensemble_size"}

    num_mini_batch: Count = 10
    ensemble_size: Count = 5
    lr_model: NonNegativeOrSchedule = 1e-3
    rollout_length: Annotated[float | Schedule, Within(1)] = 1
    real_share: UnitInterval = 0.05

    def build(self) -> None:
        """Make the networks of SAC, and the model."""
        name = type(self).__name__
        self.model: DynamicsModel = make_dynamics_model(
            self.actor, self.codec, self.ensemble_size, self.generator, name, probabilistic=True
        )
        self.train_model = self.train("model", self.model.networks, lr="lr_model")
        super().build()

    def update(self, batch: Batch) -> Result:
        """Update the model on a batch of the storage, and SAC's networks on transitions of the model."""
        return super().update(self.with_imagined(batch))

    def compute_gradients(self, batch: Batch) -> tuple[dict[str, torch.Tensor], Result]:
        """Return the gradients of :meth:`update`."""
        return super().compute_gradients(self.with_imagined(batch))

    def losses(self, rows: Rows) -> Losses:
        """Return the losses of the critics and the model, with the model's errors."""
        losses, real = super().losses(rows), self.read(rows.batch[_REAL])
        model = self.model.losses(real)
        metrics = {"model_loss": model.loss.detach(), "model_error": real.mean(model.errors)}
        return Losses(
            {**losses.of, self.train_model: model.loss},
            {**losses.metrics, **metrics},
            real.per_row(model.errors),
            gradients=losses.gradients,
        )

    @torch.no_grad()
    def with_imagined(self, batch: Batch) -> Batch:
        """Return a batch of as many transitions of the model, and ``real_share`` of those of the batch in their place.

        Args:
            batch: of the storage; under "REAL" of the result.
        """
        real = self.read(batch)
        longest = round(self.current(self.rollout_length))
        wanted = torch.randint(1, longest + 1, (len(real), 1), device=self.device, generator=self.generator)
        rollouts = self.model.rollouts()
        obs, running = batch[OBS].float(), torch.ones_like(real.reward, dtype=torch.bool)
        imagined: Batch = {}
        for step in range(1, longest + 1):
            action = self.pi(Observations(obs)).sample(self.generator)
            predicted = rollouts.step(obs.flatten(1), action, self.generator)
            obs2, goes_on = predicted.obs.view_as(obs), predicted.goes_on > 0.5
            fields = {
                OBS: obs,
                ACT: self.codec.to_env(action),
                REW: predicted.reward,
                OBS2: obs2,
                DISCOUNT: self.gamma * goes_on.float(),
            }
            imagined = _chosen(running, fields, imagined) if imagined else fields
            obs, running = obs2, running & goes_on & (wanted > step)
        own = torch.rand(real.reward.shape, device=self.device, generator=self.generator) < self.real_share
        return {**_chosen(own, batch, imagined), _REAL: batch}


def _chosen(rows: torch.Tensor, first: Batch, second: Batch) -> Batch:
    """Return the fields of ``second``, with those of ``first`` where ``rows`` (N, 1) is true."""
    return {
        key: torch.where(rows.view(-1, *[1] * (field.ndim - 1)), first[key], field) for key, field in second.items()
    }
