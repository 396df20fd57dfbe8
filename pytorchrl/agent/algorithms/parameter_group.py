"""A parameter group of an algorithm, with its optimiser, its gradients and their norm."""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from pytorchrl.agent.optimizers import FlatParameters, Optimizer, Stepper


class ParameterGroup:
    """A parameter group with its optimiser.

    Args:
        name: of the group.
        parameters: by name, in order.
        optimizer: of the parameters.
        lr: name of the algorithm's hyper-parameter.
        max_grad_norm: name of the algorithm's hyper-parameter; None does not clip gradients.
        shares: names of the algorithm's hyper-parameters: the share of each step that some of the parameters take, as
            by a smaller learning rate.
    """

    def __init__(
        self,
        name: str,
        parameters: Mapping[str, nn.Parameter],
        optimizer: Optimizer,
        lr: str,
        max_grad_norm: str | None,
        shares: Mapping[nn.Parameter, str] | None = None,
    ) -> None:
        self.name = name
        self.parameters = dict(parameters)
        self.shares = dict(shares or {})
        self.lr_name = lr
        self.max_grad_norm_name = max_grad_norm
        self.flat = FlatParameters(self.parameters.values())
        self.stepper: Stepper = optimizer.make(self.flat)
        self.measures_gradients = False
        """Whether the next step keeps the norm of its gradients in ``gradient_norm``."""
        self.gradient_norm: Tensor | None = None
        """(), of the last measured step, before gradients were clipped."""
        self.has_stepped = False
        """Whether it has taken a step, in this process."""

    def gradients(self) -> dict[str, Tensor]:
        """Return copies of the existing gradients, by name."""
        return {f"{self.name}.{n}": p.grad.clone() for n, p in self.parameters.items() if p.grad is not None}

    def set_gradients(self, gradients: Mapping[str, Tensor], device: torch.device) -> None:
        """Replace the parameters' gradients by those that `gradients` returned."""
        for name, parameter in self.parameters.items():
            gradient = gradients.get(f"{self.name}.{name}")
            parameter.grad = None if gradient is None else gradient.to(device, copy=True)

    def step(self, algorithm: object) -> None:
        """Take an optimiser step with the parameters' gradients, clipped as the algorithm's hyper-parameter says."""
        if self.measures_gradients:
            gradients = [parameter.grad for parameter in self.parameters.values() if parameter.grad is not None]
            self.gradient_norm = nn.utils.get_total_norm(gradients) if gradients else None
            self.measures_gradients = False
        self.has_stepped = True
        before = self._values_with_shares()
        self.stepper.step(self._norm_of(algorithm))
        if before:
            self._shorten_steps(before, algorithm)

    def minimise(self, algorithm: object, loss: Callable[[], Tensor]) -> Tensor:
        """Take an optimiser step on a loss (), which it may evaluate several times; returns the first value."""
        self.has_stepped = True
        before = self._values_with_shares()
        value = self.stepper.minimise(loss, self._norm_of(algorithm))
        if before:
            self._shorten_steps(before, algorithm)
        return value

    def _values_with_shares(self) -> list[Tensor]:
        """Return copies of the parameters that take shares of steps."""
        return [parameter.detach().clone() for parameter in self.shares]

    @torch.no_grad()
    def _shorten_steps(self, before: list[Tensor], algorithm: object) -> None:
        """Reduce the last step of the parameters that take shares of it, from their values before."""
        for (parameter, name), value in zip(self.shares.items(), before, strict=True):
            parameter.copy_(value.lerp_(parameter, getattr(algorithm, name)))

    def _norm_of(self, algorithm: object) -> float | None:
        return None if self.max_grad_norm_name is None else getattr(algorithm, self.max_grad_norm_name)

    @property
    def is_frozen(self) -> bool:
        """Whether no parameter requires a gradient."""
        return self.flat.are_frozen

    @property
    def has_gradients(self) -> bool:
        """Whether any parameter has a gradient."""
        return any(parameter.grad is not None for parameter in self.parameters.values())


def named_parameters_of(networks: Sequence[nn.Module]) -> dict[str, nn.Parameter]:
    """Return the parameters of networks by name, each once; with several, names begin with the network's position."""
    named: dict[str, nn.Parameter] = {}
    for position, network in enumerate(networks):
        for name, parameter in network.named_parameters():
            if all(parameter is not other for other in named.values()):
                named[f"{position}.{name}" if len(networks) > 1 else name] = parameter
    return named
