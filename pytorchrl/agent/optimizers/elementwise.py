"""Elementwise optimisers, over parameters in one contiguous vector: RMSprop and SGD."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from pytorchrl.agent.optimizers.flat_parameters import FlatParameters
from pytorchrl.agent.optimizers.flat_stepper import FlatStepper
from pytorchrl.agent.optimizers.optimizer import Optimizer
from storages.component.hyper_parameters import NonNegative, Positive, UnitInterval


@dataclass(frozen=True)
class ElementwiseOptimizer(Optimizer):
    """An optimiser that is defined by an elementwise update rule.

    A subclass is a frozen dataclass that implements `move`, and names in :attr:`averages` the state that the rule keeps
    of each parameter from step to step.
    """

    @property
    def averages(self) -> tuple[str, ...]:
        """Names of the state tensors that `move` gets for a parameter; they are zeros at first, and are saved."""
        return ()

    @abstractmethod
    def move(self, learning_rate: float, parameter: Tensor, gradient: Tensor, *averages: Tensor) -> None:
        """Update a parameter and its averages in place; the gradient may be overwritten.

        All tensors have one shape, that of one parameter or of several concatenated ones: all operations must be
        elementwise.

        Args:
            learning_rate: the current one.
            parameter: to be updated.
            gradient: of the loss, already clipped.
            averages: in the order of :attr:`averages`.
        """

    def make(self, parameters: FlatParameters) -> FlatStepper:
        """Make a stepper of these parameters."""
        return ElementwiseStepper(parameters, self)


class ElementwiseStepper(FlatStepper):
    """The stepper of an elementwise update rule, whose state is vectors alone.

    Args:
        parameters: to be trained.
        rule: the update rule.
    """

    def __init__(self, parameters: FlatParameters, rule: ElementwiseOptimizer) -> None:
        super().__init__(parameters, type(rule).__name__, rule.averages)
        self._rule = rule

    @property
    def vectors(self) -> list[Tensor]:
        """All values that a step changes: those of the parameters, and each average."""
        return [self.parameters.vector, *(vector for vector, _ in self._averages.values())]

    def use(self, vectors: Sequence[Tensor]) -> None:
        """Let the values lie in other vectors, given in the order of :attr:`vectors`."""
        parameters, *averages = vectors
        self.parameters.use(parameters)
        for name, vector in zip(self._averages, averages, strict=True):
            self._averages[name] = vector, self.parameters.views_of(vector)

    def _move(self, positions: Sequence[int] | None, gradients: Sequence[Tensor], divisor: Tensor | None) -> None:
        parameters, averages = self._tensors(positions)
        for parameter, gradient, *others in zip(parameters, gradients, *averages, strict=True):
            if divisor is not None:
                gradient /= divisor
            self._rule.move(self.learning_rate, parameter, gradient, *others)


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
