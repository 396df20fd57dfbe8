"""RMSprop over parameters in one contiguous vector."""

from dataclasses import dataclass

from torch import Tensor

from pytorchrl.agent.optimizers.elementwise import ElementwiseOptimizer
from storages.component.hyper_parameters import Positive, UnitInterval


@dataclass(frozen=True)
class RMSprop(ElementwiseOptimizer):
    """Graves, "Generating Sequences With Recurrent Neural Networks" (arXiv 1308.0850), equations 38 to 41.

    The defaults are those of Mnih et al., "Human-level control through deep reinforcement learning" (Nature 518, 2015),
    where gradients are sums over the rows of a batch; for means over B rows, divide ``eps`` by ``B**2``.
    With ``eps_inside_root=False`` it is torch.optim.RMSprop. In both forms the learning rate multiplies the velocity
    when the parameters move, so that a schedule acts at once.

    Args:
        alpha: decay rate of the running means of gradients and of their squares.
        eps: added to the mean of squares, or to its root.
        momentum: decay rate of the velocity; 0 for no momentum.
        centered: divide by an estimate of the gradient's standard deviation; False: of its root mean square.
        eps_inside_root: add ``eps`` before the root is taken; False: after it.
    """

    alpha: UnitInterval = 0.95
    eps: Positive = 0.01
    momentum: UnitInterval = 0.0
    centered: bool = True
    eps_inside_root: bool = True

    @property
    def averages(self) -> tuple[str, ...]:
        """The mean of squares, and the other averages that the settings need."""
        return ("squares",) + ("means",) * self.centered + ("velocities",) * (self.momentum > 0)

    def move(self, learning_rate: float, parameter: Tensor, gradient: Tensor, *averages: Tensor) -> None:
        """Step along the gradient divided by its estimated scale, or along the velocity that accumulates it."""
        square, *others = averages
        square.mul_(self.alpha).addcmul_(gradient, gradient, value=1 - self.alpha)
        variance = square
        if self.centered:
            mean = others[0].lerp_(gradient, 1 - self.alpha)
            # Rounding can make the variance of a constant gradient negative.
            variance = square.addcmul(mean, mean, value=-1).clamp_(min=0)
        root = (variance + self.eps).sqrt_() if self.eps_inside_root else variance.sqrt().add_(self.eps)
        if self.momentum > 0:
            velocity = others[-1].mul_(self.momentum).addcdiv_(gradient, root)
            parameter.add_(velocity, alpha=-learning_rate)
        else:
            parameter.addcdiv_(gradient, root, value=-learning_rate)
