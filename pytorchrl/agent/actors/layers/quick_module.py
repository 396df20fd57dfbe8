"""Modules with little call overhead.

In networks as small as those of reinforcement learning, the overhead of torch's modules (looking for hooks in nine
places, looking every submodule up in three dictionaries) takes more time than their operations: 11 of 20 microseconds
where a Q-function of two layers chooses an action.
"""

from typing import Any, ClassVar

from torch import nn


class QuickModule(nn.Module):
    """A module with submodules as plain attributes too, whose ``forward`` is called directly unless it has hooks."""

    statistics: ClassVar[frozenset[str]] = frozenset()
    """Names of its buffers that are computed from data, and kept where networks are initialised anew."""

    def __call__(self, *args: Any) -> Any:
        """Call :meth:`forward`, with hooks if there are any."""
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
