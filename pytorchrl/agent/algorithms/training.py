"""What an algorithm trains, and the state of it: networks with their optimisers, targets, dual variables, counters.

Each is registered by one line when the algorithm is built. What a checkpoint saves, what gradients are called and which
learning rates follow schedules, all follow from the register.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from pytorchrl.agent.actors.network import make_target
from pytorchrl.agent.optimizers import FlatParameters, FlatStepper, Optimizer, Stepper


class Trained:
    """Parameters that one optimiser moves together.

    Args:
        name: of the group.
        parameters: by name, in their order.
        optimizer: that moves them.
        learning_rate: name of the algorithm's hyper-parameter.
        max_grad_norm: name of the algorithm's hyper-parameter; None leaves gradients as they are.
    """

    def __init__(
        self,
        name: str,
        parameters: Mapping[str, nn.Parameter],
        optimizer: Optimizer,
        learning_rate: str,
        max_grad_norm: str | None,
    ) -> None:
        self.name = name
        self.parameters = dict(parameters)
        self.learning_rate = learning_rate
        self.max_grad_norm = max_grad_norm
        self.flat = FlatParameters(self.parameters.values())
        self.stepper: Stepper = optimizer.make(self.flat)

    def gradients(self) -> dict[str, Tensor]:
        """Copies of the gradients there are, by name."""
        return {f"{self.name}.{n}": p.grad.clone() for n, p in self.parameters.items() if p.grad is not None}

    def take_gradients(self, gradients: Mapping[str, Tensor], device: torch.device) -> None:
        """Put gradients, as `gradients` returns them, in the place of those there are."""
        for name, parameter in self.parameters.items():
            gradient = gradients.get(f"{self.name}.{name}")
            parameter.grad = None if gradient is None else gradient.to(device, copy=True)

    def gradient_memory(self) -> dict[Tensor, Tensor]:
        """For each parameter, a tensor of its shape to compute its gradient in."""
        parameters = self.parameters.values()
        if isinstance(self.stepper, FlatStepper):
            return dict(zip(parameters, self.stepper.gradient_views, strict=True))
        return {parameter: torch.empty_like(parameter) for parameter in parameters}

    @property
    def has_gradients(self) -> bool:
        """Whether any parameter has a gradient."""
        return any(parameter.grad is not None for parameter in self.parameters.values())


class Target:
    """A slow copy of a network that bootstrapped values are taken from.

    Args:
        network: that it follows.
        group: the trained group whose parameters are those of the network and no others, if there is one; following
            its vector is quicker.
        polyak: name of the algorithm's hyper-parameter: how much of the copy stays at each update of it.
        every: name of the algorithm's hyper-parameter: updates between updates of the copy; None for 1.
        every_steps: name of the algorithm's hyper-parameter that takes the place of ``every``: environment transitions
            between updates of the copy; None for none.
    """

    def __init__(
        self, network: nn.Module, group: Trained | None, polyak: str, every: str | None, every_steps: str | None = None
    ) -> None:
        self.network = make_target(network)
        self.polyak, self.every, self.every_steps = polyak, every, every_steps
        # Parameters, and not what they hold now, which is elsewhere once a group is made of them, or a copy.
        self._ours, self._theirs = FlatParameters(self.network.parameters()), list(network.parameters())
        self._group = group
        buffers = zip(self.network.buffers(), network.buffers(), strict=True)
        self._buffers = [(our, their) for our, their in buffers if our is not their]

    @torch.no_grad()
    def follow(self, polyak: float) -> None:
        """``target = polyak * target + (1 - polyak) * network``; 0 copies.

        Lillicrap et al., "Continuous control with deep reinforcement learning" (arXiv 1509.02971), section 3.
        """
        if self._group is not None:
            self._ours.vector.lerp_(self._group.flat.vector, 1 - polyak)
        else:
            for parameter, followed in zip(self._ours.parameters, self._theirs, strict=True):
                parameter.lerp_(followed, 1 - polyak)
        for our, their in self._buffers:
            our.copy_(their)


class TrainingState:
    """The register of an algorithm."""

    def __init__(self) -> None:
        self.groups: dict[str, Trained] = {}
        self.targets: dict[str, Target] = {}
        self.variables: dict[str, nn.Parameter] = {}
        self.counters: dict[str, int] = {"updates": 0}

    def add_group(self, group: Trained) -> Trained:
        """Register parameters with their optimiser.

        Raises:
            ValueError: another group of this name is there, or has one of the parameters already.
        """
        if group.name in self.groups:
            raise ValueError(f"there is a trained group {group.name!r} already; give each a name")
        for other in self.groups.values():
            theirs = {id(parameter) for parameter in other.parameters.values()}
            if any(id(parameter) in theirs for parameter in group.parameters.values()):
                raise ValueError(
                    f"{group.name!r} and {other.name!r} are trained by optimisers of their own, but share parameters; "
                    f"shared_body=False makes a body for each"
                )
        self.groups[group.name] = group
        return group

    def add_target(
        self, network: nn.Module, polyak: str, every: str | None, every_steps: str | None = None
    ) -> nn.Module:
        """Register a target of a network; the first has the name of the group that trains the network alone, if any.

        Returns:
            The target network.
        """
        parameters = [id(parameter) for parameter in network.parameters()]
        same = (g for g in self.groups.values() if [id(p) for p in g.parameters.values()] == parameters)
        group = next(same, None)
        target = Target(network, group, polyak, every, every_steps)
        if every_steps is not None:
            self.counters["steps"] = 0
        is_named = group is not None and group.name not in self.targets
        self.targets[group.name if group and is_named else f"target_{len(self.targets)}"] = target
        return target.network

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next update depends on but the actor's weights, as tensors and plain data."""
        return {
            "optimizers": {name: group.stepper.state_dict() for name, group in self.groups.items()},
            **self.shared_state(),
        }

    def shared_state(self) -> dict[str, Any]:
        """What gradients depend on but the actor's weights, which excludes the optimisers."""
        return {
            "targets": {name: target.network.state_dict() for name, target in self.targets.items()},
            "variables": {name: variable.detach() for name, variable in self.variables.items()},
            "counters": dict(self.counters),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state returned by `state_dict`."""
        self._refuse_others("optimizers", self.groups, state)
        self.load_shared_state(state)
        for name, group in self.groups.items():
            group.stepper.load_state_dict(state["optimizers"][name])

    def load_shared_state(self, state: Mapping[str, Any]) -> None:
        """Restore what `shared_state` returned."""
        of_kinds: dict[str, Mapping[str, Any]] = {
            "targets": self.targets,
            "variables": self.variables,
            "counters": self.counters,
        }
        for kind, ours in of_kinds.items():
            self._refuse_others(kind, ours, state)
        for name, target in self.targets.items():
            target.network.load_state_dict(state["targets"][name])
        with torch.no_grad():
            for name, variable in self.variables.items():
                variable.copy_(state["variables"][name])
        self.counters = {name: int(count) for name, count in state["counters"].items()}

    @staticmethod
    def _refuse_others(kind: str, ours: Mapping[str, Any], state: Mapping[str, Any]) -> None:
        if state[kind].keys() != ours.keys():
            raise ValueError(
                f"the state has the {kind} {list(state[kind])}, the algorithm has {list(ours)}; load a state of the "
                f"same algorithm"
            )


def parameters_of(modules: Iterable[tuple[str, nn.Module]]) -> Iterator[tuple[str, nn.Parameter]]:
    """The parameters of named modules, each once, by name."""
    seen: set[int] = set()
    for module_name, module in modules:
        for name, parameter in module.named_parameters():
            if id(parameter) not in seen:
                seen.add(id(parameter))
                yield f"{module_name}.{name}" if module_name else name, parameter
