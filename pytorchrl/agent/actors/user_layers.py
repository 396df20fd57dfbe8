"""Layers of users and of torch within networks, and the contexts in which networks act.

Layers of users, and some of torch's, depend on torch's training mode or on its global generator.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd

_DEPEND_ON_MODE = (
    _DropoutNd,
    _NormBase,
    nn.MultiheadAttention,
    nn.TransformerEncoderLayer,
    nn.TransformerDecoderLayer,
    nn.RReLU,
)


def user_layers(networks: nn.Module) -> list[nn.Module]:
    """Return modules of users' classes, with all below, and modules of torch that depend on the training mode.

    The toolkit's own layers are left out: they detect by inference or gradient mode whether they act or are updated,
    and draw from generators of their own.
    """
    # A dict, as a module may be below several others.
    found: dict[nn.Module, None] = {}
    for module in networks.modules():
        if _package_of(module) not in ("pytorchrl", "torch"):
            found.update(dict.fromkeys(module.modules()))
        elif _depends_on_mode(module):
            found[module] = None
    return [module for module in found if _package_of(module) != "pytorchrl" or _hooks_depend_on_mode(module)]


def _depends_on_mode(module: nn.Module) -> bool:
    if isinstance(module, nn.RNNBase):
        return module.dropout > 0
    return isinstance(module, _DEPEND_ON_MODE) or _is_of_utils(module) or _hooks_depend_on_mode(module)


def _hooks_depend_on_mode(module: nn.Module) -> bool:
    """Whether a layer of any class has a hook of torch's older functions, such as spectral normalisation."""
    return any(map(_is_of_utils, module._forward_pre_hooks.values()))


def _is_of_utils(part: object) -> bool:
    """Whether it is a parametrisation or a hook of ``torch.nn.utils``, of which some change in training."""
    return type(part).__module__.startswith("torch.nn.utils.")


def _package_of(module: nn.Module) -> str:
    return type(module).__module__.partition(".")[0]


@contextmanager
def drawing_from(
    generator: torch.Generator, own: torch.Generator, acting: AbstractContextManager[Any]
) -> Iterator[None]:
    """Return a context in which the actor's generator continues another one; layers keep the object."""
    before = own.get_state()
    own.set_state(generator.get_state())
    try:
        with acting:
            yield
    finally:
        generator.set_state(own.get_state())
        own.set_state(before)


@contextmanager
def in_evaluation(layers: list[nn.Module]) -> Iterator[None]:
    """Return a context of inference mode, in which layers are in evaluation mode."""
    for layer in layers:
        layer.training = False
    try:
        with torch.inference_mode():
            yield
    finally:
        for layer in layers:
            layer.training = True
