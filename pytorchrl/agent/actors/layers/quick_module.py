"""Modules that cost little to call.

In networks as small as those of reinforcement learning, what torch's modules do around their operations (looking for
hooks in nine places, looking every submodule up in three dictionaries) takes more time than the operations: 11 of 20
microseconds where a Q-function of two layers chooses an action.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn


class QuickModule(nn.Module):
    """A module whose submodules are plain attributes too, and which is called without a detour unless it has hooks."""

    def __call__(self, *args: Any) -> Any:
        """What :meth:`forward` says, and what hooks make of it."""
        if self._forward_hooks or self._forward_pre_hooks or self._backward_hooks or self._backward_pre_hooks:
            return super().__call__(*args)
        return self.forward(*args)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if isinstance(value, nn.Module):
            self.__dict__[name] = value

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)
        self.__dict__.pop(name, None)


def hooks_of(network: nn.Module) -> list[Mapping[int, Any]]:
    """The hooks of all quick modules of a network, in mappings that also show those registered later."""
    modules = [module for module in network.modules() if isinstance(module, QuickModule)]
    return [
        hooks
        for each in modules
        for hooks in (each._forward_hooks, each._forward_pre_hooks, each._backward_hooks, each._backward_pre_hooks)
    ]


def is_recorded() -> bool:
    """Whether operations are written down to be run later, with other numbers and another number of rows."""
    is_tracing: bool = torch.jit.is_tracing()  # type: ignore[attr-defined,no-untyped-call]
    return is_tracing or torch.compiler.is_compiling()


def is_plain(numbers: Tensor) -> bool:
    """Whether there are float32 numbers in order and without gaps at an address of this machine's memory."""
    return numbers.dtype is torch.float32 and numbers.is_contiguous() and has_address(numbers)


def are_for_kernels(*tensors: Tensor) -> bool:
    """Whether kernels of one thread are quicker than torch, and take all of these, as :func:`is_plain` says."""
    return torch.get_num_threads() <= MOST_THREADS and all(is_plain(each) for each in tensors)


def has_address(numbers: Tensor) -> bool:
    """Whether numbers are in this machine's memory, and not those of a device or of what torch transforms."""
    if not (type(numbers) in (Tensor, nn.Parameter) and numbers.is_cpu):
        return False
    try:
        numbers.data_ptr()
    except RuntimeError:  # of torch.func
        return False
    return True


MOST_THREADS = 4
"""torch shares the work among its threads, one of which takes six times as long as a kernel of tangents."""
