"""Networks that act by one compiled call give what their modules give, which compute all else."""

import copy
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from pytorchrl.agent.actors import Actor
from pytorchrl.agent.actors.actor import Head
from pytorchrl.agent.actors.heads import (
    BetaPolicy,
    DeterministicPolicy,
    GaussianPolicy,
    MellowmaxPolicy,
    Policy,
    Quadratic,
    SoftmaxPolicy,
    StateValue,
    Values,
)
from pytorchrl.agent.actors.heads.policies import CategoricalLayer
from pytorchrl.agent.actors.layers import quick_layers
from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.actors.outputs import Distribution
from pytorchrl.agent.actors.view import Observations

VECTORS = spaces.Box(-np.inf, np.inf, (5,), np.float32)
CHOICES, NUMBERS = spaces.Discrete(4), spaces.Box(-1.0, 1.0, (3,), np.float32)
HEADS: dict[str, tuple[Head, gym.Space[Any]]] = {
    "categorical": (Policy(gain=1.0), CHOICES),
    "several choices": (Policy(gain=1.0), spaces.MultiDiscrete([2, 3])),
    "binary": (Policy(gain=1.0), spaces.MultiBinary(3)),
    "softmax": (SoftmaxPolicy(temperature=0.5, min_probability=0.1), CHOICES),
    "mellowmax": (MellowmaxPolicy(), CHOICES),
    "gaussian": (GaussianPolicy(), NUMBERS),
    "beta": (BetaPolicy(), NUMBERS),
    "deterministic": (DeterministicPolicy(), NUMBERS),
    "state value": (StateValue(), CHOICES),
    "action values": (Values(), CHOICES),
    "quadratic": (Quadratic(), NUMBERS),
}


def make_actor(action_space: gym.Space[Any] = CHOICES, **hyper_parameters: Any) -> Actor:
    torch.manual_seed(0)
    hyper_parameters = {"hidden_sizes": (32, 16), "activation": "tanh"} | hyper_parameters
    envs = SimpleNamespace(observation_space=VECTORS, action_space=action_space)
    return Actor.create_factory(**hyper_parameters)("cpu", envs)


def make_network(head: Head | None = None, action_space: gym.Space[Any] = CHOICES, **hyper_parameters: Any) -> Network:
    return make_actor(action_space, **hyper_parameters).make("network", head or Policy(gain=1.0))


def observations(rows: int) -> Tensor:
    return torch.randn(rows, 5, generator=torch.Generator().manual_seed(rows))


def tensors_of(output: Any) -> list[Tensor]:
    if isinstance(output, Tensor):
        return [output]
    if isinstance(output, Distribution):
        return list(output.parameters)
    return [one for one in vars(output).values() if isinstance(one, Tensor)]


def acting(network: Network, obs: Tensor) -> Any:
    with torch.inference_mode():
        return network(Observations(obs))


def by_modules(network: Network, obs: Tensor) -> Any:
    """The output with gradients, which the fast path does not compute."""
    return network(Observations(obs))


def assert_same(output: Any, expected: Any) -> None:
    assert type(output) is type(expected)
    for one, other in zip(tensors_of(output), tensors_of(expected), strict=True):
        torch.testing.assert_close(one, other.detach(), rtol=1e-4, atol=1e-5)


@pytest.fixture
def single_layers(monkeypatch: pytest.MonkeyPatch) -> list[nn.Module]:
    """The layers of heads that were computed alone."""
    layers: list[nn.Module] = []
    compute = quick_layers.linear

    def recorded(layer: nn.Module, features: Tensor) -> Tensor:
        layers.append(layer)
        return compute(layer, features)

    monkeypatch.setattr("pytorchrl.agent.actors.layers.output_layer.linear", recorded)
    return layers


@pytest.mark.parametrize("rows", [1, 16, 24, 64, 100])
@pytest.mark.parametrize("name", HEADS)
def test_every_head_acts_as_it_learns(name: str, rows: int) -> None:
    network = make_network(*HEADS[name])
    assert_same(acting(network, observations(rows)), by_modules(network, observations(rows)))


@pytest.mark.parametrize("rows", [1, 16, 64])
@pytest.mark.parametrize("name", HEADS)
def test_all_layers_are_computed_together(name: str, rows: int, single_layers: list[nn.Module]) -> None:
    acting(make_network(*HEADS[name]), observations(rows))
    assert not single_layers


@pytest.mark.parametrize(
    "hyper_parameters",
    [
        {"layer_norm": True},
        {"dropout": 0.1},
        {"noisy": True},
        {"activation": "elu"},
        {"normalize_observations": True},
        {"hidden_sizes": ()},
        {"shared_body": True},
    ],
    ids=str,
)
def test_other_networks_act_by_their_modules(hyper_parameters: dict[str, Any], single_layers: list[nn.Module]) -> None:
    acting(make_network(**hyper_parameters), observations(4))
    assert len(single_layers) == 1


def test_networks_that_share_a_body_compute_it_once() -> None:
    actor = make_actor(shared_body=True)
    policy, value = actor.make("policy", Policy()), actor.make("value", StateValue())
    calls = []
    policy.body.register_forward_hook(lambda *_: calls.append(1))
    with torch.inference_mode():
        view = actor.view(observations(4))
        policy(view)
        value(view)
    assert len(calls) == 1


def test_hooks_of_body_and_head_are_called_while_acting() -> None:
    network = make_network()
    acting(network, observations(4))
    layers = [module for module in network.modules() if isinstance(module, nn.Linear)]
    assert len(layers) == 3
    for module in (network.body, network.head, *layers):
        called: list[nn.Module] = []
        handle = module.register_forward_hook(lambda module, *_, called=called: called.append(module))
        acting(network, observations(4))
        handle.remove()
        assert called == [module]


def trained(network: Network) -> None:
    for parameter in network.parameters():
        parameter.mul_(1.5)


def head_replaced(network: Network) -> None:
    layer = cast("Any", network.head).layer
    layer.weight = nn.Parameter(torch.ones_like(layer.weight))


def parametrised(network: Network) -> None:
    nn.utils.parametrizations.weight_norm(cast("Any", network.body).hidden.layers[0])


@pytest.mark.parametrize("change", [trained, head_replaced, parametrised])
def test_changed_weights_take_effect_while_acting(change: Callable[[Network], None]) -> None:
    network = make_network()
    acting(network, observations(4))
    with torch.no_grad():
        change(network)
    assert_same(acting(network, observations(4)), by_modules(network, observations(4)))


def head_exchanged(network: Network) -> None:
    network.head = make_network().head


def body_exchanged(network: Network) -> None:
    network.body = make_network().body


def hidden_exchanged(network: Network) -> None:
    cast("Any", network.body).hidden = cast("Any", make_network().body).hidden


@pytest.mark.parametrize("exchange", [head_exchanged, body_exchanged, hidden_exchanged])
def test_exchanged_parts_take_effect_while_acting(exchange: Callable[[Network], None]) -> None:
    network = make_network()
    with torch.no_grad():
        trained(network)
    acting(network, observations(4))
    exchange(network)
    assert_same(acting(network, observations(4)), by_modules(network, observations(4)))


def test_a_copy_acts_by_its_own_weights() -> None:
    network = make_network()
    other = copy.deepcopy(network)
    with torch.no_grad():
        trained(other)
    called: list[int] = []
    other.body.register_forward_hook(lambda *_: called.append(1))
    assert_same(acting(other, observations(4)), by_modules(other, observations(4)))
    assert called
    assert_same(acting(network, observations(4)), by_modules(network, observations(4)))


class Doubled(CategoricalLayer):
    """A user's head that computes more than its layer."""

    def forward(self, features: Tensor) -> Any:
        """(N, features) to a distribution."""
        return super().forward(2 * features)


class DoubledPolicy:
    """Makes the head."""

    def build(self, features: int, actor: Actor) -> nn.Module:
        """Return the module."""
        return Doubled(nn.Linear(features, 4))


def test_a_head_with_a_forward_of_its_own_is_called() -> None:
    network = make_network(DoubledPolicy())
    assert_same(acting(network, observations(4)), by_modules(network, observations(4)))
