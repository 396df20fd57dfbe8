"""Q-functions that are quadratic in the action: Gu et al. (NAF, arXiv 1603.00748)."""

import torch
from torch import Tensor

from pytorchrl.agent.actors.outputs.values.scalar import ScalarValue
from pytorchrl.agent.actors.outputs.values.value import ActionValueFunction


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
