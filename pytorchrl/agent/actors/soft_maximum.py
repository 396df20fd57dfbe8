"""Log-sum-exp of a critic's values over sampled actions."""

from typing import Any

from torch import Tensor, nn

from pytorchrl.agent.actors.heads.values import ActionValueLayer
from pytorchrl.agent.actors.layers.mlp import MLP
from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.actors.view import Repeated, View
from pytorchrl.agent.ops.layers import are_plain
from pytorchrl.agent.ops.soft_maximum import weighted_soft_maximum, weighted_soft_maximum_of_mlp


def soft_maximum_of_critic(
    critic: Network,
    view: View,
    action: Tensor,
    log_density: Tensor,
    weight: Tensor,
    at_least: Tensor | None = None,
) -> Tensor:
    """Return the weighted sum () over rows of ``log(sum(exp(Q(s, a) - log p(a))))``, over sampled actions.

    Args:
        critic: of observations and actions; receives the gradient.
        view: of N rows.
        action: (N, M, A).
        log_density: (N, M), of each action under its proposal distribution.
        weight: (N, 1), of the rows.
        at_least: (N, M), lower bounds of values; None for no bounds.
    """
    joint, parameters = critic.joint, _parameters_of_plain(critic)
    if joint is not None and parameters is not None:
        given = view.features(critic.body), action, log_density, weight, at_least
        quick = weighted_soft_maximum_of_mlp(parameters, joint.activation, *given)
        if quick is not None:
            return quick
    number = action.shape[1]
    values: Tensor = critic(Repeated(view, number), action.flatten(0, 1)).mean.view(-1, number)
    return weighted_soft_maximum(values, log_density, weight, at_least)


def _parameters_of_plain(critic: Network) -> list[Tensor] | None:
    """Return weight and bias of each layer; None where a call of the critic is more than these layers, now."""
    joint, head = critic.joint, critic.head
    if joint is None or not (are_plain([critic], Network) and are_plain([joint], MLP)):
        return None
    hidden = joint.plain_layers
    if hidden is None or not are_plain([head], ActionValueLayer):
        return None
    layers: list[Any] = [*hidden, head.layer]
    if not are_plain(layers, nn.Linear) or any(layer.bias is None for layer in layers):
        return None
    return [parameter for layer in layers for parameter in (layer.weight, layer.bias)]
