"""Adam over parameters that lie in one piece of memory.

Networks of reinforcement learning are small, and an update of theirs is mostly the overhead of starting operations.
Laid end to end, all parameters are reached by one operation: a step with clipped gradients takes a quarter of the time
that torch.optim's fused Adam and ``clip_grad_norm_`` take for three small layers, and a target follows in one more.
"""

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

_ALIGNMENT_NUMBERS = 16  # a cache line of float32: products of matrices that begin elsewhere are slower


class FlatParameters:
    """Parameters as views into one vector. They must not be moved to another device or replaced afterwards.

    Args:
        parameters: of one dtype and device; their values are kept.
    """

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        self.parameters = list(parameters)
        self.vector, views = self.empty_vector()
        """(n,): all values, each parameter's from the beginning of a cache line on, zeros between."""
        with torch.no_grad():
            for parameter, view in zip(self.parameters, views, strict=True):
                view.copy_(parameter)
                parameter.data = view

    def empty_vector(self) -> tuple[Tensor, list[Tensor]]:
        """A vector of zeros of the same layout, and a view of it in the shape of each parameter."""
        starts, end = [], 0
        for parameter in self.parameters:
            starts.append(end)
            end += -(-parameter.numel() // _ALIGNMENT_NUMBERS) * _ALIGNMENT_NUMBERS
        vector = torch.zeros(end, dtype=self.parameters[0].dtype, device=self.parameters[0].device)
        views = [
            vector[start : start + parameter.numel()].view(parameter.shape)
            for start, parameter in zip(starts, self.parameters, strict=True)
        ]
        return vector, views

    def check(self) -> None:
        """Refuse to go on with parameters that do not lie in the vector any more.

        Raises:
            RuntimeError: somebody moved them.
        """
        if self.parameters[0].data_ptr() != self.vector.data_ptr():
            raise RuntimeError(
                "the parameters were moved after the algorithm was made (by .to(...) perhaps), so that it cannot train "
                "them; choose the device when the factories are called"
            )

    def __deepcopy__(self, memo: dict[int, Any]) -> "FlatParameters":
        # A copied parameter has memory of its own.
        return FlatParameters(copy.deepcopy(self.parameters, memo))


class FlatAdam:
    """Kingma and Ba, "Adam" (arXiv 1412.6980), with a learning rate for each group of parameters.

    Args:
        groups: what is trained.
        betas: how much of the means of gradients and of their squares stays at each step.
        eps: added to the root of the latter.
    """

    def __init__(
        self, groups: Sequence[FlatParameters], betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8
    ) -> None:
        self.groups = list(groups)
        self.learning_rates = [0.0] * len(groups)
        """One for each group; whoever follows a schedule writes here."""
        self._betas, self._eps = betas, eps
        self._gradients: list[tuple[Tensor, list[Tensor]]] = [group.empty_vector() for group in groups]
        self._means = [torch.zeros_like(group.vector) for group in groups]
        self._squares = [torch.zeros_like(group.vector) for group in groups]
        self._steps = [torch.zeros((), device=group.vector.device) for group in groups]

    def zero_grad(self) -> None:
        """Forget the parameters' gradients."""
        for group in self.groups:
            for parameter in group.parameters:
                parameter.grad = None

    @torch.no_grad()
    def step(self, max_grad_norm: float | None = None) -> None:
        """Move along the parameters' gradients; where there is none, as if it were zero.

        Args:
            max_grad_norm: gradients are scaled down to this norm of all of them together; None leaves them.
        """
        gradients = [self._gathered(number) for number in range(len(self.groups))]
        divisor = None
        if max_grad_norm is not None:
            norms = [torch.linalg.vector_norm(gradient) for gradient in gradients]
            norm = norms[0] if len(norms) == 1 else torch.linalg.vector_norm(torch.stack(norms))
            divisor = (norm / max_grad_norm).clamp_(min=1)
        for number, group in enumerate(self.groups):
            self._steps[number].add_(1)
            torch._fused_adam_(
                [group.vector],
                [gradients[number]],
                [self._means[number]],
                [self._squares[number]],
                [],
                [self._steps[number]],
                lr=self.learning_rates[number],
                beta1=self._betas[0],
                beta2=self._betas[1],
                weight_decay=0.0,
                eps=self._eps,
                amsgrad=False,
                maximize=False,
                grad_scale=divisor,
            )

    def _gathered(self, number: int) -> Tensor:
        """All gradients of a group as one vector."""
        group, (vector, views) = self.groups[number], self._gradients[number]
        group.check()
        gradients = [parameter.grad for parameter in group.parameters]
        present = [gradient for gradient in gradients if gradient is not None]
        if len(present) == len(views):
            torch._foreach_copy_(views, present)
            return vector
        vector.zero_()
        if present:
            torch._foreach_copy_(
                [view for view, gradient in zip(views, gradients, strict=True) if gradient is not None], present
            )
        return vector

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next step depends on but the parameters and their gradients."""
        return {
            "learning_rates": list(self.learning_rates),
            "means": list(self._means),
            "squares": list(self._squares),
            "steps": list(self._steps),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Be what was saved."""
        self.learning_rates = list(state["learning_rates"])
        for ours, saved in (
            (self._means, state["means"]),
            (self._squares, state["squares"]),
            (self._steps, state["steps"]),
        ):
            for tensor, value in zip(ours, saved, strict=True):
                tensor.copy_(value)
