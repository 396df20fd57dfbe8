"""Rescaled expected returns: Pohlen et al., "Observe and Look Further" (arXiv 1805.11593)."""

import torch
from torch import Tensor

from pytorchrl.agent.actors.outputs.values.scalar import ScalarValue, ScalarValues


def rescaled(returns: Tensor, eps: float) -> Tensor:
    """``h(x) = sign(x) * (sqrt(|x| + 1) - 1) + eps * x`` (section 3.2), exact for small returns too."""
    return returns / ((returns.abs() + 1).sqrt() + 1) + eps * returns


def restored(values: Tensor, eps: float) -> Tensor:
    """Return the inverse ``x`` of :func:`rescaled`, for values ``y``.

    ``t = sqrt(|x| + 1) - 1`` is a root of ``eps * t**2 + (1 + 2 * eps) * t - |y|``, which is written without the
    difference of nearly equal numbers that the paper's formula has.
    """
    slope = 1 + 2 * eps
    t = 2 * values / ((4 * eps * values.abs() + slope**2).sqrt() + slope)  # of the sign of the value
    return t * (t.abs() + 2)


class RescaledValue(ScalarValue):
    """An expected return for each row, with losses on the scale of :func:`rescaled`.

    Args:
        value: (B, 1), rescaled.
        eps: of the scale.
        huber_threshold: as of :class:`ScalarValue`, rescaled.
    """

    def __init__(self, value: Tensor, eps: float, huber_threshold: float | None = 1.0) -> None:
        super().__init__(value, huber_threshold)
        self._eps = eps

    @property
    def mean(self) -> Tensor:
        """Expected return, (B, 1)."""
        return restored(self._mean, self._eps)

    def backup(self, reward: Tensor, discount: Tensor) -> "RescaledValue":
        """Value of ``reward + discount * return``, of (B, 1) each."""
        return self._like(rescaled(torch.addcmul(reward, discount, self.mean), self._eps))

    def detach(self) -> "RescaledValue":
        """Copy without gradients."""
        return self._like(self._mean.detach())

    def _like(self, value: Tensor) -> "RescaledValue":
        return RescaledValue(value, self._eps, self._huber_threshold)


class RescaledValues(ScalarValues):
    """An expected return for each action, on the scale of :func:`rescaled`.

    Args:
        values: (B, n), rescaled.
        eps: of the scale.
        huber_threshold: as of :class:`ScalarValue`, rescaled.
    """

    def __init__(self, values: Tensor, eps: float, huber_threshold: float | None = 1.0) -> None:
        super().__init__(values, huber_threshold)
        self._eps = eps

    @property
    def values(self) -> Tensor:
        """Expected returns, (B, n)."""
        return restored(self._values, self._eps)

    def greedy(self) -> Tensor:
        """Actions of the highest expected return, (B, 1) int64."""
        return self._values.argmax(1, keepdim=True)

    def of(self, action: Tensor) -> RescaledValue:
        """Values of actions (B, 1) int64."""
        return self._one(self._values.gather(1, action))

    def best(self) -> RescaledValue:
        """Values of the greedy actions."""
        return self._one(self._values.max(1, keepdim=True).values)

    def expectation(self, probabilities: Tensor) -> RescaledValue:
        """Values of a policy with action probabilities (B, n): the mean is taken of the returns, before rescaling."""
        return self._one(rescaled((probabilities * self.values).sum(1, keepdim=True), self._eps))

    def _one(self, value: Tensor) -> RescaledValue:
        return RescaledValue(value, self._eps, self._huber_threshold)
