"""TDMPC2: planning in a learnt latent space, with a policy and values that are learnt in it."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from pytorchrl.agent.actors.heads import DistributionHead, SquashedGaussianPolicy, check_bounded
from pytorchrl.agent.actors.heads.two_hot import TwoHotNumber
from pytorchrl.agent.actors.outputs import DiagonalGaussian
from pytorchrl.agent.actors.presets import OffPolicyActor
from pytorchrl.agent.actors.view import Observations, View
from pytorchrl.agent.algorithms.actor_critic.critics import average, smallest
from pytorchrl.agent.algorithms.model_based.embedding_model import EmbeddingModel, Simplices, Unrolled
from pytorchrl.agent.algorithms.model_based.mb_mpc import PLAN, remaining_plan
from pytorchrl.agent.algorithms.needs import Needs
from pytorchrl.agent.algorithms.off_policy import OffPolicyAlgorithm, Preset
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.explorers import Exploration, Explorer, Greedy, Sample, explorer_for
from pytorchrl.agent.optimizers import SGD
from pytorchrl.agent.planners import ElitePathIntegral, Planner
from storages.component.factory import make_factory
from storages.component.hyper_parameters import (
    Count,
    CountOrZero,
    NonNegative,
    NonNegativeOrSchedule,
    Positive,
    UnitInterval,
    Within,
)
from storages.off_policy.replay_buffer import ReplayBuffer
from storages.sequence_settings import Sequences
from storages.storage import Storage
from storages.transition import Batch

_LEAST = -1e30
"""Return of sequences for which the model has none."""


class TDMPC2(OffPolicyAlgorithm):
    """Hansen et al., "TD-MPC2: Scalable, Robust World Models for Continuous Control" (arXiv 2310.16828).

    It learns from sequences, along which latent states are predicted: the horizon of the losses is the length of the
    storage's ``sequences``, 3 in the paper. All losses are computed with the weights before the step. Ends of episodes
    are predicted, too, which the paper's environments do not have. :meth:`paper` is a complete preset.

    Args:
        planner: search for actions in each step, of which sequences of the policy are proposals; None acts by the
            policy alone.
        distribution: of the policy's actions, within their bounds and reparameterised.
        latent_size: numbers of a latent state.
        simplex_size: numbers of a latent state that add up to 1 (V); divides ``latent_size``.
        num_critics: number of critics, of which two are drawn for each target, value of the policy, and return.
        num_bins: bins of the symmetric logarithm of rewards and returns.
        largest_log: the bins lie between minus and plus this.
        rho: weight of a step in the losses relative to the step before it (lambda in the paper's section 3.1).
        consistency_coef: weight of the error of predicted latent states.
        reward_coef: weight of the loss of rewards.
        value_coef: weight of the loss of values.
        termination_coef: weight of the loss of the ends of episodes; 0 predicts none.
        entropy_coef: weight of the policy's entropy, in units of the range of values (beta).
        lr: learning rate of model and critics.
        encoder_share: share of it that the encoder has.
        lr_pi: learning rate of the policy.
        range_rate: weight of a batch in the running range of values, between their percentiles 5 and 95 and at least 1,
            by which the policy's values are divided.
        polyak: weight that target critics keep in each of their updates.
        target_update_interval: updates between updates of the target critics.
        pretraining_updates: batches of the first update phase, on random steps.

    Raises:
        ValueError: ``simplex_size`` does not divide ``latent_size``, or actions of the distribution may exceed bounds.
    """

    actions = "bounded"
    sources: ClassVar[Mapping[str, Needs]] = {"main": Needs("replay", single_steps=True, multi_step_rows=True)}
    unchangeable = frozenset({
        "distribution", "latent_size", "simplex_size", "num_critics", "num_bins", "largest_log", "termination_coef",
    })  # fmt: skip

    planner: Planner | None = ElitePathIntegral()
    distribution: DistributionHead = SquashedGaussianPolicy(smallest_log_std=-10.0, smooth_bounds=True)
    latent_size: Count = 128
    simplex_size: Count = 8
    num_critics: Annotated[int, Within(2)] = 2
    num_bins: Annotated[int, Within(2)] = 101
    largest_log: Positive = 10.0
    rho: UnitInterval = 0.5
    consistency_coef: NonNegative = 20.0
    reward_coef: NonNegative = 0.1
    value_coef: NonNegative = 0.1
    termination_coef: NonNegative = 1.0
    entropy_coef: NonNegativeOrSchedule = 1e-4
    lr: NonNegativeOrSchedule = 3e-4
    encoder_share: UnitInterval = 0.3
    lr_pi: NonNegativeOrSchedule = 3e-4
    range_rate: NonNegativeOrSchedule = 0.01
    polyak: UnitInterval = 0.99
    target_update_interval: Count = 1
    pretraining_updates: CountOrZero = 1_000
    max_grad_norm: Positive | None = 20.0

    @classmethod
    def check_hyper_parameters(cls, hyper_parameters: Mapping[str, Any]) -> None:
        """Check the sizes, and that the distribution is over bounded actions."""
        super().check_hyper_parameters(hyper_parameters)
        check_bounded(hyper_parameters["distribution"], cls.__name__)
        size, part = hyper_parameters["latent_size"], hyper_parameters["simplex_size"]
        if size % part:
            raise ValueError(f"{cls.__name__}: simplex_size must divide latent_size={size}, got {part}")

    def build(self) -> None:
        """Make model, policy, critics and target critics."""
        size, states = self.latent_size, Simplices(self.latent_size, self.simplex_size)
        numbers = TwoHotNumber(self.num_bins, self.largest_log, of_logarithms=True, gain=0.01)
        self.model = EmbeddingModel(self.actor, self.codec, states, numbers, predicts_ends=self.termination_coef > 0)
        self.pi = self.actor.make("policy", self.distribution, vectors=size)
        self.critics = self.actor.make_ensemble("critics", numbers, self.num_critics, codec=self.codec, vectors=size)
        trained = *self.model.networks, self.critics
        self.train_model = self.train("model", *trained, shares={self.model.encoder: "encoder_share"})
        self.train_pi = self.train("policy", self.pi, lr="lr_pi")
        # By plain gradient descent on half a squared error, it is a running mean.
        self.train_range = self.variable("value_range", 1.0, lr="range_rate", optimizer=SGD())
        self.target_critics = self.target(self.critics, every="target_update_interval")
        # On the CPU, as drawing on the device would require a synchronisation.
        self.subset_generator = torch.Generator()

    def batches(self, source: Storage) -> Iterator[Batch]:
        """Yield ``num_mini_batch`` batches, or ``pretraining_updates`` at first if these are more."""
        first = 0 if self.updates else self.pretraining_updates
        return source.generate_batches(max(self.num_mini_batch, first), self.mini_batch_size)

    def losses(self, rows: Rows) -> Losses:
        """Return the losses of model and critics, of the policy, and of the range of values (section 3.1)."""
        steps = self.model.unroll(rows, self.rho)
        with torch.no_grad():
            following: Tensor = self.model.encoder(rows.next)
        target, view = self.target_value(rows, following), Observations(steps.latent)
        values = self.critics(view, rows.action)
        consistency = (steps.predicted - following).square().mean(1, keepdim=True)
        reward_loss = (reward := self.model.reward(view, rows.action)).loss(reward.code(rows.reward))
        value_loss = torch.stack([each.loss(each.code(target)) for each in values]).mean(0)
        weighted = self.consistency_coef * consistency + self.reward_coef * reward_loss + self.value_coef * value_loss
        model_loss = rows.weighted_mean(steps.decay * weighted)
        metrics = {"consistency_loss": consistency, "reward_loss": reward_loss, "value_loss": value_loss}
        if self.model.termination is not None:
            odds = self.model.termination(Observations(steps.predicted))
            ends = F.binary_cross_entropy_with_logits(odds, (rows.discount == 0).to(odds.dtype), reduction="none")
            model_loss = model_loss + self.termination_coef * rows.weighted_mean(steps.continues * ends)
            metrics["termination_loss"] = ends
        policy_loss, range_loss, of_policy = self.losses_of_policy(rows, steps)
        errors = average(values).mean.detach() - target
        losses = {self.train_model: model_loss, self.train_pi: policy_loss, self.train_range: range_loss}
        means = {name: rows.mean(each.detach()) for name, each in metrics.items()}
        return Losses(losses, {"model_loss": model_loss.detach(), **means, **of_policy}, rows.per_row(errors.abs()))

    @torch.no_grad()
    def target_value(self, rows: Rows, following: Tensor) -> Tensor:
        """Return the targets (N, 1) of values, with the smaller one of two target critics in the next state."""
        view = Observations(following)
        action = self.pi(view).sample(self.generator)
        value = smallest([self.target_critics[number](view, action) for number in self._two_critics()])
        return rows.reward + rows.discount * value.mean

    def losses_of_policy(self, rows: Rows, steps: Unrolled) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Return the losses of the policy and of the range of values, and metrics; no gradient reaches the states."""
        view, weight = steps.all_states(rows.mean_weights, self.rho)
        action, log_prob = self.pi(view).sample_with_log_prob(self.generator)
        with self.critics.frozen():
            value = average([self.critics[number](view, action) for number in self._two_critics()]).mean
        value_range = self.training.variables["value_range"]
        policy_loss = (weight * (self.current(self.entropy_coef) * log_prob - value / value_range.detach())).sum()
        first = value.detach()[: steps.first]
        spread = (first.quantile(0.95) - first.quantile(0.05)).clamp(min=1)
        metrics = {
            "policy_loss": policy_loss.detach(),
            "q_value": first.mean(),
            "entropy": -log_prob.detach()[: steps.first].mean(),
            "value_range": value_range.detach()[0],
        }
        return policy_loss, 0.5 * (value_range - spread).square().sum(), metrics

    def _two_critics(self) -> list[int]:
        """Draw two critics for an update; in order, so that pairs are few where losses are compiled for each."""
        return sorted(torch.randperm(self.num_critics, generator=self.subset_generator)[:2].tolist())

    @property
    def keeps_acting_state(self) -> bool:  # type: ignore[override]
        """Whether it plans."""
        return self.planner is not None

    def default_explorer(self) -> Explorer:
        """Return sampling from the plan or the policy, or planned actions where plans have no standard deviation."""
        if self.planner is None:
            return explorer_for(self.distribution)
        return Sample() if self.planner.is_stochastic else Greedy()

    def policy(self, view: View, exploration: Exploration) -> Any:
        """Return the distribution of actions, or the actions (E, A), of new plans; without a planner, the policy."""
        latent: Tensor = self.model.encoder(view)
        if self.planner is None:
            return self.pi(Observations(latent))
        shape = len(latent), self.planner.horizon, self.codec.size
        plan = self.planner.search(
            lambda actions: self.expected_returns(latent, actions, exploration),
            remaining_plan(exploration, shape, self.device),
            exploration.generator,
            lambda number: self.model.sequences_of(self.pi, latent, number, shape[1], exploration.generator),
        )
        exploration.state[PLAN] = plan.sequence
        return plan.action if plan.std is None else DiagonalGaussian(plan.action, plan.std.log())

    @torch.no_grad()
    def expected_returns(self, latent: Tensor, actions: Tensor, exploration: Exploration) -> Tensor:
        """Return the returns (E, N) of action sequences (E, N, H, A) from states (E, size), with a value at the end."""
        rewards, weight, view = self.model.follow(latent, actions, self.gamma)
        action = self.pi(view).sample(exploration.generator)
        drawn = exploration.random.permutation(self.num_critics)[:2]
        value = average([self.critics[number](view, action) for number in drawn]).mean
        return (rewards + weight * value).view(actions.shape[:2]).nan_to_num(_LEAST, _LEAST, _LEAST)

    def _generators(self) -> tuple[torch.Generator, ...]:
        return *super()._generators(), self.subset_generator

    @classmethod
    def paper(cls, millions: Literal[1, 5] = 5, capacity: int = 1_000_000, num_envs: int = 1) -> Preset:
        """The paper's settings, in a model of a size of the authors.

        ``gamma`` is that of episodes of 1,000 steps: with T steps, T / 5 - 1 divided by T / 5, from 0.95 to 0.995.

        Args:
            millions: of parameters: 5, as in most of the paper, or 1.
            capacity: transitions that the storage keeps.
            num_envs: of the training environments.
        """
        units, size, critics = (512, 512, 5) if millions == 5 else (384, 128, 2)
        return Preset(
            algo_factory=make_factory(cls, (), {"gamma": 0.995, "latent_size": size, "num_critics": critics}),
            actor_factory=OffPolicyActor.create_factory(
                hidden_sizes=(units, units),
                activation="mish",
                layer_norm=True,
                per_network={"encoder": {"hidden_sizes": (256,)}, "critics": {"dropout": 0.01}},
            ),
            storage_factory=ReplayBuffer.create_factory(capacity // num_envs, sequences=Sequences(3)),
        )
