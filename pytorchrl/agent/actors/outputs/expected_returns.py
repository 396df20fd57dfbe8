"""Expected returns: of one action or of all, rescaled, by component of the reward, and quadratic in the action."""

from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor

from pytorchrl.agent.actors.outputs.value import ActionValueFunction, ActionValues, Value


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


class ComponentValue(Value):
    """An expected return of each component of the reward, for each row.

    Args:
        components: (B, m).
    """

    def __init__(self, components: Tensor) -> None:
        self.components = components

    @property
    def mean(self) -> Tensor:
        """Sum of the components' expected returns, (B, 1)."""
        return self.components.sum(1, keepdim=True)

    def backup(self, reward: Tensor, discount: Tensor) -> Self:
        """Value of ``reward + discount * return`` of each component; rewards are (B, m), discounts (B, 1)."""
        return type(self)(reward.addcmul(discount, self.components))

    def loss(self, target: "ComponentValue") -> Tensor:
        """Half the squared error of each row, summed over components, (B, 1)."""
        return 0.5 * (self.components - target.components).square().sum(1, keepdim=True)

    def error(self, target: "ComponentValue") -> Tensor:
        """Euclidean norm of the components' errors of each row, (B, 1), without a gradient."""
        difference = self.components.detach() - target.components
        return difference.square_().sum(1, keepdim=True).sqrt_()

    def detach(self) -> Self:
        """Copy without gradients."""
        return type(self)(self.components.detach())


class QuadraticValues(ActionValueFunction):
    """``Q(a) = V - (a - peak)^T P (a - peak) / 2`` with ``P = L L^T``, of real actions within [-1, 1] (equation 2).

    Args:
        state_value: V, (B, 1).
        peak: maximum of the quadratic, (B, A).
        factor: L, (B, A, A), lower triangular with a positive diagonal.
        bounded: whether the peaks are known to lie within [-1, 1]; others are clipped to it as actions.
        huber_threshold: as of :class:`ScalarValue`; None for the squared error.
    """

    def __init__(
        self,
        state_value: Tensor,
        peak: Tensor,
        factor: Tensor,
        bounded: bool = False,
        huber_threshold: float | None = None,
    ) -> None:
        self.state_value = state_value
        self.peak = peak
        self.factor = factor
        self._bounded = bounded
        self._huber_threshold = huber_threshold

    def greedy(self) -> Tensor:
        """Peaks clipped to the bounds, (B, A); the maximum there if P is diagonal or the peak lies within them."""
        return self.peak if self._bounded else self.peak.clamp(-1, 1)

    def of(self, action: Tensor) -> ScalarValue:
        """Values of actions (B, A)."""
        distance = torch.bmm((action - self.peak).unsqueeze(1), self.factor).squeeze(1)
        loss = 0.5 * distance.square().sum(1, keepdim=True)
        return ScalarValue(self.state_value - loss, self._huber_threshold)

    def best(self) -> ScalarValue:
        """Values of the greedy actions: V where the peak is within the bounds, and less elsewhere."""
        return ScalarValue(self.state_value, self._huber_threshold) if self._bounded else self.of(self.greedy())
