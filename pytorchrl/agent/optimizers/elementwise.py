"""Optimisers whose rule is the same for each number, over parameters that lie in one piece of memory."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from pytorchrl.agent.optimizers.flat_parameters import FlatParameters
from pytorchrl.agent.optimizers.flat_stepper import FlatStepper
from pytorchrl.agent.optimizers.optimizer import Optimizer


@dataclass(frozen=True)
class ElementwiseOptimizer(Optimizer):
    """An optimiser that is written as a rule: how a parameter moves along its gradient.

    A subclass is a frozen dataclass that writes `move`, and names in :attr:`averages` what the rule keeps of each
    parameter from step to step.
    """

    @property
    def averages(self) -> tuple[str, ...]:
        """Names of the tensors that `move` gets beside a parameter and its gradient; zeros at first, then saved."""
        return ()

    @abstractmethod
    def move(self, learning_rate: float, parameter: Tensor, gradient: Tensor, *averages: Tensor) -> None:
        """Change a parameter, and its averages, in place; the gradient may be overwritten.

        All tensors are of one shape, that of one parameter or of several laid end to end: the operations are those that
        treat each number alike.

        Args:
            learning_rate: the present one.
            parameter: to be moved.
            gradient: of the loss, clipped already.
            averages: in the order of :attr:`averages`.
        """

    def make(self, parameters: FlatParameters) -> FlatStepper:
        """Make what steps these parameters."""
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
