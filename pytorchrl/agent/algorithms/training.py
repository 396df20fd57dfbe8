"""Training state of an algorithm: parameter groups, target networks, variables and counters.

Each is registered when the algorithm is built. The contents of checkpoints, the names of gradients and scheduled
learning rates follow from this register.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from pytorchrl.agent.actors.network import make_target
from pytorchrl.agent.algorithms.parameter_group import ParameterGroup
from pytorchrl.agent.optimizers import FlatParameters
from storages.component.other_names import KnownNames


class TrainingState:
    """Register of everything that an algorithm trains."""

    def __init__(self) -> None:
        self.groups: dict[str, ParameterGroup] = KnownNames({}, "training.groups", "parameter group")
        self.targets: dict[str, Target] = {}
        self.variables: dict[str, nn.Parameter] = KnownNames({}, "training.variables", "variable")
        self.counters: dict[str, int] = {"updates": 0}
        self._counted = 0  # in this process
        self._built: dict[str, bool] = {}
        self._loaded: dict[str, bool] = {}

    def end_build(self) -> None:
        """Remember which parameters require a gradient, so that states hold what is changed from then on."""
        self._built = self._loaded = self._require_gradients()

    @property
    def freezing(self) -> dict[str, bool]:
        """Whether a parameter requires a gradient, by name, of those where this was changed since the build."""
        return {name: now for name, now in self._require_gradients().items() if now != self._built.get(name)}

    def freeze_as(self, freezing: Mapping[str, bool]) -> None:
        """Let parameters require gradients as those of another object of the same algorithm, by its `freezing`.

        Raises:
            ValueError: there is no such parameter, or a value is no truth value; nothing was changed.
        """
        parameters = self._parameters()
        if not isinstance(freezing, Mapping):
            raise ValueError(f"the state has {freezing!r} as what requires a gradient, which are truth values by name")
        for name, value in freezing.items():
            if name not in parameters or not isinstance(value, bool):
                raise ValueError(
                    f"the state says {value!r} of whether a parameter {name!r} requires a gradient; load a state of "
                    f"the same algorithm and networks"
                )
        for name, parameter in parameters.items():
            parameter.requires_grad_(freezing.get(name, self._built.get(name, True)))
        self._loaded = self._require_gradients()

    def _parameters(self) -> dict[str, nn.Parameter]:
        return {f"{group.name}.{n}": p for group in self.groups.values() for n, p in group.parameters.items()}

    def _require_gradients(self) -> dict[str, bool]:
        return {name: parameter.requires_grad for name, parameter in self._parameters().items()}

    def add_group(self, group: ParameterGroup) -> ParameterGroup:
        """Register parameters with their optimiser.

        Raises:
            ValueError: another group has this name or one of the parameters.
        """
        if group.name in self.groups:
            raise ValueError(f"there is already a parameter group named {group.name!r}; give each its own name")
        for other in self.groups.values():
            theirs = {id(parameter) for parameter in other.parameters.values()}
            if any(id(parameter) in theirs for parameter in group.parameters.values()):
                raise ValueError(
                    f"{group.name!r} and {other.name!r} have separate optimisers, but share parameters; "
                    f"shared_body=False gives each its own body"
                )
        self.groups[group.name] = group
        return group

    def measure(self) -> dict[str, Any]:
        """Return each group's learning rate, and the norm of its gradients where it was measured, as metrics."""
        metrics: dict[str, Any] = {}
        for name, group in self.groups.items():
            of_group = "" if len(self.groups) == 1 else f"/{name}"
            metrics[f"learning/learning_rate{of_group}"] = group.stepper.learning_rate
            if group.gradient_norm is not None:
                metrics[f"learning/gradient_norm{of_group}"] = group.gradient_norm
        return metrics

    def measurements(self) -> dict[str, tuple[Tensor | None, bool]]:
        """Return the norm of each group's gradients as last measured, and whether its next step is measured."""
        return {name: (group.gradient_norm, group.measures_gradients) for name, group in self.groups.items()}

    def load_measurements(self, measurements: Mapping[str, tuple[Tensor | None, bool]]) -> None:
        """Restore what `measurements` returned."""
        for name, measured in measurements.items():
            group = self.groups[name]
            group.gradient_norm, group.measures_gradients = measured

    def add_target(
        self, network: nn.Module, polyak: str, every: str | None, every_steps: str | None = None
    ) -> nn.Module:
        """Register and return a target network; the first of a network with its own group takes the group's name."""
        parameters = [id(parameter) for parameter in network.parameters()]
        group = next((g for g in self.groups.values() if [*map(id, g.parameters.values())] == parameters), None)
        target = Target(network, None if group is None else group.flat, polyak, every, every_steps)
        if every_steps is not None:
            self.counters["steps"] = 0
        is_named = group is not None and group.name not in self.targets
        self.targets[group.name if group and is_named else f"target_{len(self.targets)}"] = target
        return target.network

    def set_gradients(self, gradients: Mapping[str, Tensor], device: torch.device) -> list[ParameterGroup]:
        """Replace all gradients by copies of these, by name; return the groups that have some."""
        for group in self.groups.values():
            group.set_gradients(gradients, device)
        return [group for group in self.groups.values() if group.has_gradients]

    def count_update(self) -> int:
        """Count an update; return the number of those in this process."""
        self.counters["updates"] += 1
        self._counted += 1
        return self._counted

    def update_targets(self, algorithm: object, steps: int) -> None:
        """Update the target networks that are due after an update, at this number of environment transitions."""
        for target in self.targets.values():
            if target.is_due(algorithm, self.counters, steps):
                target.update(getattr(algorithm, target.polyak_name))
        if "steps" in self.counters:
            self.counters["steps"] = steps

    def state_dict(self) -> dict[str, Any]:
        """Return all state except the actor's weights, as tensors and plain data."""
        return {
            "optimizers": {name: group.stepper.state_dict() for name, group in self.groups.items()},
            **self.shared_state(),
        }

    def shared_state(self) -> dict[str, Any]:
        """Return what gradients depend on, except the actor's weights; without the optimisers."""
        return {
            "targets": {name: target.network.state_dict() for name, target in self.targets.items()},
            "variables": {name: variable.detach() for name, variable in self.variables.items()},
            "counters": dict(self.counters),
            "freezing": self.freezing,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state returned by `state_dict`.

        Parameters that were frozen, or made to learn again, since the build or the last state that was loaded, stay as
        they are: this was done to the object that is to resume.
        """
        self._refuse_others("optimizers", self.groups, state)
        given = self.freezing if self._require_gradients() != self._loaded else None
        self.load_shared_state(state if given is None else {**state, "freezing": given})
        for name, group in self.groups.items():
            group.stepper.load_state_dict(state["optimizers"][name])

    def load_shared_state(self, state: Mapping[str, Any]) -> None:
        """Restore the state returned by `shared_state`."""
        of_kinds: dict[str, Mapping[str, Any]] = {
            "targets": self.targets,
            "variables": self.variables,
            "counters": self.counters,
        }
        for kind, ours in of_kinds.items():
            self._refuse_others(kind, ours, state)
        # States of earlier versions lack it.
        if "freezing" in state:
            self.freeze_as(state["freezing"])
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


class Target:
    """A target network and its update rule.

    Args:
        network: the online network.
        weights: of exactly this network in one vector, if there is one; averaging it is faster.
        polyak: name of the algorithm's hyper-parameter: weight of the target network in each of its updates.
        every: name of the algorithm's hyper-parameter: updates between target updates; None for 1.
        every_steps: name of the algorithm's hyper-parameter that replaces ``every``: environment transitions between
            target updates; None for none.
    """

    def __init__(
        self,
        network: nn.Module,
        weights: FlatParameters | None,
        polyak: str,
        every: str | None,
        every_steps: str | None = None,
    ) -> None:
        self.network, self.followed = make_target(network), network
        self.polyak_name, self.every_name, self.every_steps_name = polyak, every, every_steps
        self.names = (polyak, every, every_steps)
        # Keep the parameters and not their data, whose memory moves when a group is made of them, or when copied.
        self.flat, self._theirs = FlatParameters(self.network.parameters()), list(network.parameters())
        self._weights = weights
        buffers = zip(self.network.buffers(), network.buffers(), strict=True)
        self._buffers = [(our, their) for our, their in buffers if our is not their]

    def is_due(self, algorithm: object, counters: Mapping[str, int], steps: int) -> bool:
        """Return whether the target network is to be updated now.

        Args:
            algorithm: has the hyper-parameters.
            counters: "updates" so far, this one included, and "steps" at the previous one.
            steps: environment transitions so far.
        """
        if self.every_steps_name is not None:
            every: int = getattr(algorithm, self.every_steps_name)
            return steps // every > counters["steps"] // every
        interval: int = 1 if self.every_name is None else getattr(algorithm, self.every_name)
        return counters["updates"] % interval == 0

    @torch.no_grad()
    def update(self, polyak: float) -> None:
        """``target = polyak * target + (1 - polyak) * network``; 0 copies.

        Lillicrap et al., "Continuous control with deep reinforcement learning" (arXiv 1509.02971), section 3.
        """
        if self._weights is not None:
            self.flat.vector.lerp_(self._weights.vector, 1 - polyak)
        else:
            for parameter, followed in zip(self.flat.parameters, self._theirs, strict=True):
                parameter.lerp_(followed, 1 - polyak)
        for our, their in self._buffers:
            our.copy_(their)
