"""RMSprop over parameters that lie in one piece of memory."""

from dataclasses import dataclass

from torch import Tensor

from pytorchrl.agent.optimizers.elementwise import ElementwiseOptimizer
from storages.component.hyper_parameters import Positive, UnitInterval


@dataclass(frozen=True)
class RMSprop(ElementwiseOptimizer):
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

    @property
    def averages(self) -> tuple[str, ...]:
        """The mean of squares, and those that the settings need."""
        return ("squares",) + ("means",) * self.centered + ("velocities",) * (self.momentum > 0)

    def move(self, learning_rate: float, parameter: Tensor, gradient: Tensor, *averages: Tensor) -> None:
        """Move along the gradient divided by its estimated size, or along the velocity that this adds to."""
        square, *others = averages
        square.mul_(self.alpha).addcmul_(gradient, gradient, value=1 - self.alpha)
        variance = square
        if self.centered:
            mean = others[0].lerp_(gradient, 1 - self.alpha)
            # Rounding makes the variance of a gradient that stays the same negative.
            variance = square.addcmul(mean, mean, value=-1).clamp_(min=0)
        root = (variance + self.eps).sqrt_() if self.eps_inside_root else variance.sqrt().add_(self.eps)
        if self.momentum > 0:
            velocity = others[-1].mul_(self.momentum).addcdiv_(gradient, root)
            parameter.add_(velocity, alpha=-learning_rate)
        else:
            parameter.addcdiv_(gradient, root, value=-learning_rate)
