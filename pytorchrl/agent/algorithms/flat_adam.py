"""Adam over parameters that lie in one piece of memory.

Networks of reinforcement learning are small, and an update of theirs is mostly the overhead of starting operations.
Laid end to end, all parameters are reached by one operation: a step with clipped gradients takes a quarter of the time
that torch.optim's fused Adam and ``clip_grad_norm_`` take for three small layers, and a target follows in one more.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from pytorchrl.agent.optimizers.flat_parameters import FlatParameters

__all__ = ["FlatAdam", "FlatParameters"]


class FlatAdam:
    """Kingma and Ba, "Adam" (arXiv 1412.6980), with a learning rate for each group of parameters.

    As with torch.optim.Adam, a parameter that has no gradient is not part of a step: neither its value changes, nor its
    means of gradients, nor how many steps it has made.

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
        """Of each group, () as long as all of its parameters have made as many; (parameters,) otherwise."""
        self._missing = [_NONE] * len(groups)
        """Of each group, which parameters have no gradient in this step."""

    def zero_grad(self) -> None:
        """Forget the parameters' gradients."""
        for group in self.groups:
            for parameter in group.parameters:
                parameter.grad = None

    @torch.no_grad()
    def step(self, max_grad_norm: float | None = None) -> None:
        """Move along the gradients of the parameters that have one.

        Args:
            max_grad_norm: gradients are scaled down to this norm of all of them together; None leaves them.
        """
        gathered = [self._gathered(number) for number in range(len(self.groups))]
        divisor = None
        present = [vector for vector in gathered if vector is not None]
        if max_grad_norm is not None and present:
            norms = [torch.linalg.vector_norm(vector) for vector in present]
            norm = norms[0] if len(norms) == 1 else torch.linalg.vector_norm(torch.stack(norms))
            divisor = (norm / max_grad_norm).clamp_(min=1)
        for number, group in enumerate(self.groups):
            gradient, steps = gathered[number], self._steps[number]
            if gradient is None:
                continue
            if self._missing[number] or steps.dim():
                tensors, own_steps = self._in_parts(number, gradient)
                torch._foreach_add_(own_steps, 1)
            else:
                tensors = [[group.vector], [gradient], [self._means[number]], [self._squares[number]]]
                own_steps = [steps.add_(1)]
            _adam_(
                *tensors,
                [],
                own_steps,
                lr=self.learning_rates[number],
                beta1=self._betas[0],
                beta2=self._betas[1],
                weight_decay=0.0,
                eps=self._eps,
                amsgrad=False,
                maximize=False,
                grad_scale=divisor,
            )

    def _in_parts(self, number: int, gradient: Tensor) -> tuple[list[list[Tensor]], list[Tensor]]:
        """Views of each parameter of a group that has a gradient: what a step reads and writes, and its own steps."""
        group, steps = self.groups[number], self._steps[number]
        if not steps.dim():
            steps = self._steps[number] = steps.repeat(len(group.parameters))
        present = [position for position in range(len(group.parameters)) if position not in self._missing[number]]
        vectors = group.vector, gradient, self._means[number], self._squares[number]
        tensors = [[views[position] for position in present] for views in map(group.views_of, vectors)]
        return tensors, [steps[position] for position in present]

    def _gathered(self, number: int) -> Tensor | None:
        """The gradients of a group as one vector, zero where a parameter is missing; None where all of them are."""
        group, (vector, views) = self.groups[number], self._gradients[number]
        group.check()
        gradients = [parameter.grad for parameter in group.parameters]
        present = [gradient for gradient in gradients if gradient is not None]
        if len(present) == len(views):
            self._missing[number] = _NONE
            torch._foreach_copy_(views, present)
            return vector
        if not present:
            return None
        self._missing[number] = frozenset(i for i, gradient in enumerate(gradients) if gradient is None)
        vector.zero_()
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
        """Restore the state returned by `state_dict`."""
        self.learning_rates = list(state["learning_rates"])
        for ours, saved in ((self._means, state["means"]), (self._squares, state["squares"])):
            for tensor, value in zip(ours, saved, strict=True):
                tensor.copy_(value)
        steps = [value.to(ours.device, copy=True) for ours, value in zip(self._steps, state["steps"], strict=True)]
        for number, (group, value) in enumerate(zip(self.groups, steps, strict=True)):
            if value.shape not in ((), (len(group.parameters),)):
                raise ValueError(
                    f"FlatAdam: group {number} has {len(group.parameters)} parameters, the saved number of steps has "
                    f"shape {tuple(value.shape)}; load a state of the same networks"
                )
        self._steps = steps


@torch.no_grad()
def _plain_adam_(
    parameters: Sequence[Tensor],
    gradients: Sequence[Tensor],
    means: Sequence[Tensor],
    squares: Sequence[Tensor],
    _: Sequence[Tensor],
    steps: Sequence[Tensor],
    *,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    grad_scale: Tensor | None,
    **_others: Any,
) -> None:
    """Do what `torch._fused_adam_` does, by public operations."""
    for parameter, gradient, mean, square, step in zip(parameters, gradients, means, squares, steps, strict=True):
        if grad_scale is not None:
            gradient /= grad_scale
        mean.lerp_(gradient, 1 - beta1)
        square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        # What is left of 1 after the power of a number near 1 needs double precision.
        number = step.double()
        root = (square / (1 - beta2**number)).sqrt_().add_(eps)
        parameter -= lr / (1 - beta1**number) * mean / root


_NONE: frozenset[int] = frozenset()
# A private function of torch's: one operation where the public ones are nine.
_adam_: Callable[..., Any] = getattr(torch, "_fused_adam_", _plain_adam_)
