"""Memories of users: any module with the interface of a recurrent cell, or of a recurrent layer, of torch."""

import math
from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor, nn

from pytorchrl.agent.actors.encoders.custom_extractors import name_of
from pytorchrl.agent.actors.memory import check_sequence, spans_of_episodes, unrolled_step_by_step
from pytorchrl.agent.actors.memory_interface import interface_of

MemoryMaker: TypeAlias = Callable[[int, int], nn.Module]
"""Makes a module from the number of features in, and the ``memory_size``."""


class OwnMemory(nn.Module):
    """A user's module as a memory; its state is the concatenation of all parts of the module's.

    Args:
        make: makes the module, which is tried on a few numbers.
        input_size: features in.
        size: passed on to ``make``; the number of features out is that of the module.

    Raises:
        TypeError: what is made is no module.
        ValueError: it has neither the interface of a cell nor that of a layer, or its steps depend on later ones.
    """

    def __init__(self, make: MemoryMaker, input_size: int, size: int) -> None:
        super().__init__()
        self.cells = make(input_size, size)
        if not isinstance(self.cells, nn.Module):
            raise TypeError(
                f"memory {name_of(make)} must make a torch.nn.Module of (input_size, size), got a "
                f"{type(self.cells).__name__}"
            )
        self.interface, self.output_size = interface_of(self.cells, input_size, name_of(make))
        self.state_size = sum(map(math.prod, self.interface.shapes))

    def forward(self, features: Tensor, state: Tensor, done: Tensor) -> tuple[Tensor, Tensor]:
        """Compute one step; see ``Memory``."""
        interface = self.interface
        if interface.is_layer:
            output, state = self._span(features[None], state * (1 - done))
            return output[0], state
        after = self.cells(features, interface.own(state * (1 - done)))
        shown: Tensor = after if interface.is_single else after[0]
        return shown, interface.flat(after)

    def unroll(self, features: Tensor, state: Tensor, done: Tensor, *, states: bool = True) -> tuple[Tensor, Tensor]:
        """Compute a sequence of steps; see ``Memory``."""
        check_sequence(features, done)
        if states or not self.interface.is_layer or features.device.type != "cpu":
            return unrolled_step_by_step(self, features, state, done)
        outputs = []
        for start, end in spans_of_episodes(done):
            output, state = self._span(features[start:end], state * (1 - done[start]))
            outputs.append(output)
        return torch.cat(outputs), state[None]

    def _span(self, features: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        output, after = self.cells(features, self.interface.own(state))
        return output, self.interface.flat(after)
