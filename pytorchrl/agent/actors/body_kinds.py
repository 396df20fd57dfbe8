"""The choice of hidden layers: an MLP, a residual network, or a user's module."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, Unpack

import torch
from torch import nn

from pytorchrl.agent.actors.encoders.custom_extractors import can_be_called, check_features, name_of
from pytorchrl.agent.actors.layers.linear_layers import Initialisation
from pytorchrl.agent.actors.layers.mlp import MLP, Activation, Layers
from pytorchrl.agent.actors.layers.residual import BroNet, SimBa, width_of

BodyName: TypeAlias = Literal["mlp", "simba", "bronet"]
BodyMaker: TypeAlias = Callable[[int, Sequence[int]], nn.Module]
"""Makes a module from the number of inputs and the ``hidden_sizes``, which maps (B, inputs) to (B, n)."""
BodyKind: TypeAlias = BodyName | BodyMaker

_RESIDUAL: Mapping[Any, type[SimBa | BroNet]] = {"simba": SimBa, "bronet": BroNet}
_OF_MLP = ("layer_norm", "batch_norm", "dropout")
"""Settings of layers that only an MLP has."""


def make_hidden_layers(
    kind: BodyKind,
    input_size: int,
    hidden_sizes: Sequence[int],
    activation: Activation,
    initialisation: Initialisation,
    **layers: Unpack[Layers],
) -> nn.Module:
    """Make hidden layers, a module from (B, input_size) to (B, output_size); the identity where there are none.

    Args:
        kind: of the layers.
        input_size: features in.
        hidden_sizes: units of each layer, or of each residual block.
        activation: of an MLP.
        initialisation: of an MLP.
        layers: settings of an MLP's layers; noise is that of residual networks, too.

    Raises:
        TypeError: a user's function does not make a module that returns a Tensor.
        ValueError: an algorithm needs layers that only an MLP has, or the output of the user's is not (B, n).
    """
    if kind == "mlp":
        return MLP(input_size, hidden_sizes, activation, initialisation, **layers)
    needed = [name for name in _OF_MLP if layers.get(name)]
    if layers.get("batch_renorm_warmup") is not None:
        needed.append("batch_renorm_warmup")
    if needed:
        raise ValueError(
            f"body {_shown(kind)} has no {' and no '.join(needed)}, with which the algorithm makes these networks; "
            f'choose body="mlp", or another algorithm'
        )
    if not hidden_sizes:
        return MLP(input_size, ())
    if isinstance(kind, str):
        names = ("noisy", "noisy_sigma", "generator")
        noise: Any = {name: layers[name] for name in names if name in layers}  # type: ignore[literal-required]
        return _RESIDUAL[kind](input_size, hidden_sizes, **noise)
    return _made_by(kind, input_size, hidden_sizes)


def _made_by(make: BodyMaker, input_size: int, hidden_sizes: Sequence[int]) -> nn.Module:
    """Make a user's module and try it on two rows."""
    module = make(input_size, tuple(hidden_sizes))
    who = f"body {name_of(make)}"
    if not isinstance(module, nn.Module):
        raise TypeError(
            f"{who} must make a torch.nn.Module of (input_size, hidden_sizes), got a {type(module).__name__}"
        )
    parameter = next(module.parameters(), None)
    device = torch.device("cpu") if parameter is None else parameter.device
    rows = torch.linspace(-1, 1, 2 * input_size, device=device).view(2, input_size)
    check_features(module, rows, who, "rows of features", f"features (B, {input_size})")
    return module


def check_bodies(owner: str, hyper_parameters: Mapping[str, Any], default_activation: str) -> None:
    """Check the hidden layers of an actor, and those of single networks.

    Args:
        owner: name of the actor's class.
        hyper_parameters: of the actor.
        default_activation: that of its class, which other bodies than an MLP do not use.

    Raises:
        ValueError: residual blocks have different sizes, a setting is that of an MLP alone, or a user's module is not
            made from sizes.
    """
    _check_body(owner, hyper_parameters, default_activation)
    for network, settings in (hyper_parameters["per_network"] or {}).items():
        _check_body(f"{owner}: per_network[{network!r}]", {**hyper_parameters, **settings}, default_activation)


def _check_body(where: str, settings: Mapping[str, Any], default_activation: str) -> None:
    kind = settings["body"]
    if kind == "mlp":
        return
    if isinstance(kind, nn.Module):
        raise ValueError(
            f"{where}: body is an instance of {type(kind).__name__}; each network makes its own: pass the class, or a "
            f"function of sizes, lambda input_size, hidden_sizes: {type(kind).__name__}(...)"
        )
    if callable(kind) and not can_be_called(kind, 1, ()):
        raise ValueError(
            f"{where}: body {name_of(kind)} must make a module of (input_size, hidden_sizes), but takes "
            f"{inspect.signature(kind)}"
        )
    activation = settings["activation"]
    own = ("relu", default_activation) if isinstance(kind, str) else (default_activation,)
    given = [f"{name}={settings[name]!r}" for name in _OF_MLP if settings[name]]
    if activation not in own:
        given.append(f"activation={activation!r}")
    if given:
        raise ValueError(
            f"{where}: body {_shown(kind)} has layers of its own, and {', '.join(given)} would change nothing; leave "
            f'that out, or choose body="mlp"'
        )
    if isinstance(kind, str) and settings["hidden_sizes"]:
        width_of(settings["hidden_sizes"], f"{where}: body {_shown(kind)}")


def _shown(kind: BodyKind | str) -> str:
    return repr(kind) if isinstance(kind, str) else name_of(kind)
