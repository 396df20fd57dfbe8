"""Networks: a body, which the user chose, followed by a head, which the algorithm chose."""

import copy
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.func import functional_call

from pytorchrl.agent.actors.action_mask import ActionMask, Restrictable
from pytorchrl.agent.actors.bodies import Body
from pytorchrl.agent.actors.codec import ActionCodec
from pytorchrl.agent.actors.encoders.vectors import VectorFeatures
from pytorchrl.agent.actors.layers.linear_layers import ConvertedNumbers, OutputLayer, UsesGenerator
from pytorchrl.agent.actors.layers.mlp import MLP
from pytorchrl.agent.actors.layers.normalization import ObservationNormalization
from pytorchrl.agent.actors.view import AnyBody, Observations, View
from pytorchrl.agent.ops.dispatch import is_acting
from pytorchrl.agent.ops.layers import are_plain, hidden_layers
from storages.component.other_names import unknown_names


class NamedNetworks(nn.ModuleDict):
    """Networks by name, with the known names in the KeyError about another."""

    def __getitem__(self, key: str) -> nn.Module:
        if key not in self:
            raise KeyError(unknown_names("actor.networks", "network", [key], self))
        return super().__getitem__(key)


class Network(nn.Module):
    """A body and a head: from observations, and actions if it takes them, to the head's output.

    Args:
        body: from observations, or vectors in place of these, to features.
        head: from features to an output.
        joint: hidden layers of the concatenated features and action (or other vector), of networks that take one.
        codec: encodes the actions, of networks that take them.
        action_mask: restricts the output to allowed actions, if it is of discrete actions; None where all are allowed.
    """

    def __init__(
        self,
        body: AnyBody,
        head: nn.Module,
        joint: nn.Module | None = None,
        codec: ActionCodec | None = None,
        *,
        action_mask: ActionMask | None = None,
    ) -> None:
        super().__init__()
        self.body = body
        self.head = head
        self.joint = joint
        self.action_mask = action_mask
        self._codec = codec
        self.is_frozen = False
        """Whether it is within :meth:`frozen`."""

    def forward(self, view: View, action: Tensor | None = None) -> Any:
        """Return the output for each row of a view, with actions (N, *action) or vectors (N, size) if it takes any."""
        if self.joint is None and self.action_mask is None and is_acting():
            output = output_while_acting(self.body, self.head, view)
            if output is not None:
                return output
        features, joint, head = self.inputs(view, action), self.joint, self.head
        if self.is_frozen and torch.compiler.is_dynamo_compiling():
            head, joint = _detached(head), None if joint is None else _detached(joint)
        output = head(features if joint is None else joint(features))
        # Values of states have no actions to restrict.
        if self.action_mask is not None and isinstance(output, Restrictable):
            return output.allowing(self.action_mask.of(view).flags)
        return output

    def inputs(self, view: View, action: Tensor | None = None) -> Tensor:
        """Return the input (N, size) of the layers after the body: the joint layers, or else the head."""
        features = view.features(self.body)
        if self.is_frozen:
            features = features.detach()
        if self.joint is None:
            return features
        assert action is not None
        return torch.cat([features, action if self._codec is None else self._codec.features(action)], dim=1)

    def frozen(self) -> AbstractContextManager[None]:
        """Return a context in which gradients reach the action, but not the parameters of the network.

        Batch normalisation uses its running statistics, which are those of the actions trained on, without an update.
        """
        return frozen(self)


class Ensemble(nn.Module):
    """Networks of the same architecture with separate weights.

    Args:
        networks: at least one.
    """

    def __init__(self, networks: list[Network]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)

    def forward(self, view: View, action: Tensor | None = None) -> list[Any]:
        """Return the output of each network."""
        outputs = []
        for network in self.networks:
            outputs.append(network(view, action))
        return outputs

    def __getitem__(self, position: int) -> Network:
        network: Network = self.networks[position]  # type: ignore[assignment]
        return network

    def __len__(self) -> int:
        return len(self.networks)

    def __iter__(self) -> Iterator[Network]:
        return iter(self.networks)  # type: ignore[arg-type]

    def frozen(self) -> AbstractContextManager[None]:
        """As :meth:`Network.frozen`, of all networks."""
        return frozen(*self.networks)


def _detached(module: nn.Module) -> Any:
    """Return a module as a function without gradients in its parameters, which torch can compile."""
    weights = {name: parameter.detach() for name, parameter in module.named_parameters()}
    return lambda features: functional_call(module, weights, (features,))


@contextmanager
def frozen(*networks: nn.Module) -> Iterator[None]:
    """Freeze networks, or other modules, but for the bodies of networks, whose features they detach then."""
    of_actor: list[Network] = []
    parameters: list[nn.Parameter] = []
    norms: list[nn.Module] = []
    # Where it is, networks detach their parameters instead.
    is_compiled = torch.compiler.is_dynamo_compiling()
    # As they are now: layers may have been replaced, wrapped or frozen since the networks were made.
    modules = list(networks)
    for module in modules:  # grows in the loop
        body = None
        if isinstance(module, Network):
            body = module.body
            if not module.is_frozen:
                of_actor.append(module)
        elif isinstance(module, nn.BatchNorm1d) and module.training:
            norms.append(module)
        for parameter in module._parameters.values():
            if parameter is not None and parameter.requires_grad and not is_compiled:
                parameter.requires_grad_(False)
                parameters.append(parameter)
        for child in module._modules.values():
            if child is not None and child is not body:
                modules.append(child)
    for network in of_actor:
        network.is_frozen = True
    for norm in norms:
        norm.training = False
    try:
        yield
    finally:
        for parameter in parameters:
            parameter.requires_grad_(True)
        for network in of_actor:
            network.is_frozen = False
        for norm in norms:
            norm.training = True


ModuleT = TypeVar("ModuleT", bound=nn.Module)


def make_target(network: ModuleT) -> ModuleT:
    """Make a target network: a copy without gradients that shares observation normalisation and random generators."""
    normalizations = [module for module in network.modules() if isinstance(module, ObservationNormalization)]
    # A generator of the copy's own would not be saved in checkpoints.
    generators = [module.generator for module in network.modules() if isinstance(module, UsesGenerator)]
    shared: dict[int, Any] = {id(each): each for each in (*normalizations, *generators)}
    # Weights that hooks compute before each call, as those of pruning do, are attributes that torch refuses to copy.
    for module in network.modules():
        for value in vars(module).values():
            if isinstance(value, Tensor) and not value.is_leaf:
                shared[id(value)] = value.detach().clone()
    return copy.deepcopy(network, shared).requires_grad_(False)


def output_while_acting(body: nn.Module, head: Any, view: View) -> Any | None:
    """Return the output for a few rows, in inference mode; None if the modules have to be called.

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
