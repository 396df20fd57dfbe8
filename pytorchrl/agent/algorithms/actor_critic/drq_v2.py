"""DrQ-v2: DDPG from pixels, with shifted images, two critics and an encoder that the critics train."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from pytorchrl.agent.actors.encoders import output_size_of
from pytorchrl.agent.actors.heads import ActionValue
from pytorchrl.agent.actors.layers.linear_layers import orthogonal
from pytorchrl.agent.actors.network import Ensemble, Network, frozen
from pytorchrl.agent.actors.per_network import settings_of_network
from pytorchrl.agent.actors.presets import OffPolicyActor
from pytorchrl.agent.actors.view import Observations, View
from pytorchrl.agent.algorithms.actor_critic.critics import loss_of_critics, smallest
from pytorchrl.agent.algorithms.actor_critic.ddpg import DDPG
from pytorchrl.agent.algorithms.off_policy import Preset
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.explorers import Exploration
from storages import NStepReplayBuffer, RandomShift
from storages.component.factory import make_factory
from storages.component.hyper_parameters import Count, CountOrZero, Limit, NonNegativeOrSchedule, UnitInterval
from storages.component.schedule import LinearSchedule
from storages.transition import OBS


class DrQV2(DDPG):
    """Yarats et al., "Mastering Visual Continuous Control: Improved Data-Augmented RL" (arXiv 2107.09645), section 3.1.

    Policy and critics share an encoder of observations, which is the actor's feature extractor and learns by the loss
    of the critics alone. It has no target network, and neither has the policy. Policy and critics each reduce its
    features to a few; the actor's hidden layers follow. Shifted images and n-step returns are settings of the storage:
    ``NStepReplayBuffer.create_factory(size, n_step=3, transforms={"Observation": RandomShift(4)})``.

    Args:
        feature_size: features to which policy and critics reduce those of the encoder.
        noise_clip: clipping range of the noise on the policy's actions in updates, whose standard deviation is
            ``exploration_noise``.

    Raises:
        ValueError: the actor has a memory.
    """

    unchangeable = frozenset({"feature_size"})

    feature_size: Count = 50
    noise_clip: Limit = 0.3
    lr_pi: NonNegativeOrSchedule = 1e-4
    lr_q: NonNegativeOrSchedule = 1e-4
    polyak: UnitInterval = 0.99
    num_critics: Count = 2
    exploration_noise: NonNegativeOrSchedule = LinearSchedule(1.0, 0.1, fraction=1 / 3)
    start_steps: CountOrZero = 2_000
    update_every: Count = 2

    def build(self) -> None:
        """Make encoder, policy and critics, and targets of the critics."""
        if self.actor.memory is not None:
            raise ValueError(f"{type(self).__name__} encodes single observations; give the actor memory=None")
        self.encoder: Network = self.actor.make_encoder("encoder")
        self.pi_features = self._bottleneck("policy")
        self.pi = self.actor.make("policy", self.policy_head(), acts=True, vectors=self.feature_size)
        self.critic_features = self._bottleneck("critics")
        self.critics = self.make_critics()
        self.train_pi = self.train("policy", self.pi_features, self.pi, lr="lr_pi")
        self.train_critics = self.train("critics", self.encoder, self.critic_features, self.critics, lr="lr_q")
        self.target_features = self.target(self.critic_features, every="_target_interval")
        self.target_critics = self.target(self.critics, every="_target_interval")

    def losses(self, rows: Rows) -> Losses:
        """Return the loss of critics and encoder against the smallest value of a noisy next action (section 3.1)."""
        with torch.no_grad():
            following = self.encoder(rows.next)
            reduced = Observations(self.target_features(following))
            next_values = self.target_critics(reduced, self.noisy_action(following))
            target = smallest(next_values).backup(rows.reward, rows.discount)
        values = self.critics(Observations(self.critic_features(self.encoder(rows.now))), rows.action)
        loss, errors = loss_of_critics(values, target, rows)
        metrics = {"critic_loss": loss.detach(), "q_value": rows.mean(values[0].mean.detach())}
        return Losses({self.train_critics: loss}, metrics, errors)

    def losses_after_step(self, rows: Rows) -> Losses | None:
        """Return the negative mean of the smallest value of the policy's noisy actions (section 3.1)."""
        if (self.updates + 1) % self.policy_delay:
            return None
        with torch.no_grad():
            latent = self.encoder(rows.now)
            reduced = Observations(self.critic_features(latent))
        with frozen(self.critics):
            loss = -rows.mean(smallest(self.critics(reduced, self.noisy_action(latent))).mean)
        return Losses({self.train_pi: loss}, {"policy_loss": loss.detach()})

    def noisy_action(self, latent: Tensor) -> Tensor:
        """Return the policy's actions (N, A) of encoded observations, with clipped noise, within the bounds.

        The gradient is that of the policy's action, also where the sum has been clipped to the bounds.
        """
        action: Tensor = self.pi(Observations(self.pi_features(latent)))
        deviation = self.current(self.exploration_noise)
        noise = torch.empty_like(action).normal_(0, deviation, generator=self.generator)
        noise.clamp_(-self.noise_clip, self.noise_clip)
        return (action.detach() + noise).clamp(-1, 1) + (action - action.detach())

    def make_critics(self) -> Ensemble:
        """Make the critics, of reduced features and actions."""
        return self.actor.make_ensemble(
            "critics", ActionValue(), self.num_critics, codec=self.codec, vectors=self.feature_size
        )

    def policy(self, view: View, exploration: Exploration) -> Any:
        """Return an action for each row."""
        return self.pi(Observations(self.pi_features(self.encoder(view))))

    def _bottleneck(self, network: str) -> "Bottleneck":
        """Make and register the layer before a network, with that network's settings."""
        with settings_of_network(self.actor, network):
            layer = self.actor.linear(output_size_of(self.encoder.body), self.feature_size)
        made = Bottleneck(layer, self.feature_size)
        self.actor.add(f"{network}_features", made)
        return made

    @classmethod
    def paper(cls, capacity: int = 1_000_000, num_envs: int = 1) -> Preset:
        """The paper's table of hyper-parameters, for ``prl.pixel_envs`` of 84 x 84 pixels and 1.5 million transitions.

        Args:
            capacity: transitions that the storage keeps.
            num_envs: of the training environments.
        """
        return _preset(
            cls, {}, {"hidden_sizes": (1024, 1024), "feature_extractor": "drq_convolutions"}, 4, capacity, num_envs
        )

    @classmethod
    def small(cls, capacity: int = 50_000, num_envs: int = 1) -> Preset:
        """For 40 x 40 pixels, rewards up to about 1, and 15,000 transitions on a CPU; arguments as of :meth:`paper`."""
        actor = {"hidden_sizes": (128, 128), "feature_extractor": "nature_convolutions"}
        return _preset(cls, _SMALL, actor, 2, capacity, num_envs)


class Bottleneck(nn.Module):
    """A linear layer, layer normalisation and a tanh: the trunk of DrQ-v2 and SAC-AE.

    Args:
        layer: linear, from (N, inputs) to (N, outputs); its weights are initialised as orthogonal.
        outputs: number of features, which lie in (-1, 1).
    """

    def __init__(self, layer: nn.Module, outputs: int) -> None:
        super().__init__()
        orthogonal(layer, 1.0)
        self.layer = layer
        self.norm = nn.LayerNorm(outputs)
        self.output_size = outputs

    def forward(self, features: Tensor) -> Tensor:
        """(N, inputs) to (N, outputs)."""
        return torch.tanh(self.norm(self.layer(features)))


_SMALL: Mapping[str, Any] = {
    "lr_pi": 3e-4,
    "lr_q": 5e-4,
    "mini_batch_size": 64,
    "start_steps": 1_000,
    "update_every": 1,
    "exploration_noise": LinearSchedule(1.0, 0.1, fraction=0.5),
}


def _preset(
    cls: type[DrQV2],
    settings: Mapping[str, Any],
    actor: Mapping[str, Any],
    pixels: int,
    capacity: int,
    num_envs: int,
) -> Preset:
    return Preset(
        algo_factory=make_factory(cls, (), settings),
        actor_factory=OffPolicyActor.create_factory(initialisation="orthogonal", **actor),
        storage_factory=NStepReplayBuffer.create_factory(
            capacity // num_envs, n_step=3, transforms={OBS: RandomShift(pixels, interpolate=True)}
        ),
    )
