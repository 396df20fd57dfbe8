"""MBPO: SAC on short rollouts of a learnt model."""

from collections.abc import Mapping
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from pytorchrl.agent.algorithms.actor_critic.sac import SAC
from pytorchrl.agent.algorithms.model_based.dynamics_model import Predicted, make_dynamics_model, predictable, unrounded
from pytorchrl.agent.algorithms.needs import Needs
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.envs.vec_env import VecEnv
from storages.component.hyper_parameters import Count, NonNegativeOrSchedule, UnitInterval, Within
from storages.component.schedule import Schedule
from storages.transition import ACT, DISCOUNT, OBS, OBS2, REW


class MBPO(SAC):
    """Janner et al., "When to Trust Your Model: Model-Based Policy Optimization" (arXiv 1906.08253).

    SAC's batches are transitions of the model, drawn by the current policy in each update; the paper keeps those
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
    unchangeable = frozenset({"ensemble_size"})

    num_mini_batch: Count = 10
    ensemble_size: Count = 5
    lr_model: NonNegativeOrSchedule = 1e-3
    rollout_length: Annotated[float | Schedule, Within(1)] = 1
    real_share: UnitInterval = 0.05

    @classmethod
    def check_spaces(cls, envs: VecEnv) -> None:
        """Raise UnsupportedSpaceError also where a model cannot predict the observations of the environments."""
        super().check_spaces(envs)
        predictable(envs.observation_space, cls.__name__)

    def build(self) -> None:
        """Make the networks of SAC, and the model."""
        self.model = make_dynamics_model(self, self.ensemble_size, probabilistic=True)
        self.train_model = self.train("model", self.model.networks, lr="lr_model", max_grad_norm=None)
        super().build()

    def losses(self, rows: Rows) -> Losses:
        """Return the losses of the critics on transitions of the model, and that of the model, with its errors."""
        losses, model = super().losses(self.imagined(rows)), self.model.losses(rows)
        metrics = {"model_loss": model.loss.detach(), "model_error": rows.mean(model.errors)}
        of = {**losses.of, self.train_model: model.loss}
        return Losses(of, {**losses.metrics, **metrics}, rows.per_row(model.errors))

    def losses_after_step(self, rows: Rows) -> Losses | None:
        """Return the losses of policy and temperature in observations from which steps of the model begin."""
        obs, _ = self._beginnings(rows)
        return super().losses_after_step(self.read({OBS: obs, REW: rows.reward}))

    @torch.no_grad()
    def imagined(self, rows: Rows) -> Rows:
        """Return transitions of the model, and ``real_share`` of the storage's own, as many as there are rows."""
        obs, are_real = self._beginnings(rows)
        action = self.pi(self.actor.view(obs)).sample(self.generator)
        predicted = self.model.rollouts().step(obs.flatten(1), action, self.generator)
        made = {
            OBS: obs,
            ACT: self.codec.to_env(action),
            REW: predicted.reward,
            OBS2: predicted.obs.view_as(obs),
            DISCOUNT: self.gamma * _goes_on(predicted).float(),
        }
        return self.read({key: _where(are_real, rows[key], field) for key, field in made.items()})

    @torch.no_grad()
    def _beginnings(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """Return the observations (N, *obs) from which steps begin, and whether these are a row's own, (N, 1)."""
        longest, obs = round(self.current(self.rollout_length)), unrounded(rows[OBS])
        are_real = torch.rand(rows.reward.shape, device=obs.device, generator=self.generator) < self.real_share
        before = torch.randint(longest, are_real.shape, device=obs.device, generator=self.generator)
        before.masked_fill_(are_real, 0)
        rollouts = self.model.rollouts()
        for step in range(longest - 1):
            action = self.pi(self.actor.view(obs)).sample(self.generator)
            predicted = rollouts.step(obs.flatten(1), action, self.generator)
            # Where the episode ends, the step that ends it is the last one.
            before.masked_fill_(~_goes_on(predicted), 0)
            obs = _where(before > step, predicted.obs.view_as(obs), obs)
        return obs, are_real


def _goes_on(predicted: Predicted) -> Tensor:
    return predicted.goes_on > 0.5


def _where(rows: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Return ``first`` (N, ...) in the rows (N, 1) that are true, else ``second``."""
    return torch.where(rows.view(-1, *[1] * (first.ndim - 1)), first, second)
