"""Networks: a body, which the user chose, under a head, which the algorithm chose."""

import copy
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from pytorchrl.agent.actors.codec import ActionCodec
from pytorchrl.agent.actors.layers.mlp import MLP, BatchNorm
from pytorchrl.agent.actors.layers.normalization import ObservationNormalization
from pytorchrl.agent.actors.layers.quick_module import QuickModule
from pytorchrl.agent.actors.layers.shared_generator import UsesGenerator
from pytorchrl.agent.actors.view import AnyBody, View


class Network(QuickModule):
    """From observations, and actions where it takes them, to what its head makes.

    Args:
        body: from observations to features.
        head: from features to an output.
        joint: of networks that take actions or other numbers, the layers behind features and those side by side.
        codec: of networks that take actions, how those become numbers.
    """

    def __init__(
        self, body: AnyBody, head: nn.Module, joint: MLP | None = None, codec: ActionCodec | None = None
    ) -> None:
        super().__init__()
        self.body = body
        self.head = head
        self.joint = joint
        self._codec = codec
        self._is_frozen = False
        self._behind: _Behind | None = None

    def forward(self, view: View, action: Tensor | None = None) -> Any:
        """The head's output for each row of a view, with actions (N, *action) or numbers (N, size) beside it or not."""
        features = self.inputs(view, action)
        if self.joint is not None:
            features = self.joint(features)
        return self.head(features)

    def inputs(self, view: View, action: Tensor | None = None) -> Tensor:
        """(N, size): what the layers behind the body get, which are the joint ones or else the head."""
        features = view.features(self.body)
        if self._is_frozen:
            features = features.detach()
        if self.joint is None:
            return features
        assert action is not None
        return torch.cat([features, action if self._codec is None else self._codec.features(action)], dim=1)

    def target(self) -> "Network":
        """A copy that takes no gradients; it normalises observations as the network does."""
        return make_target(self)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Let gradients pass through to the action without leaving any in the network.

        Batches are normalised by the running statistics, which are those of actions learnt from, and do not change.
        """
        # Features do not depend on the action: those that were computed to learn from are used, detached.
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
    """What lies behind the features of a network."""

    def __init__(self, modules: list[nn.Module]) -> None:
        self.parameters = [parameter for module in modules for parameter in module.parameters()]
        every = [each for module in modules for each in module.modules()]
        self.norms = [each for each in every if isinstance(each, BatchNorm)]


class Ensemble(QuickModule):
    """Networks of one kind with separate weights.

    Args:
        networks: at least one.
    """

    def __init__(self, networks: list[Network]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)
        self._networks = networks

    def forward(self, view: View, action: Tensor | None = None) -> list[Any]:
        """The output of each network."""
        return [network(view, action) for network in self._networks]

    def target(self) -> "Ensemble":
        """A copy that takes no gradients; it normalises observations as the networks do."""
        return make_target(self)

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
    """A copy that takes no gradients; it normalises observations as the network does, and draws as it does."""
    normalizations = [module for module in network.modules() if isinstance(module, ObservationNormalization)]
    # A generator of the copy's own would be in no checkpoint.
    generators = [module.generator for module in network.modules() if isinstance(module, UsesGenerator)]
    shared: dict[int, Any] = {id(each): each for each in (*normalizations, *generators)}
    return copy.deepcopy(network, shared).requires_grad_(False)
