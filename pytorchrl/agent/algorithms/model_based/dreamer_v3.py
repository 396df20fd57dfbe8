"""DreamerV3: an actor and a critic that learn from imagined sequences of latent states of a recurrent world model."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from pytorchrl.agent.actors.actor import Actor
from pytorchrl.agent.actors.codec import make_codec
from pytorchrl.agent.actors.heads import DistributionHead, Policy, SoftmaxPolicy, check_scaled
from pytorchrl.agent.actors.heads.two_hot import TwoHotNumber, TwoHotPrediction
from pytorchrl.agent.actors.layers.linear_layers import OutputLayer, orthogonal
from pytorchrl.agent.actors.outputs import DiagonalGaussian, Distribution
from pytorchrl.agent.actors.presets import OffPolicyActor
from pytorchrl.agent.actors.view import ActingView, View
from pytorchrl.agent.algorithms.model_based.recurrent_state_space_model import (
    Latent,
    RecurrentStateSpaceModel,
    most_likely,
    network_of_vectors,
    random_draw,
)
from pytorchrl.agent.algorithms.needs import Needs
from pytorchrl.agent.algorithms.off_policy import OffPolicyAlgorithm, Preset
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.explorers import Exploration, Explorer, best_action, explorer_for
from storages.component.factory import make_factory
from storages.component.hyper_parameters import (
    Count,
    CountOrZero,
    NonNegative,
    NonNegativeOrSchedule,
    Positive,
    UnitInterval,
)
from storages.off_policy.replay_buffer import ReplayBuffer
from storages.sequence_settings import Sequences
from storages.transition import MASK


class Imagined(NamedTuple):
    """Sequences of H steps of the model, from each of N latent states."""

    features: Tensor
    """(H + 1, N, features), of the latent states."""
    action: Tensor
    """(H, N, *action)."""
    reward: Tensor
    """(H, N, 1)."""
    discount: Tensor
    """(H, N, 1), gamma times the probability that the episode goes on."""


class DreamerV3(OffPolicyAlgorithm):
    """Hafner et al., "Mastering Diverse Domains through World Models" (arXiv 2301.04104; Nature 640, 2025).

    It needs an actor with a GRU as memory, whose size is that of the model's recurrent state, and sequences of single
    steps. Policy and critic take latent states as inputs; all networks have the actor's hidden layers, with its
    activation and normalisation. Observations are encoded by its feature extractor.

    Args:
        num_latents: number of categorical variables of a latent state.
        num_classes: of each of these.
        uniform_share: share of the uniform distribution in theirs, and in that of Discrete actions (unimix).
        num_bins: of the distributions over rewards and returns.
        distribution: of actions; None takes the paper's: a softmax, or for a bounded Box a Gaussian with a tanh mean
            and a standard deviation in [0.1, 1], both on the scale of the bounds.
        horizon: steps of an imagined sequence.
        trace_lambda: weight of longer returns in imagined lambda returns.
        entropy_coef: weight of the policy's entropy.
        dynamics_weight: weight of the divergence that trains the prior.
        representation_weight: weight of the divergence that trains the posterior.
        free_nats: divergence below which neither is trained by it, in nats.
        target_weight: weight of the cross-entropy of the critic and its own moving average.
        smallest_scale: of returns, by which advantages are divided: the moving range from the 5th to the 95th
            percentile, if that is larger.
        lr_model: learning rate of the world model.
        lr_pi: learning rate of the policy.
        lr_value: learning rate of the critic.
        max_grad_norm_model: norm that the gradients of the world model are clipped to; None does not clip.
        polyak: weight that the moving average of the critic keeps in each update.

    Raises:
        ValueError: the actor's memory is not one GRU, or actions of a bounded Box have a distribution that is not on
            the scale of its bounds.
    """

    sources: ClassVar[Mapping[str, Needs]] = {"main": Needs("replay", single_steps=True)}
    unchangeable = frozenset({"num_latents", "num_classes", "uniform_share", "num_bins", "distribution"})

    num_latents: Count = 32
    num_classes: Count = 32
    uniform_share: UnitInterval = 0.01
    num_bins: Count = 255
    distribution: DistributionHead | None = None
    horizon: Count = 15
    trace_lambda: UnitInterval = 0.95
    entropy_coef: NonNegativeOrSchedule = 3e-4
    dynamics_weight: NonNegative = 1.0
    representation_weight: NonNegative = 0.1
    free_nats: NonNegative = 1.0
    target_weight: NonNegative = 1.0
    smallest_scale: Positive = 1.0
    lr_model: NonNegativeOrSchedule = 1e-4
    lr_pi: NonNegativeOrSchedule = 3e-5
    lr_value: NonNegativeOrSchedule = 3e-5
    max_grad_norm: Positive | None = 100.0
    max_grad_norm_model: Positive | None = 1_000.0
    polyak: UnitInterval = 0.98
    gamma = 0.997
    start_steps: CountOrZero = 1_024
    update_every: Count = 32
    mini_batch_size: Count = 16

    def build(self) -> None:
        """Make the world model, the policy and the critic."""
        actor, name = self.actor, type(self).__name__
        if actor.memory != "gru" or actor.memory_layers != 1:
            raise ValueError(
                f'{name}: the recurrent state of its model is that of one GRU, so that the actor needs memory="gru", '
                f"got memory={actor.memory!r} with memory_layers={actor.memory_layers}"
            )
        is_bounded = _is_bounded(self.action_space)
        head = self.distribution or _default_policy(self.action_space, self.uniform_share)
        if is_bounded:
            check_scaled(head, name)
            self.codec = make_codec(self.action_space, self.device, scaled=True)
        sizes = self.num_latents, self.num_classes, self.uniform_share, self.num_bins
        self.model = RecurrentStateSpaceModel(actor, self.codec, *sizes)
        self.pi = network_of_vectors(actor, "policy", head, self.model.num_features)
        self.critic = network_of_vectors(actor, "critic", TwoHotNumber(self.num_bins), self.model.num_features)
        self.return_scale = ReturnScale()
        actor.add("return_scale", self.return_scale)
        self.train_model = self.train(
            "model", *self.model.networks, lr="lr_model", max_grad_norm="max_grad_norm_model"
        )
        self.train_pi = self.train("policy", self.pi, lr="lr_pi")
        self.train_value = self.train("critic", self.critic, lr="lr_value")
        self.average_critic: nn.Module = self.target(self.critic)

    # Learning

    def losses(self, rows: Rows) -> Losses:
        """Return the losses of the model in the batch, and those of policy and critic in imagined sequences."""
        replayed = self.model.replay(rows, self.generator)
        parts = self.model.losses(rows, replayed, self.free_nats)
        weight = torch.cat([rows.weight, rows.weight[replayed.firsts] * replayed.is_first])
        inferred = (
            parts.observation
            + self.dynamics_weight * parts.dynamics
            + self.representation_weight * parts.representation
        )
        predicted = parts.reward + parts.goes_on
        model_loss = (weight * inferred).sum() + rows.weighted_mean(predicted)
        errors = (inferred[: len(rows)] + predicted).detach()

        imagined = self.imagine(replayed.now.detach())
        policy_loss, value_loss, metrics = self.losses_of_behaviour(imagined, rows)
        metrics |= {
            "model_loss": model_loss.detach(),
            "observation_loss": rows.mean(parts.observation[: len(rows)].detach()),
            "reward_loss": rows.mean(parts.reward.detach()),
            "continue_loss": rows.mean(parts.goes_on.detach()),
            "divergence": rows.mean(parts.dynamics[: len(rows)].detach()),
        }
        return Losses(
            {self.train_model: model_loss, self.train_pi: policy_loss, self.train_value: value_loss},
            metrics,
            rows.per_row(errors),
        )

    @torch.no_grad()
    def imagine(self, latent: Latent) -> Imagined:
        """Take steps of the policy in the model, from latent states of N rows."""
        features, actions = [latent.features], []
        for _ in range(self.horizon):
            policy: Distribution = self.pi(features[-1])
            actions.append(policy.sample(self.generator))
            latent = self.model.imagine(latent, actions[-1], self.generator)
            features.append(latent.features)
        reached = torch.cat(features[1:])
        reward: TwoHotPrediction = self.model.reward(reached)
        goes_on = self.model.goes_on(reached).sigmoid()
        shape = self.horizon, -1, 1
        return Imagined(
            torch.stack(features), torch.stack(actions), reward.mean.view(shape), self.gamma * goes_on.view(shape)
        )

    def losses_of_behaviour(self, imagined: Imagined, rows: Rows) -> tuple[Tensor, Tensor, dict[str, Any]]:
        """Return the losses of policy and critic, and metrics.

        Args:
            imagined: sequences from the N rows.
            rows: of the batch.
        """
        features, action = imagined.features[:-1].flatten(0, 1), imagined.action.flatten(0, 1)
        critic: TwoHotPrediction = self.critic(features)
        with torch.no_grad():
            last: TwoHotPrediction = self.critic(imagined.features[-1])
            values = torch.cat([critic.mean.view(self.horizon, -1, 1), last.mean[None]])
            returns = lambda_returns(imagined.reward, imagined.discount, values, self.trace_lambda)
            is_real = rows[MASK] > 0 if MASK in rows.batch else None
            scale = self.return_scale(returns, is_real).clamp_min(self.smallest_scale)
            advantage = ((returns - values[:-1]) / scale).flatten(0, 1)
            # A state counts as much as it is likely to be reached. Rows are weighted as if there was no padding.
            reached = torch.cat([torch.ones_like(imagined.discount[:1]), imagined.discount[:-1]]).cumprod(0)
            weight = (rows.mean_weights * reached / self.horizon).flatten(0, 1)
            average: TwoHotPrediction = self.average_critic(features)
            code = critic.code(returns.flatten(0, 1)) + self.target_weight * critic.code(average.mean)
        policy: Distribution = self.pi(features)
        log_prob, entropy = policy.evaluate(action)
        policy_loss = -(weight * (log_prob * advantage + self.current(self.entropy_coef) * entropy)).sum()
        value_loss = (weight * critic.loss(code)).sum()
        metrics = {
            "policy_loss": policy_loss.detach(),
            "value_loss": value_loss.detach(),
            "entropy": (weight * entropy.detach()).sum() / weight.sum(),
            "imagined_return": rows.mean(returns[0]),
            "return_scale": scale,
        }
        return policy_loss, value_loss, metrics

    # Acting

    def default_explorer(self) -> Explorer:
        """Return sampling from the policy."""
        return explorer_for(self.distribution or Policy())

    def policy(self, view: View, exploration: Exploration) -> Distribution:
        """Return the distribution of actions; of the most likely latent states where actions are deterministic."""
        distribution: Distribution = self.pi(self._latent(view, exploration).features)
        return distribution

    def act(self, view: View, exploration: Exploration) -> tuple[Tensor, Mapping[str, Tensor]]:
        """Return actions, and let the recurrent state follow them."""
        assert isinstance(view, ActingView)
        latent = self._latent(view, exploration)
        if exploration.deterministic:
            action = best_action(self.pi(latent.features))
        else:
            action = self._explorer.act(lambda: self.pi(latent.features), exploration)
        taken = action if exploration.taken is None else exploration.taken
        view.set_state_after(self.model.stored_at, self.model.advance(latent, taken))
        return action, {}

    def _latent(self, view: View, exploration: Exploration) -> Latent:
        assert isinstance(view, ActingView)
        draw = most_likely if exploration.deterministic else random_draw(exploration.generator)
        return self.model.latent_while_acting(view, draw)


def lambda_returns(reward: Tensor, discount: Tensor, values: Tensor, trace_lambda: float) -> Tensor:
    """Return ``R_t = r_t + d_t ((1 - lambda) v_{t+1} + lambda R_{t+1})``, (H, N, 1), where ``R_H = v_H``.

    Sutton and Barto, "Reinforcement Learning" (2nd edition, 2018), equation 12.18 for state values.

    Args:
        reward: (H, N, 1), of each step.
        discount: (H, N, 1), of the state after it.
        values: (H + 1, N, 1), of the states before the steps, and after the last one.
        trace_lambda: weight of longer returns.
    """
    following, returns = values[-1], []
    for step in reversed(range(len(reward))):
        mixed = torch.lerp(values[step + 1], following, trace_lambda)
        following = reward[step] + discount[step] * mixed
        returns.append(following)
    return torch.stack(returns[::-1])


class ReturnScale(nn.Module):
    """Moving range of returns from the 5th to the 95th percentile, section "Actor learning" of the paper."""

    statistics = frozenset({"low", "high"})

    low: Tensor
    high: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("low", torch.zeros(()))
        self.register_buffer("high", torch.zeros(()))

    @torch.no_grad()
    def forward(self, returns: Tensor, is_real: Tensor | None) -> Tensor:
        """Add returns (H, N, 1) of rows that are not padding (N, 1), None for all, and return the range ()."""
        numbers = returns if is_real is None else returns.where(is_real, torch.nan)
        low, high = torch.nanquantile(numbers, numbers.new_tensor(_PERCENTILES))
        self.low.lerp_(low, 1 - _SCALE_DECAY)
        self.high.lerp_(high, 1 - _SCALE_DECAY)
        return self.high - self.low


_PERCENTILES = (0.05, 0.95)
_SCALE_DECAY = 0.99


@dataclass(frozen=True)
class _BoundedNormal(DistributionHead):
    """The paper's distribution over a bounded Box."""

    is_scaled = True

    def build(self, features: int, actor: Actor) -> nn.Module:
        """Return the module from (N, features) to a :class:`DiagonalGaussian`."""
        layer = actor.linear(features, 2 * int(np.prod(actor.action_space.shape or (1,))))
        orthogonal(layer, 0.01)
        return _BoundedNormalLayer(layer)


class _BoundedNormalLayer(OutputLayer):
    def output(self, numbers: Tensor) -> DiagonalGaussian:
        mean, spread = numbers.chunk(2, dim=-1)
        deviation = _SMALLEST_STD + (_LARGEST_STD - _SMALLEST_STD) * (spread + 2).sigmoid()
        return DiagonalGaussian(mean.tanh(), deviation.log())


_SMALLEST_STD, _LARGEST_STD = 0.1, 1.0


def _is_bounded(space: gym.Space[Any]) -> bool:
    return isinstance(space, spaces.Box) and bool(np.isfinite([space.low, space.high]).all())


def _default_policy(space: gym.Space[Any], uniform_share: float) -> DistributionHead:
    if isinstance(space, spaces.Discrete):
        return SoftmaxPolicy(min_probability=uniform_share / int(space.n))
    return _BoundedNormal() if _is_bounded(space) else Policy()
