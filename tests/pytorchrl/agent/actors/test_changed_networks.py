"""A network that was changed after it was made is the same network in acting, in targets and in learning."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune

from pytorchrl.agent.actors import Actor
from pytorchrl.agent.actors.heads import ActionValue, GaussianPolicy, ImplicitQuantiles, Policy, Values
from pytorchrl.agent.actors.layers.mlp import MLP
from pytorchrl.agent.actors.network import Ensemble, Network, make_target
from pytorchrl.agent.actors.outputs import Distribution
from pytorchrl.agent.actors.view import Observations

VECTORS = spaces.Box(-np.inf, np.inf, (5,), np.float32)
CHOICES, NUMBERS = spaces.Discrete(4), spaces.Box(-1.0, 1.0, (3,), np.float32)
EXACT = {"rtol": 1e-5, "atol": 1e-5}
"""The normalised weights of some changes are large, and the tanh of many numbers is exact to 4e-7."""


class Doubled(MLP):
    """A user's layers with a forward of their own."""

    def forward(self, features: Tensor) -> Tensor:
        """(B, input_size) to (B, output_size)."""
        return 2 * super().forward(features)


def make_actor(cls: type[Actor] = Actor, activation: str = "tanh", action_space: Any = NUMBERS) -> Actor:
    torch.manual_seed(0)
    envs = SimpleNamespace(observation_space=VECTORS, action_space=action_space)
    return cls.create_factory(hidden_sizes=(16, 8), activation=activation)("cpu", envs)


def policy(activation: str = "tanh") -> Network:
    return make_actor(activation=activation).make("policy", GaussianPolicy(gain=1.0))


def critic(activation: str = "tanh", cls: type[Actor] = Actor) -> Network:
    actor = make_actor(cls, activation)
    return actor.make("critic", ActionValue(), codec=SimpleNamespace(size=3, features=lambda action: action))


def random_tensor(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def numbers_of(output: Any) -> Tensor:
    if isinstance(output, Tensor):
        return output
    numbers = output.parameters[0] if isinstance(output, Distribution) else output.mean
    assert isinstance(numbers, Tensor)
    return numbers


def computed(network: Network, obs: Tensor, action: Tensor) -> Tensor:
    return numbers_of(network(Observations(obs), None if network.joint is None else action))


def composed(network: Network, obs: Tensor, action: Tensor) -> Tensor:
    """The outputs of the network's modules, each called as torch calls it."""
    joint = cast("MLP | None", network.joint)
    features = obs if joint is not None else after(network.body.hidden, obs)  # type: ignore[union-attr]
    if joint is not None:
        features = after(joint, torch.cat([features, action], dim=1))
    return cast("Tensor", network.head.layer(features))  # type: ignore[operator]


def after(mlp: Any, features: Tensor) -> Tensor:
    for layer in mlp.layers:
        features = getattr(torch, mlp.activation)(layer(features))
    return 2 * features if isinstance(mlp, Doubled) else features


def hidden_of(network: Network) -> MLP:
    return cast("MLP", network.body.hidden if network.joint is None else network.joint)  # type: ignore[union-attr]


def linear_of(network: Network) -> list[nn.Module]:
    return [*hidden_of(network).layers, cast("Any", network.head).layer]


def every_layer(change: Callable[[nn.Module], Any]) -> Callable[[Network], Any]:
    def changed(network: Network) -> None:
        for layer in linear_of(network):
            change(layer)

    return changed


class Adapted(nn.Module):
    """A layer with a low-rank addition (LoRA)."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.layer = layer.requires_grad_(requires_grad=False)
        self.down, self.up = nn.Linear(layer.in_features, 2), nn.Linear(2, layer.out_features)

    def forward(self, features: Tensor) -> Tensor:
        """(B, inputs) to (B, outputs)."""
        return cast("Tensor", self.layer(features) + self.up(self.down(features)))


def with_adapters(network: Network) -> None:
    layers = hidden_of(network).layers
    for position, layer in enumerate(layers):
        layers[position] = Adapted(cast("nn.Linear", layer))
    head = cast("Any", network.head)
    head.layer = Adapted(head.layer)


def registered_anew(network: Network) -> None:
    """By a method that bypasses ``__setattr__``, as tools that rewrite networks do."""
    layers = hidden_of(network).layers
    layers.add_module("0", nn.Linear(layers[0].in_features, 16))  # type: ignore[arg-type]


def other_hidden_layers(network: Network) -> None:
    hidden = hidden_of(network)
    mlp = MLP(cast("nn.Linear", hidden.layers[0]).in_features, (32, 8), "relu", "uniform")
    if network.joint is None:
        network.body.hidden = mlp  # type: ignore[assignment]
    else:
        network.joint = mlp


def other_head(network: Network) -> None:
    layer = cast("Any", network.head).layer
    cast("Any", network.head).layer = nn.Linear(layer.in_features, layer.out_features)


def deeper(network: Network) -> None:
    hidden_of(network).layers.append(nn.Linear(8, 8))


def other_activation(network: Network) -> None:
    hidden_of(network).activation = "relu"


def layer_removed(network: Network) -> None:
    layers = hidden_of(network).layers
    layers[1] = nn.Identity()
    head = cast("Any", network.head)
    head.layer = nn.Linear(16, head.layer.out_features)


def own_forward(layer: nn.Module) -> None:
    forward = layer.forward
    layer.forward = lambda features: 3 * forward(features)


def doubling(module: nn.Module, *arguments: Any) -> Any:
    return 2 * arguments[-1]


def doubling_input(module: nn.Module, arguments: tuple[Tensor]) -> tuple[Tensor]:
    return (2 * arguments[0],)


CHANGES: dict[str, Callable[[Network], Any]] = {
    "nothing": lambda network: None,
    "weights in place": every_layer(lambda layer: cast("Any", layer).weight.data.mul_(1.5)),
    "other weights": every_layer(lambda layer: setattr(layer, "weight", nn.Parameter(cast("Any", layer).weight * 2))),
    "old spectral norm": every_layer(lambda layer: nn.utils.spectral_norm(layer).eval()),
    "spectral norm": every_layer(lambda layer: parametrizations.spectral_norm(layer).eval()),
    "old weight norm": every_layer(lambda layer: nn.utils.weight_norm(layer)),
    "weight norm": every_layer(lambda layer: parametrizations.weight_norm(layer)),
    "orthogonal weights": every_layer(lambda layer: parametrizations.orthogonal(layer)),
    "pruned": every_layer(lambda layer: prune.l1_unstructured(layer, "weight", 0.5)),
    "pruned rows": every_layer(lambda layer: prune.ln_structured(layer, "weight", 0.5, n=2, dim=1)),
    "forward hooks": every_layer(lambda layer: layer.register_forward_hook(doubling)),
    "forward pre-hooks": every_layer(lambda layer: layer.register_forward_pre_hook(doubling_input)),
    "forwards of layers": every_layer(own_forward),
    "without bias": every_layer(lambda layer: setattr(layer, "bias", None)),
    "adapters": with_adapters,
    "modules registered anew": registered_anew,
    "other hidden layers": other_hidden_layers,
    "another head": other_head,
    "a further layer": deeper,
    "a layer removed": layer_removed,
    "another activation": other_activation,
}
NETWORKS: dict[str, Callable[..., Network]] = {"policy": policy, "critic": critic}
pytestmark = pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm`:FutureWarning")


@pytest.mark.parametrize("rows", [1, 40, 300])
@pytest.mark.parametrize("kind", NETWORKS)
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_shows_in_acting_in_targets_and_in_learning(change: str, kind: str, rows: int) -> None:
    network, obs, action = NETWORKS[kind](), random_tensor(rows, 5), random_tensor(rows, 3)
    for context in (torch.inference_mode, torch.no_grad, torch.enable_grad):
        with context():
            computed(network, obs, action)
    CHANGES[change](network)
    expected = composed(network, obs, action)
    torch.testing.assert_close(computed(network, obs, action), expected, **EXACT)
    with torch.no_grad():
        torch.testing.assert_close(computed(network, obs, action), expected.detach(), **EXACT)
    with torch.inference_mode():
        torch.testing.assert_close(computed(network, obs, action), expected.detach(), **EXACT)


@pytest.mark.parametrize(("kind", "activation"), [("policy", "tanh"), ("critic", "relu")])
@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_network_has_the_gradients_of_torch(change: str, kind: str, activation: str) -> None:
    network, obs, action = NETWORKS[kind](activation), random_tensor(300, 5), random_tensor(300, 3).requires_grad_()
    CHANGES[change](network)
    inputs = [parameter for parameter in network.parameters() if parameter.requires_grad]
    inputs += [action] if kind == "critic" else []
    gradients, expected = (
        torch.autograd.grad(function(network, obs, action).square().mean(), inputs, allow_unused=True)
        for function in (computed, composed)
    )
    for gradient, of_torch in zip(gradients, expected, strict=True):
        assert (gradient is None) == (of_torch is None)
        torch.testing.assert_close(gradient, of_torch, **EXACT)


def hooked_modules(network: Network) -> dict[str, nn.Module]:
    """All modules that compute something."""
    # Lists are not called, in torch either, and the codec is no module.
    return {name: each for name, each in network.named_modules() if not isinstance(each, nn.ModuleList)}


@pytest.fixture
def globally_hooked() -> Iterator[list[nn.Module]]:
    """The modules for which a hook of all modules was called."""
    called: list[nn.Module] = []
    handle = nn.modules.module.register_module_forward_hook(lambda module, *_: called.append(module))
    yield called
    handle.remove()


@pytest.mark.parametrize("context", [torch.inference_mode, torch.no_grad, torch.enable_grad])
def test_hooks_of_all_modules_are_called(globally_hooked: list[nn.Module], context: Any) -> None:
    network = policy()
    with context():
        computed(network, random_tensor(1, 5), random_tensor(1, 3))
    assert set(hooked_modules(network).values()) <= set(globally_hooked)


@pytest.mark.parametrize("context", [torch.inference_mode, torch.no_grad, torch.enable_grad])
@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_a_hook_may_keep_the_output_of_a_layer(activation: str, context: Any) -> None:
    network, kept, obs = policy(activation), [], random_tensor(300, 5)
    layer = hidden_of(network).layers[0]
    layer.register_forward_hook(lambda *arguments: kept.append(arguments[2]))
    with context():
        computed(network, obs, obs)
        torch.testing.assert_close(kept[0], layer(obs))


def test_observations_are_not_changed_by_a_layer_that_returns_its_input() -> None:
    network, obs = policy(), random_tensor(300, 5)
    before = obs.clone()
    hidden_of(network).layers[0] = nn.Identity()
    hidden_of(network).layers[1] = nn.Linear(5, 8)
    for context in (torch.inference_mode, torch.no_grad, torch.enable_grad):
        with context():
            computed(network, obs, obs)
    assert torch.equal(obs, before)


@pytest.mark.parametrize("change", ["spectral norm", "old spectral norm", "weight norm", "pruned", "adapters"])
def test_a_target_of_a_changed_network_is_equal_to_it(change: str) -> None:
    network, obs, action = critic(), random_tensor(16, 5), random_tensor(16, 3)
    CHANGES[change](network)
    target = make_target(network)
    with torch.no_grad():
        torch.testing.assert_close(computed(target, obs, action), composed(network, obs, action), **EXACT)
        for parameter in network.parameters():
            parameter.mul_(2)
        torch.testing.assert_close(computed(target, obs, action), composed(target, obs, action), **EXACT)
        assert not torch.allclose(computed(target, obs, action), computed(network, obs, action))


@pytest.mark.parametrize("change", CHANGES)
def test_a_frozen_network_gives_gradients_to_actions_alone(change: str) -> None:
    network, obs, action = critic(), random_tensor(16, 5), random_tensor(16, 3).requires_grad_()
    with network.frozen():
        computed(network, obs, action)
    CHANGES[change](network)
    before = [parameter.requires_grad for parameter in network.parameters()]
    with Ensemble([network]).frozen():
        computed(network, obs, action).sum().backward()
    assert action.grad is not None
    assert all(parameter.grad is None for parameter in network.parameters())
    assert [parameter.requires_grad for parameter in network.parameters()] == before


def test_replaced_members_of_an_ensemble_are_called() -> None:
    obs, action = random_tensor(16, 5), random_tensor(16, 3)
    ensemble, other = Ensemble([critic(), critic()]), critic("relu")
    ensemble.networks[1] = other
    outputs = ensemble(Observations(obs), action)
    torch.testing.assert_close(numbers_of(outputs[1]), computed(other, obs, action))
    assert ensemble[1] is other
    assert list(ensemble)[1] is other


class WithSpectralNorm(Actor):
    """An actor whose heads have spectral normalisation by the older function of torch."""

    def linear(self, inputs: int, outputs: int) -> nn.Module:
        """Make a layer."""
        return nn.utils.spectral_norm(super().linear(inputs, outputs))


class WithParametrizedSpectralNorm(Actor):
    """An actor whose heads have spectral normalisation by the newer function of torch."""

    def linear(self, inputs: int, outputs: int) -> nn.Module:
        """Make a layer."""
        return parametrizations.spectral_norm(super().linear(inputs, outputs))


@pytest.mark.parametrize("cls", [WithSpectralNorm, WithParametrizedSpectralNorm])
@pytest.mark.parametrize(
    "head", [Values(), Policy(gain=1.0), ImplicitQuantiles()], ids=lambda head: type(head).__name__
)
def test_heads_with_spectral_norm_are_the_same_in_acting_and_learning(cls: type[Actor], head: Any) -> None:
    network, obs = make_actor(cls, action_space=CHOICES).make("network", head).eval(), random_tensor(16, 5)

    def numbers() -> Tensor:
        output = network(Observations(obs))
        if isinstance(head, ImplicitQuantiles):
            return output.function.means(output.features, output.function.midpoints)
        return cast("Tensor", output.logits if isinstance(output, Distribution) else output.values)

    learning = numbers()
    learning.sum().backward()
    assert all(parameter.grad is not None for parameter in network.head.parameters() if parameter.requires_grad)
    with torch.no_grad():
        torch.testing.assert_close(numbers(), learning.detach(), **EXACT)
    with torch.inference_mode():
        torch.testing.assert_close(numbers(), learning.detach(), **EXACT)


@pytest.mark.parametrize("change", [parametrizations.spectral_norm, nn.utils.spectral_norm, own_forward])
def test_quantiles_are_those_of_a_changed_output_layer(change: Callable[[nn.Module], Any]) -> None:
    network = make_actor(action_space=CHOICES).make("q", ImplicitQuantiles()).eval()
    function, features, fractions = cast("Any", network.head), random_tensor(6, 8), torch.tensor([0.2, 0.7])
    change(function.numbers.layer)
    function.eval()
    quantiles = function.quantiles(features, fractions)
    torch.testing.assert_close(function.means(features, fractions), quantiles.mean(2), **EXACT)
    weights = random_tensor(6, 4)
    expected = (weights[:, :, None] * quantiles).sum(1)
    torch.testing.assert_close(function.mixed(features, fractions, weights), expected, **EXACT)


def test_parameters_can_be_given_at_the_call() -> None:
    network, obs = policy(), random_tensor(16, 5)
    zeros = {name: torch.zeros_like(parameter) for name, parameter in network.named_parameters()}
    for context in (torch.inference_mode, torch.no_grad, torch.enable_grad):
        with context():
            assert not numbers_of(torch.func.functional_call(network, zeros, (Observations(obs),))).any()
