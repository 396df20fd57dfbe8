"""Stochastic gradient descent over parameters that lie in one piece of memory."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from pytorchrl.agent.optimizers.flat_parameters import FlatParameters
from pytorchrl.agent.optimizers.flat_stepper import FlatStepper
from pytorchrl.agent.optimizers.optimizer import Optimizer
from storages.hyper_parameters import NonNegative, UnitInterval


@dataclass(frozen=True)
class SGD(Optimizer):
    """Stochastic gradient descent, as torch.optim.SGD.

    Args:
        momentum: how much of the velocity stays at each step.
        nesterov: move by where the velocity will be after the next step (Sutskever et al., "On the importance of
            initialization and momentum in deep learning", ICML 2013); needs a momentum.
        weight_decay: times the parameter, added to its gradient.
    """

    momentum: UnitInterval = 0.0
    nesterov: bool = False
    weight_decay: NonNegative = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nesterov and not self.momentum:
            raise ValueError("SGD: nesterov needs a momentum greater than 0, got 0; pass momentum=0.9")

    def make(self, parameters: FlatParameters) -> FlatStepper:
        """Make what steps these parameters."""
        return _FlatSGD(parameters, self)


class _FlatSGD(FlatStepper):
    def __init__(self, parameters: FlatParameters, setting: SGD) -> None:
        super().__init__(parameters, "SGD", ["velocities"] * (setting.momentum > 0))
        self._setting = setting

    def _move(self, positions: Sequence[int] | None, divisor: Tensor | None) -> None:
        setting = self._setting
        if divisor is not None:
            self._gradient /= divisor
        for parameter, gradient, *velocities in zip(*self._tensors(positions), strict=True):
            if setting.weight_decay:
                gradient.add_(parameter, alpha=setting.weight_decay)
            direction = gradient
            for velocity in velocities:
                velocity.mul_(setting.momentum).add_(gradient)
                direction = gradient.add_(velocity, alpha=setting.momentum) if setting.nesterov else velocity
            parameter.add_(direction, alpha=-self.learning_rate)
