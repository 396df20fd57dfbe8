"""RND: PPO that is also paid for what is new, which is what a network cannot predict of another's answers."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor

from pytorchrl.agent.actors.heads import StateValue
from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.actors.view import View
from pytorchrl.agent.algorithms.needs import Needs
from pytorchrl.agent.algorithms.policy_gradient.parts.novelty import Novelty
from pytorchrl.agent.algorithms.policy_gradient.parts.value_regression import ValueFit
from pytorchrl.agent.algorithms.policy_gradient.ppo import PPO
from pytorchrl.agent.algorithms.results import Losses, Metrics
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.explorers import Exploration
from storages.component.hyper_parameters import Count, NonNegative, NonNegativeOrSchedule, UnitInterval, Within
from storages.storage import Storage
from storages.transition import ADV, IADV, IRET, IREW, IVAL, LOGP, Batch

_AT_ONCE = 512  # transitions: as float64, in which they are counted, so many stacks of 4 frames of 84 x 84 take 116 MB


class RND(PPO):
    """Burda et al., "Exploration by Random Network Distillation" (arXiv 1810.12894).

    An intrinsic reward is the squared error of a predictor, which learns what a random network that does not change
    makes of the next observation. It has a value function and returns apart, which by default reach beyond the ends of
    episodes. The policy's advantage is a weighted sum of both.

    Args:
        lr_predictor: learning rate of the predictor.
        num_features: numbers that the random network makes of an observation, and units of the predictor's layers.
        predictor_share: share of a batch's transitions, drawn at random, that the predictor learns from.
        intrinsic_gamma: discount factor of one step of intrinsic rewards.
        intrinsic_returns_end: let intrinsic returns end with episodes.
        intrinsic_coef: weight of intrinsic advantages.
        extrinsic_coef: weight of the environment's advantages.
    """

    sources: ClassVar[Mapping[str, Needs]] = {"main": Needs("rollout", intrinsic=True)}

    lr_predictor: NonNegativeOrSchedule = 1e-4
    num_features: Count = 128
    predictor_share: Annotated[UnitInterval, Within(0, float("inf"), open=True)] = 0.25
    intrinsic_gamma: UnitInterval = 0.99
    intrinsic_returns_end: bool = False
    intrinsic_coef: NonNegative = 1.0
    extrinsic_coef: NonNegative = 2.0

    def build(self) -> None:
        """PPO's networks, a value function of intrinsic rewards, the random network and its predictor."""
        super().build()
        self.novelty = Novelty(self.actor, self.num_features)
        self.intrinsic_regression = self.regression_of(self.intrinsic_value)
        self.train_predictor = self.train("predictor", self.novelty.predictor, lr="lr_predictor")

    def make_networks(self) -> tuple[Network, ...]:
        """PPO's, and the value function of intrinsic rewards."""
        networks = super().make_networks()
        self.intrinsic_value = self.actor.make("intrinsic_value", StateValue(), acts=True)
        return *networks, self.intrinsic_value

    def value_functions(self) -> Mapping[str, Network]:
        """PPO's, and that of intrinsic rewards."""
        return {**super().value_functions(), IVAL: self.intrinsic_value}

    def act(self, view: View, exploration: Exploration) -> tuple[Tensor, Mapping[str, Tensor]]:
        """As PPO, with room for the intrinsic reward, which is known once the rollout is full."""
        action, fields = super().act(view, exploration)
        return action, {**fields, IREW: torch.zeros_like(fields[LOGP])} if fields else fields

    def update_phase(self, sources: Mapping[str, Storage]) -> Iterator[Metrics]:
        """Pay for what is new in the rollout, then learn from it."""
        reward = self._intrinsic_rewards(sources["main"])
        sources["main"].insert_single_tensor_slice(IREW, reward)
        for metrics in super().update_phase(sources):
            yield metrics | {"intrinsic_reward": reward.mean()}

    def batches(self, source: Storage) -> Iterator[Batch]:
        """As PPO's, of the weighted sum of both advantages."""
        advantage, intrinsic = source.ring.rollout(ADV), source.ring.rollout(IADV)
        source.insert_single_tensor_slice(ADV, self.extrinsic_coef * advantage + self.intrinsic_coef * intrinsic)
        return super().batches(source)

    def losses(self, rows: Rows) -> Losses:
        """PPO's, with the error of the intrinsic value function, and the predictor's on some of the transitions."""
        losses = super().losses(rows)
        if losses.stop:
            return losses
        errors = self.novelty.errors(rows)
        kept = torch.empty_like(errors).bernoulli_(self.predictor_share, generator=self.generator)
        loss = rows.mean(errors * kept) / self.predictor_share
        metrics = losses.metrics | {"predictor_loss": loss.detach()}
        return replace(losses, of={**losses.of, self.train_predictor: loss}, metrics=metrics)

    def fit_value(self, rows: Rows) -> ValueFit:
        """The sum of both value functions' losses."""
        extrinsic, intrinsic = (
            super().fit_value(rows),
            self.intrinsic_regression(rows[IRET], rows, self.value_loss_coef),
        )
        return ValueFit(extrinsic.loss + intrinsic.loss, {**extrinsic.gradients, **intrinsic.gradients})

    @torch.no_grad()
    def _intrinsic_rewards(self, rollout: Storage) -> Tensor:
        """(T, E, 1): of all transitions, by observations normalised with those of the rollout counted in."""
        steps, length = len(rollout) // rollout.num_envs, max(1, _AT_ONCE // rollout.num_envs)
        slices = [(start, min(start + length, steps)) for start in range(0, steps, length)]
        for start, end in slices:
            self.novelty.count(self.read(rollout.get_data_slice(start, end)))
        self.novelty.seen.use_newest()
        parts = (self.read(rollout.get_data_slice(start, end)) for start, end in slices)
        errors = torch.cat([rows.per_row(self.novelty.errors(rows)) for rows in parts])
        return self.novelty.scaled(errors, self.intrinsic_gamma)

    def state_dict(self) -> dict[str, Any]:
        """As of every algorithm, and what scales intrinsic rewards."""
        return super().state_dict() | {"novelty": self.novelty.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state returned by `state_dict`."""
        super().load_state_dict(state)
        self.novelty.load_state_dict(state["novelty"])
