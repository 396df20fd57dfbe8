"""Networks: a body, which the user chose, followed by a head, which the algorithm chose."""

import copy
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from pytorchrl.agent.actors.action_mask import ActionMask, Restrictable
from pytorchrl.agent.actors.codec import ActionCodec
from pytorchrl.agent.actors.layers.mlp import MLP, BatchNorm
from pytorchrl.agent.actors.layers.normalization import ObservationNormalization
from pytorchrl.agent.actors.layers.quick_module import QuickModule
from pytorchrl.agent.actors.layers.shared_generator import UsesGenerator
from pytorchrl.agent.actors.quick_network import QuickNetwork
from pytorchrl.agent.actors.view import AnyBody, Observations, View


class Network(QuickModule):
    """A body and a head: from observations, and actions if it takes them, to the head's output.

    Args:
        body: from observations to features.
        head: from features to an output.
        joint: hidden layers of the concatenated features and action (or other vector), of networks that take one.
        codec: encodes the actions, of networks that take them.
        shares_body: whether other networks have the same body, whose features are then computed once for all.
        action_mask: restricts the output to allowed actions, if it is of discrete actions; None where all are allowed.
    """

    def __init__(
        self,
        body: AnyBody,
        head: nn.Module,
        joint: MLP | None = None,
        codec: ActionCodec | None = None,
        *,
        shares_body: bool = False,
        action_mask: ActionMask | None = None,
    ) -> None:
        super().__init__()
        self.body = body
        self.head = head
        self.joint = joint
        self.action_mask = action_mask
        self._codec = codec
        self._is_frozen = False
        self._behind: _Behind | None = None
        self._quick = None if shares_body or joint is not None else QuickNetwork.of(body, head)

    def forward(self, view: View, action: Tensor | None = None) -> Any:
        """Return the output for each row of a view, with actions (N, *action) or vectors (N, size) if it takes any."""
        quick = self._quick
        if quick is not None and type(view) is Observations and quick.is_of(self.body, self.head):
            output = quick(view.observations)
            if output is not None:
                return output
        features = self.inputs(view, action)
        if self.joint is not None:
            features = self.joint(features)
        output = self.head(features)
        # Values of states have no actions to restrict.
        if self.action_mask is not None and isinstance(output, Restrictable):
            return output.allowing(self.action_mask.of(view).flags)
        return output

    def inputs(self, view: View, action: Tensor | None = None) -> Tensor:
        """Return the input (N, size) of the layers after the body: the joint layers, or else the head."""
        features = view.features(self.body)
        if self._is_frozen:
            features = features.detach()
        if self.joint is None:
            return features
        assert action is not None
        return torch.cat([features, action if self._codec is None else self._codec.features(action)], dim=1)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Let gradients reach the action, but not the parameters of the network.

        Batch normalisation uses its running statistics, which are those of the actions trained on, without an update.
        """
        # Features do not depend on the action, so that those computed for the network's own loss are reused, detached.
        if self._behind is None:
            self._behind = _Behind([self.head] if self.joint is None else [self.joint, self.head])
        parameters = [parameter for parameter in self._behind.parameters if parameter.requires_grad]
        norms = [norm for norm in self._behind.norms if norm.training]
        for parameter in parameters:
            parameter.requires_grad_(False)
        for norm in norms:
            norm.training = False
        self._is_frozen = True
        try:
            yield
        finally:
            self._is_frozen = False
            for parameter in parameters:
                parameter.requires_grad_(True)
            for norm in norms:
                norm.training = True


class _Behind:
    """The parameters and batch normalisations of the layers after a network's body."""

    def __init__(self, modules: list[nn.Module]) -> None:
        self.parameters = [parameter for module in modules for parameter in module.parameters()]
        every = [each for module in modules for each in module.modules()]
        self.norms = [each for each in every if isinstance(each, BatchNorm)]


class Ensemble(QuickModule):
    """Networks of the same architecture with separate weights.

    Args:
        networks: at least one.
    """

    def __init__(self, networks: list[Network]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)
        self._networks = networks

    def forward(self, view: View, action: Tensor | None = None) -> list[Any]:
        """Return the output of each network."""
        return [network(view, action) for network in self._networks]

    def __getitem__(self, position: int) -> Network:
        return self._networks[position]

    def __len__(self) -> int:
        return len(self._networks)

    def __iter__(self) -> Iterator[Network]:
        return iter(self._networks)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """As :meth:`Network.frozen`, of all networks."""
        with ExitStack() as stack:
            for network in self._networks:
                stack.enter_context(network.frozen())
            yield


ModuleT = TypeVar("ModuleT", bound=nn.Module)


def make_target(network: ModuleT) -> ModuleT:
    """Make a target network: a copy without gradients that shares observation normalisation and random generators."""
    normalizations = [module for module in network.modules() if isinstance(module, ObservationNormalization)]
    # A generator of the copy's own would not be saved in checkpoints.
    generators = [module.generator for module in network.modules() if isinstance(module, UsesGenerator)]
    shared: dict[int, Any] = {id(each): each for each in (*normalizations, *generators)}
    return copy.deepcopy(network, shared).requires_grad_(False)
