"""Adam and AdamW over parameters in one contiguous vector."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from pytorchrl.agent.optimizers.flat_parameters import FlatParameters
from pytorchrl.agent.optimizers.flat_stepper import FlatStepper
from pytorchrl.agent.optimizers.optimizer import Optimizer
from storages.component.hyper_parameters import NonNegative, Positive, UnitInterval


@dataclass(frozen=True)
class Adam(Optimizer):
    """Kingma and Ba, "Adam: A Method for Stochastic Optimization" (arXiv 1412.6980).

    Args:
        betas: decay rates of the running means of gradients and of their squares, in [0, 1).
        eps: added to the root of the latter.
    """

    betas: tuple[UnitInterval, UnitInterval] = (0.9, 0.999)
    eps: Positive = 1e-8

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.betas) != 2 or max(self.betas) == 1:
            raise ValueError(f"{type(self).__name__}: betas must be two numbers in [0, 1), got {self.betas!r}")

    def make(self, parameters: FlatParameters) -> FlatStepper:
        """Make a stepper of these parameters."""
        return FlatAdam(parameters, "Adam", self.betas, self.eps)


@dataclass(frozen=True)
class AdamW(Adam):
    """Loshchilov and Hutter, "Decoupled Weight Decay Regularization" (arXiv 1711.05101).

    Args:
        betas: decay rates of the running means of gradients and of their squares, in [0, 1).
        eps: added to the root of the latter.
        weight_decay: at each step, parameters are multiplied by 1 minus this times the learning rate.
    """

    weight_decay: NonNegative = 0.01

    def make(self, parameters: FlatParameters) -> FlatStepper:
        """Make a stepper of these parameters."""
        return FlatAdam(parameters, "AdamW", self.betas, self.eps, self.weight_decay)


class FlatAdam(FlatStepper):
    """The stepper of Adam and AdamW; a parameter without a gradient keeps its step count, too.

    Args:
        parameters: to be trained.
        name: of the optimiser, stored in its state.
        betas: as in `Adam`.
        eps: as in `Adam`.
        weight_decay: as in `AdamW`.
    """

    def __init__(
        self,
        parameters: FlatParameters,
        name: str = "Adam",
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(parameters, name, averages=("means", "squares"))
        self._betas, self._eps, self._weight_decay = betas, eps, weight_decay
        self._steps = torch.zeros((), device=parameters.vector.device)
        """Step counts: () as long as they are equal, else (parameters,)."""

    def _move(self, positions: Sequence[int] | None, gradients: Sequence[Tensor], divisor: Tensor | None) -> None:
        if positions is not None and len(positions) < len(self._gradient_views):
            self._count_separately()
        if self._steps.dim():
            if positions is None:
                positions, gradients = range(len(self._gradient_views)), self._gradient_views
            steps = [self._steps[position] for position in positions]
            torch._foreach_add_(steps, 1)
        else:
            steps = [self._steps.add_(1)] * len(gradients)
        if positions is None:
            (means, _), (squares, _) = self._averages.values()
            parameters, averages = [self.parameters.vector], [[means], [squares]]
        else:
            parameters, averages = self._tensors(positions)
        if divisor is not None and divisor.dtype is not torch.float32:
            # The fused function takes it in single precision only.
            for gradient in gradients:
                gradient /= divisor
            divisor = None
        _adamw_(
            parameters,
            gradients,
            *averages,
            [],
            steps,
            lr=self.learning_rate,
            beta1=self._betas[0],
            beta2=self._betas[1],
            weight_decay=self._weight_decay,
            eps=self._eps,
            amsgrad=False,
            maximize=False,
            grad_scale=divisor,
        )

    def _count_separately(self) -> None:
        """Count the steps of each parameter by itself from now on."""
        if not self._steps.dim():
            self._steps = self._steps.repeat(len(self._gradient_views))

    def forget(self, parameters: Collection[nn.Parameter]) -> None:
        """Set the averages and step counts of some of the parameters to zero."""
        super().forget(parameters)
        positions = self._positions_of(parameters)
        if len(positions) == len(self._gradient_views):
            self._steps = self._steps.new_zeros(())
        elif positions:
            self._count_separately()
            self._steps[positions] = 0

    def state_dict(self) -> dict[str, Any]:
        """Return all state that the next step depends on, except the parameters and their gradients."""
        return super().state_dict() | {"steps": self._steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state returned by `state_dict`."""
        count, saved = len(self.parameters.parameters), state.get("steps")
        if saved is not None and saved.shape not in ((), (count,)):
            raise ValueError(
                f"{self._name}: there are {count} parameters, the saved number of steps has shape "
                f"{tuple(saved.shape)}; load a state of the same networks"
            )
        super().load_state_dict(state)
        self._steps = state["steps"].to(self._steps.device, copy=True)


@torch.no_grad()
def _plain_adamw_(
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
    weight_decay: float,
    eps: float,
    grad_scale: Tensor | None,
    **_others: Any,
) -> None:
    """Do what `torch._fused_adamw_` does, by public operations."""
    for parameter, gradient, mean, square, step in zip(parameters, gradients, means, squares, steps, strict=True):
        if grad_scale is not None:
            gradient /= grad_scale
        mean.lerp_(gradient, 1 - beta1)
        square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        # The difference of 1 and a power of a number near 1 needs double precision.
        number = step.double()
        root = (square / (1 - beta2**number)).sqrt_().add_(eps)
        parameter *= 1 - lr * weight_decay
        parameter -= lr / (1 - beta1**number) * mean / root


def _fastest_adamw_() -> Callable[..., Any]:
    """Return torch's private fused function, one operation instead of nine, if its result is as expected."""
    fused: Callable[..., Any] | None = getattr(torch, "_fused_adamw_", None)
    if fused is None:
        return _plain_adamw_
    results = []
    for function in (_plain_adamw_, fused):
        tensors = torch.tensor([1.0, -3.0, 0.5, 2.0, 2.0, 2.0], device="cpu")
        parameter, gradient, mean, square, step, divisor = tensors
        try:
            function(
                [parameter],
                [gradient],
                [mean],
                [square],
                [],
                [step],
                lr=0.1,
                beta1=0.8,
                beta2=0.9,
                weight_decay=0.2,
                eps=0.01,
                amsgrad=False,
                maximize=False,
                grad_scale=divisor,
            )
        except (TypeError, RuntimeError):
            return _plain_adamw_  # its signature has changed
        results.append(tensors[[0, 2, 3]])
    return fused if torch.allclose(results[0], results[1]) else _plain_adamw_


_adamw_ = _fastest_adamw_()
