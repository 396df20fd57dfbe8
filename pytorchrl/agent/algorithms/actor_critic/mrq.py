"""MR.Q: TD3 on a representation that predicts rewards, terminations and following representations."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pytorchrl.agent.actors.encoders import output_size_of
from pytorchrl.agent.actors.network import Network, frozen
from pytorchrl.agent.actors.per_network import settings_of_network
from pytorchrl.agent.actors.presets import OffPolicyActor
from pytorchrl.agent.actors.view import View
from pytorchrl.agent.algorithms.actor_critic.latent_networks import EncoderHead, LatentModel, latent_layers, values_of
from pytorchrl.agent.algorithms.actor_critic.paths import FirstSteps, field_of
from pytorchrl.agent.algorithms.actor_critic.td3 import TD3
from pytorchrl.agent.algorithms.needs import Needs
from pytorchrl.agent.algorithms.off_policy import Preset
from pytorchrl.agent.algorithms.results import Losses, Metrics
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.explorers import Exploration
from pytorchrl.agent.ops.two_hot import two_hot
from pytorchrl.agent.optimizers import AdamW, Optimizer
from storages import PERBuffer, Sequences
from storages.component.hyper_parameters import (
    Count,
    CountOrZero,
    Limit,
    NonNegative,
    NonNegativeOrSchedule,
    Positive,
    UnitInterval,
)
from storages.storage import Storage
from storages.transition import DONE2, OBS, OBS2, REW


class MRQ(TD3):
    """Fujimoto et al., "Towards General-Purpose Model-Free Reinforcement Learning" (arXiv 2501.16142), algorithm 1.

    Encoders of observations, and of these with actions, learn to predict; policy and critics learn from what they
    encode. Batches are sequences of one-step transitions (``Sequences``), or single ones, with which all horizons are
    1. Actions are of a bounded Box, as those of TD3; the paper's discrete ones are left out.

    Args:
        lr_encoder: learning rate of the encoders.
        model_horizon: steps over which they predict; fewer where an episode or a sequence ends.
        value_horizon: rewards that targets sum up before they bootstrap; likewise.
        dynamics_weight: weight of the squared error of following representations.
        reward_weight: weight of the cross-entropy of rewards.
        termination_weight: weight of the squared error of terminations, which counts once there was one.
        preactivation_weight: weight of the policy's squared output before the tanh.
        action_features: numbers that an action is encoded to, before those of the observation join.
        num_bins: classes of rewards, at equal distances of symmetric logarithms.
        largest_bin: logarithm of the largest reward.
        least_error: smallest error that priorities follow (Fujimoto et al., arXiv 2007.06049).

    Raises:
        ValueError: the actor has a memory.
    """

    sources: ClassVar[Mapping[str, Needs]] = {"main": Needs("replay", sequences=True, single_steps=True)}
    unchangeable = frozenset({"action_features", "num_bins", "largest_bin"})
    unused: ClassVar[Mapping[str, str]] = {
        "policy_head": "override build",
        "make_critics": "override build",
        "smoothed_next_action": "override losses",
    }

    lr_encoder: NonNegativeOrSchedule = 1e-4
    lr_pi: NonNegativeOrSchedule = 3e-4
    lr_q: NonNegativeOrSchedule = 3e-4
    model_horizon: Count = 5
    value_horizon: Count = 3
    dynamics_weight: NonNegative = 1.0
    reward_weight: NonNegative = 0.1
    termination_weight: NonNegative = 0.1
    preactivation_weight: NonNegative = 1e-5
    action_features: Count = 256
    num_bins: Count = 65
    largest_bin: Positive = 10.0
    least_error: NonNegative = 1.0
    optimizer: Optimizer = AdamW(weight_decay=1e-4)
    max_grad_norm: Positive | None = 20.0
    polyak: UnitInterval = 0.0
    policy_delay: Count = 1
    target_update_interval: Count = 250
    target_noise_clip: Limit = 0.3
    exploration_noise: NonNegativeOrSchedule = 0.2
    start_steps: CountOrZero = 10_000

    def build(self) -> None:
        """Make encoders, policy and critics, and their targets."""
        if self.actor.memory is not None:
            raise ValueError(f"{type(self).__name__} encodes single observations; give the actor memory=None")
        self.encoder: Network = self.actor.make("encoder", EncoderHead(), acts=True)
        latent, actions = output_size_of(self.encoder.body), self.codec.size
        with settings_of_network(self.actor, "model"):
            self.model = LatentModel(self.actor, latent, actions, self.action_features, self.num_bins, self.largest_bin)
        with settings_of_network(self.actor, "policy"):
            policy: Any = latent_layers(self.actor, latent, actions)
        self.pi = policy
        with settings_of_network(self.actor, "critics"):
            self.critics: Any = nn.ModuleList(latent_layers(self.actor, latent, 1) for _ in range(self.num_critics))
        for name, network in (("model", self.model), ("policy", self.pi), ("critics", self.critics)):
            self.actor.add(name, network)
        self.train_encoder = self.train("encoder", self.encoder, self.model, lr="lr_encoder", max_grad_norm=None)
        self.train_pi = self.train("policy", self.pi, lr="lr_pi")
        self.train_critics = self.train("critics", self.critics, lr="lr_q")
        networks = (self.encoder, self.model, self.pi, self.critics)
        targets = [self.target(network, every="_target_interval") for network in networks]
        self.target_encoder, self.target_model, self.target_pi, self.target_critics = targets
        self.training.counters["encoder_phases"] = 0

    def losses(self, rows: Rows) -> Losses:
        """Return the loss of the critics against several rewards plus the smallest target value (equation 19)."""
        window = FirstSteps(rows, self.value_horizon)
        with torch.no_grad():
            reward, discount, last = window.returns()
            following = self.target_encoder(self._view(rows, OBS2, last))
            noise = torch.empty_like(window.action[0]).normal_(0, self.target_noise, generator=self.generator)
            noise.clamp_(-self.target_noise_clip, self.target_noise_clip)
            action = (self.target_pi(following).tanh() + noise).clamp(-1, 1)
            value = values_of(self.target_critics, self.target_model(following, action)).amin(1, keepdim=True)
            # Critics learn returns in units of the mean absolute reward.
            target = (reward + discount * self.target_model.reward_scale * value) / self.model.reward_scale
            features = self.model(self.encoder(self._view(rows, OBS, window.rows[0])), window.action[0])
        values = values_of(self.critics, features)
        loss = (window.weight * F.smooth_l1_loss(values, target.expand_as(values), reduction="none")).mean()
        errors = window.per_row((values.detach() - target).abs().amax(1, keepdim=True).clamp(min=self.least_error))
        metrics = {"critic_loss": loss.detach(), "q_value": values.detach().mean() * self.model.reward_scale[0]}
        return Losses({self.train_critics: loss}, metrics, errors)

    def losses_after_step(self, rows: Rows) -> Losses | None:
        """Return the negative mean value of the policy's actions, with a penalty of large outputs (equation 20)."""
        if (self.updates + 1) % self.policy_delay:
            return None
        first = FirstSteps(rows, 1).rows[0]
        with torch.no_grad():
            latent = self.encoder(self._view(rows, OBS, first))
        output = self.pi(latent)
        with frozen(self.model, self.critics):
            loss = -values_of(self.critics, self.model(latent, output.tanh())).mean()
        loss = loss + self.preactivation_weight * output.square().mean()
        return Losses({self.train_pi: loss}, {"policy_loss": loss.detach()})

    def update_phase(self, sources: Mapping[str, Storage]) -> Iterator[Metrics]:
        """Update the encoders after each update of the targets, as often as these are apart; then the others."""
        counters, main = self.training.counters, sources["main"]
        if self.updates // self.target_update_interval >= counters["encoder_phases"]:
            rewards: list[Tensor] = []
            for batch in main.generate_batches(self.target_update_interval, self.mini_batch_size):
                rows = self.read(batch)
                rewards.append(rows.mean(rows.reward.abs()))
                yield self.update_encoder(rows)
            self.model.reward_scale.copy_(torch.stack(rewards).mean().clamp(min=_TINY))
            counters["encoder_phases"] = self.updates // self.target_update_interval + 1
        yield from super().update_phase(sources)

    def update_encoder(self, rows: Rows) -> Metrics:
        """Update the encoders on one batch (equation 14)."""
        window, model = FirstSteps(rows, self.model_horizon), self.model
        with torch.no_grad():
            targets = self.target_encoder(self._view(rows, OBS2, window.rows.flatten()))
            targets, ends = targets.unflatten(0, window.rows.shape), window.of(DONE2)
            model.has_ended.copy_(torch.maximum(model.has_ended, (window.alive * ends).amax()))
            classes = two_hot(window.of(REW)[..., 0], model.bins)
        latent = self.encoder(self._view(rows, OBS, window.rows[0]))
        dynamics = rewards = terminations = latent.new_zeros(())
        for alive, action, target, code, end in zip(window.alive, window.action, targets, classes, ends, strict=True):
            ended, latent, logits = model.predicted(model(latent, action))
            dynamics = dynamics + (alive * (latent - target).square()).mean()
            rewards = rewards - (alive[:, 0] * (code * logits.log_softmax(1)).sum(1)).mean()
            terminations = terminations + (alive * (ended - end).square()).mean()
        loss = self.dynamics_weight * dynamics + self.reward_weight * rewards
        loss = loss + self.termination_weight * model.has_ended[0] * terminations
        self.minimise(Losses({self.train_encoder: loss}))
        return {"dynamics_error": dynamics.detach(), "reward_loss": rewards.detach()}

    def policy(self, view: View, exploration: Exploration) -> Any:
        """Return an action for each row."""
        return self.pi(self.encoder(view)).tanh()

    def _view(self, rows: Rows, key: str, chosen: Tensor) -> Any:
        """Return a view of some rows' observations."""
        return self.actor.view(field_of(rows, key, chosen))

    @classmethod
    def paper(cls, capacity: int = 1_000_000, num_envs: int = 1) -> Preset:
        """The paper's table of hyper-parameters, for vectors; initial weights are the actor's.

        Args:
            capacity: transitions that the storage keeps.
            num_envs: of the training environments.
        """
        two: dict[str, Any] = {"hidden_sizes": (512, 512)}
        return Preset(
            algo_factory=cls.create_factory(),
            actor_factory=OffPolicyActor.create_factory(
                hidden_sizes=(512, 512, 512),
                activation="elu",
                layer_norm=True,
                per_network={"model": two, "policy": two | {"activation": "relu"}},
            ),
            storage_factory=PERBuffer.create_factory(
                size=capacity // num_envs, alpha=0.4, beta=0.0, sequences=Sequences(5), default_error="largest"
            ),
        )


_TINY = 1e-8
"""Scale of rewards that are all 0."""
