"""Losses of a representation of hybrid actions."""

from typing import NamedTuple

from torch import Tensor


class RepresentationLosses(NamedTuple):
    """Parts of the loss of a batch, () each."""

    parameters: Tensor
    """Squared error of the decoded parameters in [-1, 1], summed over these."""
    divergence: Tensor
    """KL divergence of the latents from a standard normal distribution."""
    changes: Tensor
    """Mean squared error of the predicted changes, in units of the variance of each in the batch."""

    def weighted(self, kl_weight: float, dynamics_weight: float) -> Tensor:
        """Return the sum ()."""
        return self.parameters + kl_weight * self.divergence + dynamics_weight * self.changes

    @property
    def metrics(self) -> dict[str, Tensor]:
        """Metrics of an update."""
        return {"parameter_error": self.parameters.detach(), "change_error": self.changes.detach()}
