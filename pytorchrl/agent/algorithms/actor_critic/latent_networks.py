"""Networks of encoded observations (N, latent), and a model that predicts what follows in this representation."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pytorchrl.agent.actors.actor import Actor
from pytorchrl.agent.actors.encoders import output_size_of
from pytorchrl.agent.ops.two_hot import symexp


@dataclass(frozen=True)
class EncoderHead:
    """The head of a network whose features are its output."""

    def build(self, features: int, actor: Actor) -> nn.Module:
        """Return the identity."""
        return nn.Identity()


def latent_layers(actor: Actor, inputs: int, outputs: int) -> nn.Sequential:
    """Make hidden layers as the actor's networks have, and a linear one, from (N, inputs) to (N, outputs)."""
    hidden = actor.hidden_layers(inputs, actor.hidden_sizes)
    return nn.Sequential(hidden, actor.linear(output_size_of(hidden), outputs))


def values_of(critics: Iterable[nn.Module], features: Tensor) -> Tensor:
    """Return the values (N, critics) of features (N, latent)."""
    return torch.cat([critic(features) for critic in critics], dim=1)


class LatentModel(nn.Module):
    """From an encoded observation and an action to features (N, latent), and from these to what follows.

    Args:
        actor: makes the layers.
        latent: numbers of an encoded observation, and of the features.
        actions: numbers of an action.
        action_features: numbers that an action is encoded to.
        num_bins: classes of rewards.
        largest_bin: symmetric logarithm of the largest reward.
    """

    statistics = frozenset({"reward_scale", "has_ended"})

    reward_scale: Tensor
    """(1,): mean absolute reward; in the target network, that in whose units the target critics are."""
    has_ended: Tensor
    """(1,): 1 once there was a termination."""
    bins: Tensor
    """(num_bins,): rewards of the classes."""

    def __init__(
        self, actor: Actor, latent: int, actions: int, action_features: int, num_bins: int, largest_bin: float
    ) -> None:
        super().__init__()
        self.of_action = actor.linear(actions, action_features)
        self.joint = latent_layers(actor, latent + action_features, latent)
        self.predictions, self._sizes = actor.linear(latent, 1 + latent + num_bins), [1, latent, num_bins]
        self.register_buffer("reward_scale", torch.ones(1))
        self.register_buffer("has_ended", torch.zeros(1))
        self.register_buffer("bins", symexp(torch.linspace(-largest_bin, largest_bin, num_bins)), persistent=False)

    def forward(self, latent: Tensor, action: Tensor) -> Tensor:
        """Return features (N, latent) of encoded observations (N, latent) and actions (N, A)."""
        features: Tensor = self.joint(torch.cat([latent, F.elu(self.of_action(action))], dim=1))
        return features

    def predicted(self, features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return termination (N, 1), the next encoded observation (N, latent) and logits of the reward (N, bins)."""
        termination, latent, logits = self.predictions(features).split(self._sizes, dim=1)
        return termination, latent, logits
