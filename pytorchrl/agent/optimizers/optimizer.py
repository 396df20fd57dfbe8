"""What every optimiser is: a value that algorithms have as a hyper-parameter, which makes what steps parameters."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from pytorchrl.agent.optimizers.flat_parameters import FlatParameters
from storages.component.setting import Setting


class Stepper(Protocol):
    """Moves one group of parameters along their gradients.

    A parameter without a gradient is not part of a step, and a group without any gradient is not stepped.
    """

    learning_rate: float
    """0 until it is set; schedules set it as the run goes on."""

    def zero_grad(self) -> None:
        """Remove the parameters' gradients."""

    def step(self, max_grad_norm: float | None = None) -> None:
        """Take a step along the gradients in the parameters.

        Args:
            max_grad_norm: gradients are scaled down to this norm of all of them together; None leaves them.

        Raises:
            RuntimeError: the optimiser evaluates its loss several times a step, or the parameters were moved.
        """

    def minimise(self, closure: Callable[[], Tensor], max_grad_norm: float | None = None) -> Tensor:
        """Take a step down a loss that can be evaluated again; every optimiser can do that.

        Args:
            closure: returns the loss, a scalar, from the parameters as they are when it is called.
            max_grad_norm: as in `step`.

        Returns:
            The loss before the step.
        """

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next step depends on but the parameters and their gradients: tensors and plain data."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state returned by `state_dict`; the tensors in it are copied, from any device.

        Raises:
            ValueError: it is of another optimiser, or of other parameters.
        """


@dataclass(frozen=True)
class Optimizer(Setting, ABC):
    """How parameters move along their gradients."""

    @property
    def needs_loss(self) -> bool:
        """Whether it evaluates its loss several times a step, so that it steps by ``minimise`` alone."""
        return False

    @abstractmethod
    def make(self, parameters: FlatParameters) -> Stepper:
        """Make what steps these parameters."""


def check_name(ours: str, state: Mapping[str, Any]) -> None:
    """Refuse the state of another optimiser.

    Raises:
        ValueError: the message names both.
    """
    saved = state.get("optimizer")
    if saved != ours:
        raise ValueError(f"{ours}: the saved state is of {saved}; load it with optimizer={saved}, or train anew")
