"""Elementwise optimisers, over parameters in one contiguous vector."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from pytorchrl.agent.optimizers.flat_parameters import FlatParameters
from pytorchrl.agent.optimizers.flat_stepper import FlatStepper
from pytorchrl.agent.optimizers.optimizer import Optimizer


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
