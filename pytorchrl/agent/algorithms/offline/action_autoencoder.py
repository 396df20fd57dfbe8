"""Actions that BCQ and BEAR choose among: an autoencoder of the data's actions, and the best of several proposed."""

import torch
from torch import Tensor

from pytorchrl.agent.actors.actor import Actor
from pytorchrl.agent.actors.codec import ActionCodec
from pytorchrl.agent.actors.heads import DeterministicPolicy, LatentGaussian
from pytorchrl.agent.actors.network import Ensemble, Network
from pytorchrl.agent.actors.outputs import DiagonalGaussian, ScalarValue
from pytorchrl.agent.actors.view import Repeated, View
from pytorchrl.agent.algorithms.rows import Rows


class ActionAutoencoder:
    """Variational autoencoder of actions given observations; latents have twice the action's dimension.

    Kingma and Welling, "Auto-Encoding Variational Bayes" (arXiv 1312.6114).

    Args:
        actor: makes and keeps the two networks.
        codec: of bounded actions, scaled to [-1, 1].
    """

    def __init__(self, actor: Actor, codec: ActionCodec) -> None:
        self._device = actor.device
        self.latent_size = 2 * codec.size
        self.encoder: Network = actor.make("encoder", LatentGaussian(self.latent_size), codec=codec)
        head = DeterministicPolicy(squash=False)
        self.decoder: Network = actor.make("decoder", head, beside=self.latent_size, acts=True)

    def loss(self, rows: Rows, kl_weight: float, generator: torch.Generator) -> Tensor:
        """Return the reconstruction error plus weighted KL divergence () of the latents from the prior."""
        latent: DiagonalGaussian = self.encoder(rows.now, rows.action)
        decoded = torch.tanh(self.decoder(rows.now, latent.rsample(generator)))
        reconstruction = rows.mean((decoded - rows.action).square().mean(1, keepdim=True))
        # As in the code of BCQ's authors, the mean over latent dimensions.
        divergence = rows.mean(latent.kl(_standard_normal(latent))) / self.latent_size
        return reconstruction + kl_weight * divergence

    def sample_unsquashed(self, view: View, rows: int, latent_clip: float, generator: torch.Generator) -> Tensor:
        """Return sampled actions (N, A) before their tanh, decoded from clipped standard normal latents.

        Args:
            view: of N rows.
            rows: N.
            latent_clip: bound of the latents.
            generator: of the latents.
        """
        latent = torch.empty((rows, self.latent_size), device=self._device).normal_(generator=generator)
        action: Tensor = self.decoder(view, latent.clamp(-latent_clip, latent_clip))
        return action


def _standard_normal(like: DiagonalGaussian) -> DiagonalGaussian:
    return DiagonalGaussian(torch.zeros_like(like.mean), torch.zeros_like(like.log_std))


def largest_mixed_target(
    critics: Ensemble, rows: Rows, action: Tensor, number: int, minimum_weight: float
) -> ScalarValue:
    """Return the TD target of the best proposed action, by a weighted minimum and maximum of the critics.

    Args:
        critics: at least one.
        rows: N, of a batch.
        action: (N * number, A), proposed in the next states, those of a row consecutively.
        number: of actions for each row.
        minimum_weight: weight of the critics' minimum; their maximum has the rest.
    """
    values = torch.stack([value.mean for value in critics(Repeated(rows.next, number), action)])
    mixed = torch.lerp(values.amax(0), values.amin(0), minimum_weight)
    return ScalarValue(mixed.view(-1, number).max(1, keepdim=True).values).backup(rows.reward, rows.discount)


def best_proposed(critic: Network, view: View, action: Tensor, number: int) -> Tensor:
    """Return the action (N, A) of the largest value among those proposed (N * number, A) for each row."""
    values: Tensor = critic(Repeated(view, number), action).mean.view(-1, number)
    best = values.argmax(1)[:, None, None].expand(-1, 1, action.shape[1])
    return action.view(-1, number, action.shape[1]).gather(1, best)[:, 0]
