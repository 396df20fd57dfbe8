"""DreamerV3: an actor and a critic that learn from imagined sequences of latent states of a recurrent world model."""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from pytorchrl.agent.actors.codec import make_codec
from pytorchrl.agent.actors.heads import DistributionHead, Policy, check_scaled
from pytorchrl.agent.actors.heads.two_hot import TwoHotNumber, TwoHotPrediction
from pytorchrl.agent.actors.outputs import Distribution
from pytorchrl.agent.actors.presets import OffPolicyActor
from pytorchrl.agent.actors.view import ActingView, View
from pytorchrl.agent.algorithms.model_based.bounded_policies import default_policy, is_bounded_box
from pytorchrl.agent.algorithms.model_based.imagined_returns import ReturnScale, lambda_returns
from pytorchrl.agent.algorithms.model_based.latent_states import Latent, most_likely, random_draw
from pytorchrl.agent.algorithms.model_based.recurrent_state_space_model import (
    Imagined,
    RecurrentStateSpaceModel,
    network_of_vectors,
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

_SMALL: dict[str, Any] = {
    "num_latents": 8,
    "num_classes": 8,
    "gamma": 0.99,
    "lr_model": 1e-3,
    "lr_pi": 3e-4,
    "lr_value": 3e-4,
    "start_steps": 512,
    "update_every": 8,
    "mini_batch_size": 8,
}
_SMALL_NETWORKS: dict[str, Any] = {
    "hidden_sizes": (64, 64),
    "activation": "silu",
    "layer_norm": True,
    "memory": "gru",
    "memory_size": 64,
}


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
        head = self.distribution or default_policy(self.action_space, self.uniform_share)
        if is_bounded_box(self.action_space):
            check_scaled(head, name)
            self.codec = make_codec(self.action_space, self.device, scaled=True)
        sizes = self.num_latents, self.num_classes, self.uniform_share, self.num_bins
        self.model = RecurrentStateSpaceModel(actor, self.codec, *sizes)
        self.pi = network_of_vectors(actor, "policy", head, self.model.num_features)
        self.critic = network_of_vectors(actor, "critic", TwoHotNumber(self.num_bins), self.model.num_features)
        self.return_scale = ReturnScale()
        actor.add("return_scale", self.return_scale)
        self.train_model = self.train("model", *self.model.networks, lr="lr_model", max_grad_norm="max_grad_norm_model")
        self.train_pi = self.train("policy", self.pi, lr="lr_pi")
        self.train_value = self.train("critic", self.critic, lr="lr_value")
        self.average_critic = self.target(self.critic)

    # Learning

    def losses(self, rows: Rows) -> Losses:
        """Return the losses of the model in the batch, and those of policy and critic in imagined sequences."""
        replayed = self.model.replay(rows, self.generator)
        parts = self.model.losses(rows, replayed, self.free_nats)
        weight = torch.cat([rows.weight, rows.weight[replayed.firsts] * replayed.is_first])
        divergences = self.dynamics_weight * parts.dynamics + self.representation_weight * parts.representation
        inferred = parts.observation + divergences
        predicted = parts.reward + parts.goes_on
        model_loss = (weight * inferred).sum() + rows.weighted_mean(predicted)
        errors = (inferred[: len(rows)] + predicted).detach()

        imagined = self.model.imagine(replayed.now.detach(), self.pi, self.horizon, self.generator)
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
            discount = self.gamma * imagined.goes_on
            returns = lambda_returns(imagined.reward, discount, values, self.trace_lambda)
            is_real = rows[MASK] > 0 if MASK in rows.batch else None
            scale = self.return_scale(returns, is_real).clamp_min(self.smallest_scale)
            advantage = ((returns - values[:-1]) / scale).flatten(0, 1)
            # A state counts as much as it is likely to be reached. Rows are weighted as if there was no padding.
            reached = torch.cat([torch.ones_like(discount[:1]), discount[:-1]]).cumprod(0)
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

    @classmethod
    def small(cls, capacity: int = 50_000, num_envs: int = 4) -> Preset:
        """For small observations and about 20,000 transitions on a CPU, not from the paper.

        Args:
            capacity: transitions that the storage keeps.
            num_envs: of the training environments.
        """
        return Preset(
            algo_factory=make_factory(cls, (), _SMALL),
            actor_factory=OffPolicyActor.create_factory(**_SMALL_NETWORKS),
            storage_factory=ReplayBuffer.create_factory(
                capacity // num_envs, sequences=Sequences(32, across_episodes=True)
            ),
        )
