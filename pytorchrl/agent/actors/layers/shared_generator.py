"""Modules that draw random numbers of a generator that something else saves."""

import torch

from pytorchrl.agent.actors.layers.quick_module import QuickModule


class UsesGenerator(QuickModule):
    """A module that draws from a generator; a copy of the module, such as a target network, draws from the same one.

    Args:
        generator: on the device of the module; None for torch's default one.
    """

    def __init__(self, generator: torch.Generator | None) -> None:
        super().__init__()
        self.generator = generator
