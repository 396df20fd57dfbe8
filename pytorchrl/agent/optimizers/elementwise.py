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
        return _ElementwiseStepper(parameters, self)


class _ElementwiseStepper(FlatStepper):
    def __init__(self, parameters: FlatParameters, rule: ElementwiseOptimizer) -> None:
        super().__init__(parameters, type(rule).__name__, rule.averages)
        self._rule = rule

    def _move(self, positions: Sequence[int] | None, gradients: Sequence[Tensor], divisor: Tensor | None) -> None:
        parameters, averages = self._tensors(positions)
        for parameter, gradient, *others in zip(parameters, gradients, *averages, strict=True):
            if divisor is not None:
                gradient /= divisor
            self._rule.move(self.learning_rate, parameter, gradient, *others)
