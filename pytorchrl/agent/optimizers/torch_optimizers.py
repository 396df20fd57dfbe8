"""The optimisers of torch.optim, and any that follow its interface."""

import copy
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from pytorchrl.agent.optimizers.flat_parameters import FlatParameters
from pytorchrl.agent.optimizers.optimizer import Optimizer, check_name
from storages.component.hyper_parameters import Count


@dataclass(frozen=True)
class TorchOptimizer(Optimizer):
    """Any optimiser of torch.optim, or a class or function like them: ``TorchOptimizer("Adagrad", {"lr_decay": 0.1})``.

    Args:
        make_optimizer: the name of a class of torch.optim, or a callable that takes parameters, ``lr`` and the
            arguments.
        arguments: keyword arguments, without ``lr``, which the algorithm sets.

    Raises:
        ValueError: torch.optim has no optimiser of that name, or ``lr`` is among the arguments.
    """

    make_optimizer: str | Callable[..., Any]
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        name = _name_of(self.make_optimizer)
        known = vars(torch.optim).get(name)
        if isinstance(self.make_optimizer, str):
            if not (isinstance(known, type) and issubclass(known, torch.optim.Optimizer)):
                raise ValueError(f"TorchOptimizer: torch.optim has no optimiser {name!r}; pass the class itself")
        elif known is self.make_optimizer:
            # A configuration file holds the name, from which the same setting is made.
            object.__setattr__(self, "make_optimizer", name)
        object.__setattr__(self, "arguments", dict(self.arguments))
        if "lr" in self.arguments:
            raise ValueError("TorchOptimizer: lr is a hyper-parameter of the algorithm, leave it out of the arguments")

    @property
    def needs_loss(self) -> bool:
        """Whether it is L-BFGS."""
        return _name_of(self.make_optimizer) == "LBFGS"

    def make(self, parameters: FlatParameters) -> "TorchStepper":
        """Make a stepper of these parameters."""
        called = self.make_optimizer
        function = getattr(torch.optim, called) if isinstance(called, str) else called
        return TorchStepper(parameters, f"TorchOptimizer({_name_of(called)})", function, self.arguments)


def _name_of(called: str | Callable[..., Any]) -> str:
    return called if isinstance(called, str) else getattr(called, "__name__", type(called).__name__)


@dataclass(frozen=True)
class LBFGS(Optimizer):
    """Torch's limited-memory BFGS: Liu and Nocedal, "On the limited memory BFGS method" (Math. Programming 45, 1989).

    It evaluates its loss several times a step, and so supports only ``minimise``. With a line search, the learning rate
    is the initial step length, usually 1. A missing gradient counts as zero.

    Args:
        max_iter: iterations of a step.
        history_size: number of past updates from which the curvature is estimated.
        line_search: method that finds the step length; None takes the learning rate.
    """

    max_iter: Count = 20
    history_size: Count = 10
    line_search: Literal["strong_wolfe"] | None = None

    @property
    def needs_loss(self) -> bool:
        """True."""
        return True

    def make(self, parameters: FlatParameters) -> "TorchStepper":
        """Make a stepper of these parameters."""
        arguments = {
            "max_iter": self.max_iter,
            "history_size": self.history_size,
            "line_search_fn": self.line_search,
        }
        return _LBFGSStepper(parameters, "LBFGS", torch.optim.LBFGS, arguments)


class TorchStepper:
    """A stepper that delegates to an optimiser of torch.optim.

    Args:
        parameters: to be trained.
        name: of the optimiser, stored in its state.
        make_optimizer: called with parameters, ``lr`` and the arguments.
        arguments: keyword arguments.
    """

    def __init__(
        self,
        parameters: FlatParameters,
        name: str,
        make_optimizer: Callable[..., torch.optim.Optimizer],
        arguments: Mapping[str, Any],
    ) -> None:
        self.parameters = parameters
        self._name, self._make_optimizer, self._arguments = name, make_optimizer, dict(arguments)
        # Some optimisers refuse a learning rate of 0 when they are made.
        self._optimizer = make_optimizer(parameters.parameters, lr=1.0, **self._arguments)
        self.learning_rate = 0.0

    @property
    def learning_rate(self) -> float:
        """The learning rate of all parameters."""
        return float(self._optimizer.param_groups[0]["lr"])

    @learning_rate.setter
    def learning_rate(self, value: float) -> None:
        for group in self._optimizer.param_groups:
            group["lr"] = value

    def zero_grad(self) -> None:
        """Remove the parameters' gradients."""
        self._optimizer.zero_grad(set_to_none=True)

    def step(self, max_grad_norm: float | None = None) -> None:
        """Take a step along the gradients of the parameters that have one.

        Args:
            max_grad_norm: gradients are clipped to this global norm; None for no clipping.
        """
        self.parameters.check()
        if all(parameter.grad is None for parameter in self.parameters.parameters):
            return
        if max_grad_norm is not None:
            nn.utils.clip_grad_norm_(self.parameters.parameters, max_grad_norm)
        self._optimizer.step()

    def minimise(self, closure: Callable[[], Tensor], max_grad_norm: float | None = None) -> Tensor:
        """Take a step on the loss that ``closure`` returns; return the loss before the step."""
        self.parameters.check()

        def loss_with_gradients() -> Tensor:
            self.zero_grad()
            loss = closure()
            if loss.requires_grad or not self.parameters.are_frozen:
                loss.backward()  # type: ignore[no-untyped-call]
            if max_grad_norm is not None:
                nn.utils.clip_grad_norm_(self.parameters.parameters, max_grad_norm)
            return loss.detach()

        loss: Tensor = self._optimizer.step(loss_with_gradients)  # type: ignore[assignment, arg-type]
        return loss

    def forget(self, parameters: Collection[nn.Parameter]) -> None:
        """Remove the state of some of the parameters; torch's optimiser makes it again at its next step."""
        for parameter in parameters:
            self._optimizer.state.pop(parameter, None)

    def state_dict(self) -> dict[str, Any]:
        """Return all state that the next step depends on, except the parameters and their gradients."""
        return {"optimizer": self._name, "torch": self._optimizer.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state returned by `state_dict`."""
        check_name(self._name, state)
        # Torch's optimiser would go on to change the tensors that it is given.
        self._optimizer.load_state_dict(copy.deepcopy(state["torch"]))

    def __deepcopy__(self, memo: dict[int, Any]) -> "TorchStepper":
        # Torch's L-BFGS loses its parameters when it is copied.
        copied = type(self)(
            copy.deepcopy(self.parameters, memo), self._name, self._make_optimizer, copy.deepcopy(self._arguments, memo)
        )
        copied.load_state_dict(self.state_dict())
        return copied


class _LBFGSStepper(TorchStepper):
    def forget(self, parameters: Collection[nn.Parameter]) -> None:
        """Forget the estimated curvature, which concerns all parameters."""
        if parameters:
            self._optimizer.state.clear()

    def step(self, max_grad_norm: float | None = None) -> None:
        """Raise an error, because the loss itself is needed."""
        raise RuntimeError(
            "LBFGS evaluates its loss several times a step, but was given gradients; call minimise(closure), or choose "
            "another optimiser for this algorithm, such as optimizer=Adam()"
        )

    def minimise(self, closure: Callable[[], Tensor], max_grad_norm: float | None = None) -> Tensor:
        """Take a step on the loss that ``closure`` returns; return the loss before the step."""
        if max_grad_norm is not None:
            raise ValueError(
                f"LBFGS: curvature cannot be estimated from clipped gradients, got {max_grad_norm=}; pass None"
            )
        return super().minimise(closure)
