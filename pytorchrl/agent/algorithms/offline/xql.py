"""XQL: offline Q-learning by Gumbel regression, whose state values are soft maxima over the data's actions."""

from torch import Tensor

from pytorchrl.agent.algorithms.offline.parts.state_value_regression import StateValueRegression
from pytorchrl.agent.algorithms.rows import Rows
from storages.component.hyper_parameters import Positive


class XQL(StateValueRegression):
    """Garg et al., "Extreme Q-Learning: MaxEnt RL without Entropy" (arXiv 2301.02328), algorithm 1.

    The loss of the state values is scaled and clipped as in the authors' code, against overflow and outliers.

    Args:
        value_temperature: divides the errors of state values, in reward (beta); near 0 state values estimate the
            maximum of the data's action values, with a large one their mean.
        max_clip: the largest error of a state value, divided by ``value_temperature``, that has a gradient; None for
            no bound.
    """

    value_temperature: Positive = 2.0
    max_clip: Positive | None = 7.0

    def value_loss(self, advantage: Tensor, rows: Rows) -> Tensor:
        """Return the Gumbel loss (N, 1) of the state values, divided by the batch's largest exponential."""
        error = advantage / self.value_temperature
        error = error if self.max_clip is None else error.clamp(max=self.max_clip)
        # Where all errors are far below 0, the authors bound the factor by e.
        return gumbel_loss(error, rows.maximum(error.detach()).clamp(min=-1.0))


def gumbel_loss(error: Tensor, shift: Tensor) -> Tensor:
    """Return ``exp(error) - error - 1`` divided by ``exp(shift)``, finite where ``shift`` is the largest error."""
    return (error - shift).exp() - (error + 1) * (-shift).exp()
