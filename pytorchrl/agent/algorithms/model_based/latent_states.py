"""Latent states with a recurrent and a discrete stochastic part, and the draws of the latter.

Hafner et al., "Mastering Atari with Discrete World Models" (DreamerV2, arXiv 2010.02193), section 2.1.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor


class Latent(NamedTuple):
    """Latent states of N rows."""

    recurrent: Tensor
    """(N, memory size), state of the sequence model: h of the paper."""
    stochastic: Tensor
    """(N, num_latents * num_classes), one-hot choices: z of the paper."""

    @property
    def features(self) -> Tensor:
        """(N, size), the input of networks that predict from the state."""
        return torch.cat(self, dim=1)

    def detach(self) -> "Latent":
        """Copy without gradients."""
        return Latent(*(part.detach() for part in self))


Draw: TypeAlias = Callable[[Tensor], Tensor]
"""Chooses a class (N, num_latents) int64 of each variable, by logarithms of probabilities (N, num_latents, classes)."""


def random_draw(generator: torch.Generator) -> Draw:
    """Return a draw at random, by the Gumbel-max trick."""

    def draw(logits: Tensor) -> Tensor:
        noise = torch.empty_like(logits)
        # On the meta device, torch's function takes no generator.
        noise.exponential_(generator=None if noise.is_meta else generator)
        return (logits - noise.log_()).argmax(-1)

    return draw


def drawn(recurrent: Tensor, logits: Tensor, draw: Draw) -> Latent:
    """Return latents whose stochastic part is drawn, with the gradients of the probabilities (straight-through).

    Args:
        recurrent: (N, memory size).
        logits: (N, num_latents, num_classes), logarithms of probabilities.
        draw: chooses the classes.
    """
    chosen = F.one_hot(draw(logits.detach()), logits.shape[-1]).to(logits.dtype)
    if logits.requires_grad:
        probabilities = logits.exp()
        chosen = chosen - probabilities.detach() + probabilities
    return Latent(recurrent, chosen.flatten(1))


def mixed_with_uniform(logits: Tensor, share: float) -> Tensor:
    """Return logarithms of probabilities, of softmax distributions mixed with the uniform one.

    No probability is ever 0, so that divergences stay finite ("unimix" of DreamerV3).

    Args:
        logits: (..., classes).
        share: of the uniform distribution.
    """
    return ((1 - share) * logits.softmax(-1) + share / logits.shape[-1]).log()


def divergence(logits: Tensor, others: Tensor) -> Tensor:
    """Return KL divergences (N, 1) of categorical distributions, in nats, summed over variables.

    Args:
        logits: (N, num_latents, num_classes), logarithms of probabilities.
        others: likewise.
    """
    return (logits.exp() * (logits - others)).sum((1, 2)).unsqueeze(1)


def where(condition: Tensor, latent: Latent, other: Latent) -> Latent:
    """Return a latent where the condition (B, 1) is true, and elsewhere the first B rows of the other."""
    rows = len(condition)
    return Latent(*(torch.where(condition, ours, theirs[:rows]) for ours, theirs in zip(latent, other, strict=True)))


def joined(latents: Sequence[Latent]) -> Latent:
    """Return the rows of several latents as one."""
    return Latent(*(torch.cat(parts) for parts in zip(*latents, strict=True)))
