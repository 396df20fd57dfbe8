"""Reinitialisation of the networks of an algorithm during training, of all or of their last layers."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from pytorchrl.agent.actors.bodies import Body, RecurrentBody, VectorBody
from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.actors.stacked_memory import StackedMemory
from pytorchrl.agent.algorithms.algorithm import Algorithm


@torch.no_grad()
def reset_networks(
    algorithm: Algorithm, fresh: Algorithm, last_layers: int | Mapping[str, int] | None = None, keep: float = 1.0
) -> None:
    """Reinitialise networks, target networks and dual variables of an algorithm, and the optimisers of what changes.

    Its random generators, its counters of updates and statistics of data, such as the running moments of observations,
    stay as they are, and so do frozen parameters of trained networks and their copies in target networks.

    Args:
        algorithm: has the networks, which are changed in place.
        fresh: another one of the same composition, whose initial weights are taken.
        last_layers: how many layers at the end of each network take these; None for all. A head counts as one layer.
            By the name of a network, it is of this one and its target networks; of others, all layers take them.
        keep: weight of the old values in the layers before, ``keep * old + (1 - keep) * initial``.
    """
    networks, fresh_networks = _networks(algorithm), _networks(fresh)
    renewed = None if last_layers is None else set(_renewed_modules(algorithm, last_layers))
    changed, frozen = set[int](), _frozen(algorithm)
    for module, fresh_module in zip(networks.modules(), fresh_networks.modules(), strict=True):
        weight = 0.0 if renewed is None or module in renewed else keep
        for (name, tensor), (_, initial) in zip(_tensors(module), _tensors(fresh_module), strict=True):
            # A tensor that two modules share is changed once.
            if weight == 1 or id(tensor) in changed or id(tensor) in frozen:
                continue
            if name in getattr(module, "statistics", ()):
                continue
            if weight == 0:
                tensor.copy_(initial)
            elif tensor.is_floating_point():
                tensor.lerp_(initial, 1 - weight)
            changed.add(id(tensor))
    for name, variable in algorithm.training.variables.items():
        variable.copy_(fresh.training.variables[name])
        changed.add(id(variable))
    for group in algorithm.training.groups.values():
        group.stepper.forget([parameter for parameter in group.parameters.values() if id(parameter) in changed])


def _networks(algorithm: Algorithm) -> nn.ModuleList:
    """Return the networks of the actor and the target networks."""
    targets = [target.network for target in algorithm.training.targets.values()]
    return nn.ModuleList([*algorithm.actor.networks.values(), *targets])


def _frozen(algorithm: Algorithm) -> set[int]:
    """Return the ids of frozen parameters of trained networks, and of their copies in target networks."""
    trained = [one for group in algorithm.training.groups.values() for one in group.parameters.values()]
    frozen = {id(parameter) for parameter in trained if not parameter.requires_grad}
    for target in algorithm.training.targets.values():
        pairs = zip(target.network.parameters(), target.followed.parameters(), strict=True)
        frozen |= {id(copy) for copy, followed in pairs if id(followed) in frozen}
    return frozen


def _renewed_modules(algorithm: Algorithm, last_layers: int | Mapping[str, int]) -> Iterator[nn.Module]:
    """Yield the modules of the last layers of all networks and target networks.

    Raises:
        ValueError: there is no network of a name.
    """
    networks: dict[str, nn.Module] = dict(algorithm.actor.networks.items())
    if not isinstance(last_layers, Mapping):
        for network in _networks(algorithm):
            yield from _last_modules(network, last_layers)
        return
    if unknown := last_layers.keys() - networks.keys():
        raise ValueError(
            f"last_layers names {', '.join(map(repr, sorted(unknown)))}, but the networks of "
            f"{type(algorithm).__name__} are {', '.join(map(repr, networks))}"
        )
    names = {id(network): name for name, network in networks.items()}
    followed = [(target.network, names.get(id(target.followed))) for target in algorithm.training.targets.values()]
    # A target network may be among the actor's networks, too.
    of_targets = {id(network): name for network, name in followed}
    for name, network in networks.items():
        chosen = name if name in last_layers else of_targets.get(id(network), name)
        yield from _chosen_modules(network, chosen, last_layers)
    for network, followed_name in followed:
        if id(network) not in names:
            yield from _chosen_modules(network, followed_name, last_layers)


def _chosen_modules(network: nn.Module, name: str | None, last_layers: Mapping[str, int]) -> Iterator[nn.Module]:
    if name is not None and name in last_layers:
        yield from _last_modules(network, last_layers[name])
    else:
        yield from network.modules()


def _tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the saved parameters and buffers of a module itself, with their names; other buffers are constants."""
    for named in (module._parameters, module._buffers):
        for name, tensor in named.items():
            if tensor is not None and name not in module._non_persistent_buffers_set:
                yield name, tensor


def _last_modules(network: nn.Module, count: int) -> Iterator[nn.Module]:
    """Yield the modules of the last layers of a network, or of each network in it."""
    if isinstance(network, Network):
        parts = [network]
    else:
        parts = [each for each in network.modules() if isinstance(each, Network)]
    for layers in map(_layers, parts) if parts else [_layers(network)]:
        for layer in layers[-count:] if count else []:
            yield from layer


def _layers(module: nn.Module | None) -> list[list[nn.Module]]:
    """Return the modules of each layer, the first layer first."""
    if isinstance(module, Network):
        return [*_layers(module.body), *_layers(module.joint), list(module.head.modules())]
    if isinstance(module, RecurrentBody):
        memory: Any = module.memory
        recurrent = memory.layers if isinstance(memory, StackedMemory) else [memory]
        return [*_layers(module.body), *(list(layer.modules()) for layer in recurrent)]
    if isinstance(module, Body):
        return [*_layers(module.features), *_layers(module.hidden)]
    if isinstance(module, VectorBody):
        return _layers(module.hidden)
    known: list[list[nn.Module]] | None = getattr(module, "modules_of_layers", None)
    if known is not None:
        return known
    layers: list[list[nn.Module]] = []
    # Those of others are in the order in which they were registered, each with the normalisations after it.
    for each in () if module is None else module.modules():
        dimensions = [parameter.dim() for parameter in each._parameters.values() if parameter is not None]
        if dimensions and (max(dimensions) > 1 or not layers):
            layers.append([each])
        elif dimensions:
            layers[-1].append(each)
    return layers
