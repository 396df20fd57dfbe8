"""Modules that draw random numbers from a generator that their owner saves."""

import torch
from torch import nn


class UsesGenerator(nn.Module):
    """A module that draws from a generator, which it shares with its target network.

    Args:
        generator: on the device of the module; None for torch's default one.
    """

    def __init__(self, generator: torch.Generator | None) -> None:
        super().__init__()
        self.generator = generator
