"""The interfaces of optimisers, which are hyper-parameters of algorithms, and of the steppers that they make."""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self

from torch import Tensor, nn

from pytorchrl.agent.optimizers.flat_parameters import FlatParameters
from storages.component.setting import Setting


class Stepper(Protocol):
    """Update one group of parameters by their gradients, with the optimiser's state.

    A step skips parameters without a gradient, and does nothing in a group without any gradient.
    """

    learning_rate: float
    """0 until it is set; schedules set it during the run."""

    def zero_grad(self) -> None:
        """Remove the parameters' gradients."""

    def step(self, max_grad_norm: float | None = None) -> None:
        """Take a step along the gradients in the parameters.

        Args:
            max_grad_norm: gradients are clipped to this global norm; None for no clipping.

        Raises:
            RuntimeError: the optimiser evaluates its loss several times a step, or the parameters were moved.
        """

    def minimise(self, closure: Callable[[], Tensor], max_grad_norm: float | None = None) -> Tensor:
        """Take a step on a loss that can be evaluated again; every optimiser supports this.

        Args:
            closure: returns the loss, a scalar, from the parameters as they are when it is called.
            max_grad_norm: as in `step`.

        Returns:
            The loss before the step.
        """

    def forget(self, parameters: Collection[nn.Parameter]) -> None:
        """Reset the state of some of the parameters to that before the first step.

        An optimiser whose state concerns all parameters at once resets all of it.
        """

    def state_dict(self) -> dict[str, Any]:
        """Return all state that the next step depends on, except parameters and gradients: tensors and plain data."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state returned by `state_dict`; the tensors in it are copied, from any device.

        Raises:
            ValueError: it is of another optimiser, or of other parameters.
        """


@dataclass(frozen=True)
class Optimizer(Setting, ABC):
    """An optimiser as a hyper-parameter: its settings, from which it makes steppers of parameters.

    Raises:
        TypeError: a subclass defines an update rule that its steppers never call; raised when the class is made.
    """

    def __new__(cls, *values: Any, **fields: Any) -> Self:
        """Refuse a learning rate, which is the algorithm's."""
        for name in fields.keys() & {"lr", "learning_rate"}:
            if name not in {field.name for field in dataclasses.fields(cls)}:
                raise TypeError(
                    f"{cls.__name__}: {name} is a hyper-parameter of the algorithm, such as "
                    f"prl.PPO.create_factory(lr=1e-3, optimizer=prl.Adam())"
                )
        return super().__new__(cls, *values, **fields)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        is_new = "move" in vars(cls) and not any("move" in vars(base) for base in cls.__mro__[1:])
        inherits_steppers = "make" not in vars(cls) and not getattr(cls.make, "__isabstractmethod__", False)
        if is_new and inherits_steppers:
            raise TypeError(
                f"{cls.__name__}.move would never be called: the steppers of {cls.__mro__[1].__name__} have their own "
                f"update rule; extend ElementwiseOptimizer, whose rule move is, or override make as well"
            )

    @property
    def needs_loss(self) -> bool:
        """Whether it evaluates its loss several times a step, and so supports only ``minimise``."""
        return False

    def check_takes_gradients(self, group: str, owner: str) -> None:
        """Check that steps can be taken with precomputed gradients.

        Args:
            group: name of the parameters.
            owner: name of the algorithm.

        Raises:
            ValueError: the optimiser evaluates its loss several times per step.
        """
        if self.needs_loss:
            raise ValueError(
                f"{owner}: {self} evaluates its loss several times a step, but {group!r} is stepped with precomputed "
                f"gradients; choose another, such as optimizer=Adam()"
            )

    @abstractmethod
    def make(self, parameters: FlatParameters) -> Stepper:
        """Make a stepper of these parameters."""


def check_name(ours: str, state: Mapping[str, Any]) -> None:
    """Refuse the state of another optimiser.

    Raises:
        ValueError: the message names both.
    """
    saved = state.get("optimizer")
    if saved != ours:
        raise ValueError(f"{ours}: the saved state is of {saved}; load it with optimizer={saved}, or train anew")
