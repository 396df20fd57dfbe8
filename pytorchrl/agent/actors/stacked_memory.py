"""The choice of a memory: one layer or several, each a GRU, an LSTM or a user's module."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from pytorchrl.agent.actors.encoders.custom_extractors import can_be_called, name_of
from pytorchrl.agent.actors.memory import Memory, MemoryKind, RecurrentModule
from pytorchrl.agent.actors.own_memory import MemoryMaker, OwnMemory

MemoryChoice: TypeAlias = MemoryKind | MemoryMaker | Sequence[MemoryKind | MemoryMaker]
"""The name of a kind of layer, a user's class or function, or one of these for each layer."""

OF_ONE_NETWORK = ("memory", "memory_size", "memory_layers")
"""Settings of memories that a network may have to itself."""


class StackedMemory(nn.Module):
    """Several layers, each of the features of the one before; its state is the concatenation of theirs.

    Args:
        layers: the first takes the features that come in.
    """

    def __init__(self, layers: Sequence[RecurrentModule]) -> None:
        super().__init__()
        self.layers: Any = nn.ModuleList(layers)  # type: ignore[arg-type]
        self.output_size = layers[-1].output_size
        self._sizes = [layer.state_size for layer in layers]
        self.state_size = sum(self._sizes)

    def forward(self, features: Tensor, state: Tensor, done: Tensor) -> tuple[Tensor, Tensor]:
        """Compute one step; see ``Memory``."""
        states = []
        for layer, before in zip(self.layers, torch.split(state, self._sizes, dim=1), strict=True):
            features, after = layer(features, before, done)
            states.append(after)
        return features, torch.cat(states, dim=1)

    def unroll(self, features: Tensor, state: Tensor, done: Tensor, *, states: bool = True) -> tuple[Tensor, Tensor]:
        """Compute a sequence of steps; see ``Memory``."""
        reached = []
        for layer, before in zip(self.layers, torch.split(state, self._sizes, dim=1), strict=True):
            features, after = layer.unroll(features, before, done, states=states)
            # Some layers return all states anyway.
            reached.append(after if states else after[-1:])
        return features, torch.cat(reached, dim=2)


def make_memory(memory: MemoryChoice, layers: int, input_size: int, size: int) -> Any:
    """Make a memory of features (B, input_size).

    Args:
        memory: what each layer is, or what all are.
        layers: how many there are, if ``memory`` is not a sequence.
        input_size: features in.
        size: units of each layer.

    Raises:
        TypeError: a user's function makes no module.
        ValueError: a user's module has neither the interface of a recurrent cell nor that of a recurrent layer.
    """
    made: list[Any] = []
    for kind in _layers_of(memory) or [memory] * layers:
        # As annotated, a text is one of the names.
        named: Any = kind
        layer = Memory(named, input_size, size) if isinstance(kind, str) else OwnMemory(kind, input_size, size)
        made.append(layer)
        input_size = layer.output_size
    return made[0] if len(made) == 1 else StackedMemory(made)


def described_memory(memory: MemoryChoice) -> str:
    """Return a memory's name for display, "lstm", or those of its layers."""
    layers = _layers_of(memory) or [memory]
    return ", ".join(layer if isinstance(layer, str) else name_of(layer) for layer in layers)


def check_memories(owner: str, hyper_parameters: Mapping[str, Any]) -> None:
    """Check the memory of an actor, and those of single networks.

    Raises:
        ValueError: there are no layers, both their number and their kinds are given, a layer is not made from sizes, or
            only some networks have a memory.
    """
    memory, layers = hyper_parameters["memory"], hyper_parameters["memory_layers"]
    _check_memory(owner, memory, layers)
    for network, settings in (hyper_parameters["per_network"] or {}).items():
        given = [name for name in OF_ONE_NETWORK if name in settings]
        if not given:
            continue
        where, own = f"{owner}: per_network[{network!r}]", settings.get("memory", memory)
        if memory is None or own is None:
            raise ValueError(
                f"{where}: {given[0]}={settings[given[0]]!r}, but all networks have a memory or none; give the actor, "
                f'too, memory="gru", or no network one'
            )
        _check_memory(where, own, settings.get("memory_layers", layers))


def _check_memory(where: str, memory: MemoryChoice | None, layers: int) -> None:
    kinds = _layers_of(memory)
    if kinds is not None and (not kinds or layers != 1):
        reason = f"and memory_layers={layers}; leave that out" if kinds else "which are none; None is no memory"
        raise ValueError(f"{where}: memory lists the layers, {memory!r}, {reason}")
    for kind in kinds or [memory]:
        if isinstance(kind, nn.Module):
            raise ValueError(
                f"{where}: memory is an instance of {type(kind).__name__}; each network makes its own: pass the class, "
                f"or a function of sizes, lambda input_size, size: {type(kind).__name__}(...)"
            )
        if callable(kind) and not can_be_called(kind, 1, 1):
            raise ValueError(
                f"{where}: memory {name_of(kind)} must make a module of two numbers, (input_size, size), but takes "
                f"{inspect.signature(kind)}"
            )


def _layers_of(memory: Any) -> list[Any] | None:
    """Return what each layer is, where a memory lists its layers."""
    return None if isinstance(memory, str) or not isinstance(memory, Sequence) else list(memory)
