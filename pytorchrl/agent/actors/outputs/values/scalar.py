"""Expected returns."""

import torch
import torch.nn.functional as F
from torch import Tensor

from pytorchrl.agent.actors.outputs.values.value import ActionValues, Value


class ScalarValue(Value):
    """An expected return for each row.

    Args:
        mean: (B, 1).
        huber_threshold: error from which on the Huber loss is linear; None for half the squared error.
    """

    def __init__(self, mean: Tensor, huber_threshold: float | None = 1.0) -> None:
        self._mean = mean
        self._huber_threshold = huber_threshold

    @property
    def mean(self) -> Tensor:
        """Expected return, (B, 1)."""
        return self._mean

    def backup(self, reward: Tensor, discount: Tensor) -> "ScalarValue":
        """Value of ``reward + discount * return``, of (B, 1) each."""
        return ScalarValue(torch.addcmul(reward, discount, self._mean), self._huber_threshold)

    def loss(self, target: "ScalarValue") -> Tensor:
        """Huber loss, or half the squared error, of each row, (B, 1)."""
        if self._huber_threshold is None:
            return 0.5 * F.mse_loss(self._mean, target._mean, reduction="none")
        return F.huber_loss(self._mean, target._mean, reduction="none", delta=self._huber_threshold)

    def error(self, target: "ScalarValue") -> Tensor:
        """Absolute error of each row, (B, 1), without a gradient."""
        return (self._mean.detach() - target._mean.detach()).abs_()

    def detach(self) -> "ScalarValue":
        """Copy without gradients."""
        return ScalarValue(self._mean.detach(), self._huber_threshold)


class ScalarValues(ActionValues):
    """An expected return for each action.

    Args:
        values: (B, n).
        huber_threshold: as of :class:`ScalarValue`.
    """

    def __init__(self, values: Tensor, huber_threshold: float | None = 1.0) -> None:
        self._values = values
        self._huber_threshold = huber_threshold

    @property
    def values(self) -> Tensor:
        """Expected returns, (B, n)."""
        return self._values

    def of(self, action: Tensor) -> ScalarValue:
        """Values of actions (B, 1) int64."""
        return ScalarValue(self._values.gather(1, action), self._huber_threshold)

    def best(self) -> ScalarValue:
        """Values of the greedy actions."""
        return ScalarValue(self._values.max(1, keepdim=True).values, self._huber_threshold)

    def expectation(self, probabilities: Tensor) -> ScalarValue:
        """Values of a policy with action probabilities (B, n)."""
        return ScalarValue((probabilities * self._values).sum(1, keepdim=True), self._huber_threshold)
