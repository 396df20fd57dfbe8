"""DreamerV3: an actor and a critic that learn from imagined sequences of latent states of a recurrent world model."""

from collections.abc import Mapping
from typing import Any, ClassVar, cast

import torch
from torch import Tensor

from pytorchrl.agent.actors.codec import make_codec
from pytorchrl.agent.actors.heads import DistributionHead, Policy, check_scaled
from pytorchrl.agent.actors.heads.two_hot import TwoHotNumber, TwoHotPrediction
from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.actors.outputs import Distribution
from pytorchrl.agent.actors.presets import OffPolicyActor
from pytorchrl.agent.actors.view import ActingView, Observations, View
from pytorchrl.agent.algorithms.model_based import imagination
from pytorchrl.agent.algorithms.model_based.bounded_policies import default_policy, is_bounded_box
from pytorchrl.agent.algorithms.model_based.latent_states import Latent, random_draw
from pytorchrl.agent.algorithms.model_based.recurrent_state_space_model import RecurrentStateSpaceModel
from pytorchrl.agent.algorithms.model_based.replayed_latents import model_losses, replay, replayed_returns
from pytorchrl.agent.algorithms.needs import Needs
from pytorchrl.agent.algorithms.off_policy import OffPolicyAlgorithm, Preset
from pytorchrl.agent.algorithms.results import Losses, Metrics
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.explorers import Exploration, Explorer, best_action, explorer_for
from storages.component.factory import make_factory
from storages.component.hyper_parameters import Count, NonNegative, NonNegativeOrSchedule, Positive, UnitInterval
from storages.off_policy.replay_buffer import ReplayBuffer
from storages.sequence_settings import Sequences
from storages.transition import DONE, MASK

_RATES = {"lr_model": 1e-3, "lr_pi": 3e-4, "lr_value": 1e-3, "update_every": 4, "free_nats": 0.1}
_SMALL: dict[str, Any] = {"num_latents": 8, "num_classes": 8, "gamma": 0.99, "start_steps": 512, "mini_batch_size": 8}
_LAYERS: dict[str, Any] = {"hidden_sizes": (64, 64), "activation": "silu", "layer_norm": True}


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
        replay_value_weight: weight of the critic's loss in replayed steps, whose returns are those of received rewards
            and of sequences imagined from the steps after; 0 for imagined ones alone.
        refresh_states: whether the recurrent states of replayed steps replace those stored with them, so that later
            sequences begin with newer ones; with hindsight, in shards and in PersistentEpisodicBuffer they do not.
        smallest_scale: of returns, by which advantages are divided: the moving range from the 5th to the 95th
            percentile, if that is larger.
        lr_model: learning rate of the world model.
        lr_pi: learning rate of the policy.
        lr_value: learning rate of the critic.
        polyak: weight that the critic's moving average keeps in each of its updates.
        target_update_interval: updates between these.

    Raises:
        ValueError: the actor's memory is not one GRU, or a distribution over a bounded Box is not on its scale.
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
    replay_value_weight: NonNegative = 0.3
    refresh_states: bool = True
    smallest_scale: Positive = 1.0
    lr_model: NonNegativeOrSchedule = 1e-4
    lr_pi: NonNegativeOrSchedule = 3e-5
    lr_value: NonNegativeOrSchedule = 3e-5
    max_grad_norm = 1_000.0
    polyak: UnitInterval = 0.98
    target_update_interval: Count = 1
    gamma = 0.997
    start_steps = 1_024
    update_every = 32
    mini_batch_size = 16

    def build(self) -> None:
        """Make the world model, the policy and the critic."""
        actor = self.actor
        if actor.memory != "gru" or actor.memory_layers != 1:
            raise ValueError(
                f'DreamerV3: the recurrent state of its model is that of one GRU; give the actor memory="gru", got '
                f"{actor.memory!r} with memory_layers={actor.memory_layers}"
            )
        head = self.distribution or default_policy(self.action_space, self.uniform_share)
        if is_bounded_box(self.action_space):
            check_scaled(head, type(self).__name__)
            self.codec = make_codec(self.action_space, self.device, scaled=True)
        sizes = self.num_latents, self.num_classes, self.uniform_share, self.num_bins
        self.model = RecurrentStateSpaceModel(actor, self.codec, *sizes)
        self.pi: Network = actor.make("policy", head, vectors=self.model.num_features)
        self.critic: Network = actor.make("critic", TwoHotNumber(self.num_bins), vectors=self.model.num_features)
        actor.add("return_scale", imagination.ReturnScale())
        self.train_model = self.train("model", *self.model.networks, lr="lr_model")
        self.train_pi = self.train("policy", self.pi, lr="lr_pi")
        self.train_value = self.train("critic", self.critic, lr="lr_value")
        self.average_critic = self.target(self.critic, every="target_update_interval")

    def losses(self, rows: Rows) -> Losses:
        """Return the losses of the model in the batch, and of policy and critic in sequences imagined from there."""
        replayed = replay(self.model, rows, self.generator)
        parts = model_losses(self.model, rows, replayed, self.free_nats)
        divergences = self.dynamics_weight * parts.dynamics + self.representation_weight * parts.representation
        of_states, of_steps = parts.observation + divergences, parts.reward + parts.goes_on
        weight = torch.cat([rows.weight, rows.weight[replayed.firsts] * replayed.is_first])
        model_loss = (weight * of_states).sum() + rows.weighted_mean(of_steps)
        errors = rows.per_row((of_states[: len(rows)] + of_steps).detach())
        metrics = {"model_loss": model_loss.detach()}
        metrics |= {f"{name}_loss": rows.mean(part[: len(rows)].detach()) for name, part in parts._asdict().items()}
        starts, settings = replayed.now.detach(), (self.horizon, self.gamma, self.generator)
        imagined = imagination.imagine(self.model, starts, self.pi, *settings)
        policy_loss, value_loss, of_behaviour = self.behaviour_losses(imagined, rows)
        of = {self.train_model: model_loss, self.train_pi: policy_loss, self.train_value: value_loss}
        states = replayed.now.recurrent.detach().view(*rows.batch[DONE].shape[:-1], -1) if self.refresh_states else None
        return Losses(of, metrics | of_behaviour, errors, recurrent_states=states)

    def behaviour_losses(self, imagined: imagination.Imagined, rows: Rows) -> tuple[Tensor, Tensor, Metrics]:
        """Return the losses of policy and critic in sequences imagined from the rows of a batch, and metrics."""
        states, action = Observations(imagined.features[:-1].flatten(0, 1)), imagined.action.flatten(0, 1)
        critic: TwoHotPrediction = self.critic(states)
        with torch.no_grad():
            last: TwoHotPrediction = self.critic(Observations(imagined.features[-1]))
            average: TwoHotPrediction = self.average_critic(states)
            values = torch.cat([critic.mean.view(self.horizon, -1, 1), last.mean[None]])
            returns = imagination.lambda_returns(imagined.reward, imagined.discount, values, self.trace_lambda)
            is_real = rows[MASK] > 0 if MASK in rows.batch else None
            scale = self.actor.networks["return_scale"](returns, is_real).clamp_min(self.smallest_scale)
            advantage = ((returns - values[:-1]) / scale).flatten(0, 1)
            of_average = self.target_weight * critic.code(average.mean)
            code = critic.code(returns.flatten(0, 1)) + of_average
            reached = imagination.probability_of_reaching(imagined.discount)
            weight = (rows.mean_weights * reached / self.horizon).flatten(0, 1)
            # The first imagined states are those of the replayed steps.
            replayed, is_known = replayed_returns(rows, returns[0], self.trace_lambda)
            replayed_code = critic.code(replayed) + of_average[: len(rows)]
        policy: Distribution = self.pi(states)
        log_prob, entropy = policy.evaluate(action)
        policy_loss = -(weight * (log_prob * advantage + self.current(self.entropy_coef) * entropy)).sum()
        value_loss = (weight * critic.loss(code)).sum()
        replayed_loss = is_known * critic.of_rows(slice(len(rows))).loss(replayed_code)
        value_loss = value_loss + self.replay_value_weight * rows.mean(replayed_loss)
        metrics = {"policy_loss": policy_loss.detach(), "value_loss": value_loss.detach(), "return_scale": scale}
        metrics |= {"entropy": entropy.detach().mean(), "imagined_return": rows.mean(returns[0])}
        return policy_loss, value_loss, metrics

    def default_explorer(self) -> Explorer:
        """Return sampling from the policy."""
        return explorer_for(self.distribution or Policy())

    def policy(self, view: View, exploration: Exploration) -> Distribution:
        """Return the distribution of actions in latent states, which are drawn for deterministic actions, too."""
        return cast("Distribution", self.pi(Observations(self._latent(view, exploration).features)))

    def act(self, view: View, exploration: Exploration) -> tuple[Tensor, Mapping[str, Tensor]]:
        """Return actions, and let the recurrent state follow them."""
        latent = self._latent(view, exploration)
        state = Observations(latent.features)
        if exploration.deterministic:
            action = best_action(self.pi(state))
        else:
            action = self._explorer.act(lambda: self.pi(state), exploration)
        taken = action if exploration.taken is None else exploration.taken
        assert isinstance(view, ActingView)
        view.set_state_after(self.model.stored_at, self.model.advance(latent, taken))
        return action, {}

    def _latent(self, view: View, exploration: Exploration) -> Latent:
        assert isinstance(view, ActingView)
        # The policy has learnt in drawn states, in which it returns more than in the most likely ones.
        draw = random_draw(exploration.generator)
        return self.model.latent_of(view.state(self.model.stored_at), view.observations, draw)

    @classmethod
    def small(cls, capacity: int = 50_000, num_envs: int = 4, *, normalize_observations: bool = True) -> Preset:
        """For small observations and about 10,000 transitions on a CPU, not from the paper.

        Args:
            capacity: transitions that the storage keeps.
            num_envs: of the training environments.
            normalize_observations: as of actors; False for observations without floating-point numbers.
        """
        sequences, layers = Sequences(32, across_episodes=True), _LAYERS | {"memory": "gru", "memory_size": 64}
        return Preset(
            algo_factory=make_factory(cls, (), _SMALL | _RATES),
            actor_factory=OffPolicyActor.create_factory(normalize_observations=normalize_observations, **layers),
            storage_factory=ReplayBuffer.create_factory(capacity // num_envs, sequences=sequences),
        )
