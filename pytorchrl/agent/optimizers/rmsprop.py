"""RMSprop over parameters that lie in one piece of memory."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from pytorchrl.agent.optimizers.flat_parameters import FlatParameters
from pytorchrl.agent.optimizers.flat_stepper import FlatStepper
from pytorchrl.agent.optimizers.optimizer import Optimizer
from storages.hyper_parameters import Positive, UnitInterval


@dataclass(frozen=True)
class RMSprop(Optimizer):
    """Graves, "Generating Sequences With Recurrent Neural Networks" (arXiv 1308.0850), equations 38 to 41.

    The defaults are those of Mnih et al., "Human-level control through deep reinforcement learning" (Nature 518, 2015).
    With ``eps_inside_root=False`` it is torch.optim.RMSprop. In both forms the learning rate multiplies the velocity
    when the parameters move, so that a schedule acts at once.

    Args:
        alpha: how much of the means of gradients and of their squares stays at each step.
        eps: added to the mean of squares, or to its root.
        momentum: how much of the velocity stays at each step.
        centered: divide by an estimate of the gradient's standard deviation; False: by that of its root mean square.
        eps_inside_root: add ``eps`` before the root is taken; False: after it.
    """

    alpha: UnitInterval = 0.95
    eps: Positive = 0.01
    momentum: UnitInterval = 0.0
    centered: bool = True
    eps_inside_root: bool = True

    def make(self, parameters: FlatParameters) -> FlatStepper:
        """Make what steps these parameters."""
        return _FlatRMSprop(parameters, self)


class _FlatRMSprop(FlatStepper):
    def __init__(self, parameters: FlatParameters, setting: RMSprop) -> None:
        averages = ["squares"] + ["means"] * setting.centered + ["velocities"] * (setting.momentum > 0)
        super().__init__(parameters, "RMSprop", averages)
        self._setting = setting

    def _move(self, positions: Sequence[int] | None, divisor: Tensor | None) -> None:
        setting = self._setting
        if divisor is not None:
            self._gradient /= divisor
        for parameter, gradient, square, *others in zip(*self._tensors(positions), strict=True):
            square.mul_(setting.alpha).addcmul_(gradient, gradient, value=1 - setting.alpha)
            variance = square
            if setting.centered:
                mean = others[0].lerp_(gradient, 1 - setting.alpha)
                # Rounding makes the variance of a gradient that stays the same negative.
                variance = square.addcmul(mean, mean, value=-1).clamp_(min=0)
            root = (variance + setting.eps).sqrt_() if setting.eps_inside_root else variance.sqrt().add_(setting.eps)
            if setting.momentum > 0:
                velocity = others[-1].mul_(setting.momentum).addcdiv_(gradient, root)
                parameter.add_(velocity, alpha=-self.learning_rate)
            else:
                parameter.addcdiv_(gradient, root, value=-self.learning_rate)
