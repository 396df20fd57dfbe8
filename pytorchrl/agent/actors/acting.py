"""Whole networks of observation vectors, for few rows, as in acting: all layers in one compiled call."""

from typing import Any

from torch import nn

from pytorchrl.agent.actors.bodies import Body
from pytorchrl.agent.actors.encoders.vectors import VectorFeatures
from pytorchrl.agent.actors.layers.mlp import MLP
from pytorchrl.agent.actors.layers.output_layer import ConvertedNumbers, OutputLayer
from pytorchrl.agent.actors.view import Observations, View
from pytorchrl.agent.ops.layers import are_plain, hidden_layers


def output_while_acting(body: nn.Module, head: Any, view: View) -> Any | None:
    """Return the output of a body and a head for a few rows, in inference mode; None where modules have to compute it.

    The modules are those of now, and none of them may have a hook or a ``forward`` that is not its class's own.
    """
    if type(view) is not Observations or type(body) is not Body:
        return None
    # From the dicts of modules: attributes take several calls each.
    parts: Any = body._modules
    features, hidden, layer = parts["features"], parts["hidden"], _layer_of(head)
    # An action mask removes itself from the observations.
    if (
        layer is None
        or body.normalization
        or body._action_mask
        or type(features) is not VectorFeatures
        or type(hidden) is not MLP
    ):
        return None
    within: Any = hidden._modules
    layers, norms, renorms = within["layers"]._modules, within["norms"]._modules, within["renorms"]._modules
    is_plain = features.is_flat and not (norms or renorms or within.get("dropout"))
    if not is_plain or not are_plain((body, features, hidden, head), Body, VectorFeatures, MLP, type(head)):
        return None
    numbers = hidden_layers(view.observations, [*layers.values(), layer], hidden.activation, len(layers))
    return None if numbers is None else head.output(numbers)


def _layer_of(head: nn.Module) -> nn.Module | None:
    """Return the layer whose numbers a head converts by ``output`` alone; None where it computes more."""
    if isinstance(head, ConvertedNumbers) and type(head).forward is ConvertedNumbers.forward:
        numbers = head._modules["numbers"]
        return numbers.layer if type(numbers) is OutputLayer and are_plain((numbers,), OutputLayer) else None
    if isinstance(head, OutputLayer) and type(head).forward is OutputLayer.forward:
        return head._modules["layer"]
    return None
