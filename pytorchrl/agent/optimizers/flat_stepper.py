"""Optimisers over parameters that lie in one piece of memory.

Networks of reinforcement learning are small, and an update of theirs is mostly the overhead of starting operations.
Laid end to end, all parameters are reached by one operation: a step of Adam with clipped gradients takes a quarter of
the time that torch.optim's fused Adam and ``clip_grad_norm_`` take for three small layers, and a target follows in one
more. No step reads a tensor's value, so that none waits for the device.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from pytorchrl.agent.optimizers.flat_parameters import FlatParameters
from pytorchrl.agent.optimizers.optimizer import check_name


class FlatStepper(ABC):
    """A stepper whose averages are vectors of the layout of the parameters; extended by a rule of a few lines.

    As with torch.optim, a parameter that has no gradient is not part of a step: neither its value changes, nor its
    averages.

    Args:
        parameters: what is trained.
        name: of the optimiser, in its state.
        averages: names of the vectors that the rule keeps, zeros at first.
    """

    def __init__(self, parameters: FlatParameters, name: str, averages: Sequence[str]) -> None:
        self.parameters = parameters
        self.learning_rate = 0.0
        self._name = name
        self._gradient, self.gradient_views = parameters.empty_vector()
        """Where gradients of all parameters may be put that are then not copied: views of one vector."""
        self._averages = {average: parameters.empty_vector() for average in averages}

    @abstractmethod
    def _move(self, positions: Sequence[int] | None, divisor: Tensor | None) -> None:
        """Move the parameters and update the averages, both as `_tensors` returns them.

        Args:
            positions: of the parameters that have a gradient; None where all have one.
            divisor: () what the gradients are yet to be divided by; None where by nothing.
        """

    def zero_grad(self) -> None:
        """Remove the parameters' gradients."""
        for parameter in self.parameters.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self, max_grad_norm: float | None = None) -> None:
        """Move along the gradients of the parameters that have one.

        Args:
            max_grad_norm: gradients are scaled down to this norm of all of them together; None leaves them.
        """
        self.parameters.check()
        gradients = [parameter.grad for parameter in self.parameters.parameters]
        present = [gradient for gradient in gradients if gradient is not None]
        if not present:
            return
        positions = None
        views = self.gradient_views
        if len(present) < len(gradients):
            positions = [position for position, gradient in enumerate(gradients) if gradient is not None]
            views = [views[position] for position in positions]
            # Some of them may be views of what is cleared.
            present = [gradient.clone() for gradient in present]
            self._gradient.zero_()
        if any(gradient is not view for gradient, view in zip(present, views, strict=True)):
            torch._foreach_copy_(views, present)
        divisor = None
        if max_grad_norm is not None:
            divisor = (torch.linalg.vector_norm(self._gradient) / max_grad_norm).clamp_(min=1)
        self._move(positions, divisor)

    def _tensors(self, positions: Sequence[int] | None) -> list[list[Tensor]]:
        """Parameters, their gradients and each average, as one vector each, or in parts: those at the positions."""
        flat = self.parameters
        if positions is None:
            return [[flat.vector], [self._gradient], *([vector] for vector, _ in self._averages.values())]
        in_parts: list[Sequence[Tensor]] = [
            flat.parameters,
            self.gradient_views,
            *(views for _, views in self._averages.values()),
        ]
        return [[views[position] for position in positions] for views in in_parts]

    def minimise(self, closure: Callable[[], Tensor], max_grad_norm: float | None = None) -> Tensor:
        """Take a step along the gradient of the loss that ``closure`` returns; returns that loss."""
        self.zero_grad()
        with torch.enable_grad():
            loss = closure()
            loss.backward()  # type: ignore[no-untyped-call]
        self.step(max_grad_norm)
        return loss.detach()

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next step depends on but the parameters and their gradients."""
        averages = {name: vector for name, (vector, _) in self._averages.items()}
        return {"optimizer": self._name, "learning_rate": self.learning_rate, **averages}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state returned by `state_dict`."""
        check_name(self._name, state)
        for name, (vector, _) in self._averages.items():
            if state[name].shape != vector.shape:
                raise ValueError(
                    f"{self._name}: {name} of {len(vector)} numbers are kept for these parameters, the saved state has "
                    f"shape {tuple(state[name].shape)}; load a state of the same networks"
                )
        for name, (vector, _) in self._averages.items():
            vector.copy_(state[name])
        self.learning_rate = state["learning_rate"]
