"""The interface of planners."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from storages.component.hyper_parameters import Count
from storages.component.setting import Setting

Returns: TypeAlias = Callable[[Tensor], Tensor]
"""From action sequences (E, N, H, A) to their expected returns (E, N), N sequences for each of E states."""


@dataclass(frozen=True)
class Planner(Setting, ABC):
    """A search for the action sequence of the largest return, given a function that estimates returns.

    A subclass is a frozen dataclass that implements :meth:`plan`. Random numbers come from the generator alone.

    Args:
        horizon: actions of a sequence (H).
    """

    horizon: Count = 15

    @abstractmethod
    def plan(self, returns: Returns, before: Tensor, generator: torch.Generator) -> Tensor:
        """Return an action sequence (E, H, A) within [-1, 1] for each of E states, not modifying ``before``.

        Args:
            returns: estimates the returns of action sequences.
            before: (E, H, A), sequences from which the search starts: those of the previous step without their first
                action, with zeros for what was not planned.
            generator: of the samples, on the device of ``before``.
        """
