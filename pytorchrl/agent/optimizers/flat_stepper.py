"""Steppers over parameters in one contiguous vector.

Networks of reinforcement learning are small, and most of an update's time is the overhead of launching operations. In
one vector, all parameters are updated by one operation, and a target network by one more. No step reads a tensor's
value, so that none synchronises with the device.
"""

import functools
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from pytorchrl.agent.optimizers.flat_parameters import FlatParameters
from pytorchrl.agent.optimizers.optimizer import check_name

# Limit of gradients that are copied into one vector. Beyond it, copying costs more than one operation for each
# parameter.
_MOST_COPIED_NUMBERS = 300_000
_GRADIENT_OF, _IS_GIVEN = operator.attrgetter("grad"), functools.partial(operator.is_not, None)


class FlatStepper(ABC):
    """A stepper whose averages are vectors of the layout of the parameters; a subclass implements the update rule.

    As with torch.optim, a step skips a parameter without a gradient: neither its value nor its averages change.

    Args:
        parameters: to be trained.
        name: of the optimiser, stored in its state.
        averages: names of the vectors that the rule keeps, which are zeros at first.
    """

    def __init__(self, parameters: FlatParameters, name: str, averages: Sequence[str]) -> None:
        self.parameters = parameters
        self.learning_rate = 0.0
        self._name = name
        self._gradient, self._gradient_views = parameters.empty_vector()
        self._averages = {average: parameters.empty_vector() for average in averages}

    @abstractmethod
    def _move(self, positions: Sequence[int] | None, gradients: Sequence[Tensor], divisor: Tensor | None) -> None:
        """Update the parameters and the averages, both as `_tensors` returns them.

        Args:
            positions: of the parameters that have a gradient, to be updated one by one; None updates all as one vector.
            gradients: of each of these parameters, or of that vector; they may be overwritten.
            divisor: (), by which the gradients are still to be divided; None for none.
        """

    def zero_grad(self) -> None:
        """Remove the parameters' gradients."""
        for parameter in self.parameters.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self, max_grad_norm: float | None = None) -> None:
        """Take a step along the gradients of the parameters that have one.

        Args:
            max_grad_norm: gradients are clipped to this global norm; None for no clipping.
        """
        self.parameters.check()
        all_gradients = list(map(_GRADIENT_OF, self.parameters.parameters))
        gradients = list(filter(_IS_GIVEN, all_gradients))
        if not gradients:
            return
        positions = None
        if len(gradients) == len(all_gradients) and len(self._gradient) <= _MOST_COPIED_NUMBERS:
            torch._foreach_copy_(self._gradient_views, gradients)
            gradients = [self._gradient]
        else:
            positions = [position for position, gradient in enumerate(all_gradients) if gradient is not None]
            gradients = [gradient.contiguous() for gradient in gradients]
        divisor = None
        if max_grad_norm is not None:
            # Of one vector, by fewer calls.
            norm = nn.utils.get_total_norm(gradients) if positions else torch.linalg.vector_norm(self._gradient)
            divisor = (norm / max_grad_norm).clamp_(min=1)
        self._move(positions, gradients, divisor)

    def _tensors(self, positions: Sequence[int] | None) -> tuple[list[Tensor], list[list[Tensor]]]:
        """Return the parameters and each average, as one vector or as the tensors at the positions."""
        parameters, averages = self.parameters, self._averages.values()
        if positions is None:
            vectors = []
            for vector, _ in averages:
                vectors.append([vector])
            return [parameters.vector], vectors
        return (
            [parameters.parameters[position] for position in positions],
            [[views[position] for position in positions] for _, views in averages],
        )

    def minimise(self, closure: Callable[[], Tensor], max_grad_norm: float | None = None) -> Tensor:
        """Take a step along the gradient of the loss that ``closure`` returns; return that loss."""
        self.zero_grad()
        with torch.enable_grad():
            loss = closure()
            if loss.requires_grad or not self.parameters.are_frozen:
                loss.backward()  # type: ignore[no-untyped-call]
        self.step(max_grad_norm)
        return loss.detach()

    def forget(self, parameters: Collection[nn.Parameter]) -> None:
        """Set the averages of some of the parameters to zero."""
        for position in self._positions_of(parameters):
            for _, views in self._averages.values():
                views[position].zero_()

    def _positions_of(self, parameters: Collection[nn.Parameter]) -> list[int]:
        found = {id(parameter) for parameter in parameters}
        return [position for position, own in enumerate(self.parameters.parameters) if id(own) in found]

    def state_dict(self) -> dict[str, Any]:
        """Return all state that the next step depends on, except the parameters and their gradients."""
        averages = {name: vector for name, (vector, _) in self._averages.items()}
        return {"optimizer": self._name, "learning_rate": self.learning_rate, **averages}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state returned by `state_dict`."""
        check_name(self._name, state)
        for name, (vector, _) in self._averages.items():
            if state[name].shape != vector.shape:
                raise ValueError(
                    f"{self._name}: {name} has {len(vector)} elements for these parameters, in the saved state it has "
                    f"shape {tuple(state[name].shape)}; load a state of the same networks"
                )
        for name, (vector, _) in self._averages.items():
            vector.copy_(state[name])
        self.learning_rate = state["learning_rate"]
