"""Parameters in one contiguous vector."""

import copy
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

_ALIGNMENT_NUMBERS = 16  # a cache line of float32: products of unaligned matrices are slower


class FlatParameters:
    """Parameters as views into one vector, which must not be moved or replaced afterwards.

    Args:
        parameters: of one dtype and device; their values are kept. Duplicates are included once.

    Raises:
        ValueError: there are none, or they differ in dtype or device.
    """

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        self.parameters = list(dict.fromkeys(parameters))
        kinds = {(parameter.dtype, parameter.device) for parameter in self.parameters}
        if len(kinds) != 1:
            found = ", ".join(sorted(f"{dtype} on {device}" for dtype, device in kinds)) or "none"
            raise ValueError(f"parameters trained together must be of one dtype and on one device, found {found}")
        self.vector, views = self.empty_vector()
        """(n,): all values; each parameter begins at a cache line, with zeros as padding."""
        with torch.no_grad():
            for parameter, view in zip(self.parameters, views, strict=True):
                view.copy_(parameter)
                parameter.data = view

    def empty_vector(self) -> tuple[Tensor, list[Tensor]]:
        """Return a vector of zeros of the same layout, and a view of it in the shape of each parameter."""
        numbers = sum(_aligned(parameter.numel()) for parameter in self.parameters)
        vector = torch.zeros(numbers, dtype=self.parameters[0].dtype, device=self.parameters[0].device)
        return vector, self.views_of(vector)

    def views_of(self, vector: Tensor) -> list[Tensor]:
        """Return a view in the shape of each parameter, of a vector of the same layout."""
        views, start = [], 0
        for parameter in self.parameters:
            views.append(vector[start : start + parameter.numel()].view(parameter.shape))
            start += _aligned(parameter.numel())
        return views

    def use(self, vector: Tensor) -> None:
        """Make the parameters views of another vector of the same layout, such as one in shared memory."""
        self.vector = vector
        for parameter, view in zip(self.parameters, self.views_of(vector), strict=True):
            parameter.data = view

    @property
    def are_frozen(self) -> bool:
        """Whether no parameter requires a gradient."""
        return not any(parameter.requires_grad for parameter in self.parameters)

    def check(self) -> None:
        """Check that the parameters are still views of the vector.

        Raises:
            RuntimeError: they were moved.
        """
        if self.parameters[0].data_ptr() != self.vector.data_ptr():
            raise RuntimeError(
                "the parameters were moved after the algorithm was made (by .to(...) perhaps), so that it cannot train "
                "them; choose the device when the factories are called"
            )

    def __deepcopy__(self, memo: dict[int, Any]) -> "FlatParameters":
        # The values of a copied parameter lie in other memory.
        return FlatParameters(copy.deepcopy(self.parameters, memo))


def _aligned(numbers: int) -> int:
    return -(-numbers // _ALIGNMENT_NUMBERS) * _ALIGNMENT_NUMBERS
