"""Stochastic gradient descent over parameters in one contiguous vector."""

from dataclasses import dataclass

from torch import Tensor

from pytorchrl.agent.optimizers.elementwise import ElementwiseOptimizer
from storages.component.hyper_parameters import NonNegative, UnitInterval


@dataclass(frozen=True)
class SGD(ElementwiseOptimizer):
    """Stochastic gradient descent, as torch.optim.SGD.

    Args:
        momentum: decay rate of the velocity; 0 for no momentum.
        nesterov: use Nesterov momentum (Sutskever et al., "On the importance of initialization and momentum in deep
            learning", ICML 2013); needs a momentum.
        weight_decay: L2 penalty: this times the parameter is added to its gradient.
    """

    momentum: UnitInterval = 0.0
    nesterov: bool = False
    weight_decay: NonNegative = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nesterov and not self.momentum:
            raise ValueError("SGD: nesterov needs a momentum greater than 0, got 0; pass momentum=0.9")

    @property
    def averages(self) -> tuple[str, ...]:
        """The velocity, with a momentum."""
        return ("velocities",) if self.momentum > 0 else ()

    def move(self, learning_rate: float, parameter: Tensor, gradient: Tensor, *averages: Tensor) -> None:
        """Step along the velocity, or along the gradient where there is no momentum."""
        if self.weight_decay:
            gradient.add_(parameter, alpha=self.weight_decay)
        direction = gradient
        for velocity in averages:
            velocity.mul_(self.momentum).add_(gradient)
            direction = gradient.add_(velocity, alpha=self.momentum) if self.nesterov else velocity
        parameter.add_(direction, alpha=-learning_rate)
