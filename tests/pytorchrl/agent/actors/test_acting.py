"""Networks that act compute what their modules do, as these are at the time."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import pytorchrl as prl
from pytorchrl.agent.actors.layers.linear_layers import OutputLayer
from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.actors.view import Observations

ACTIVATIONS = "relu", "tanh"


def network_of(algorithm: Any, role: str, **settings: Any) -> Network:
    actor = prl.OnPolicyActor if algorithm is prl.PPO else prl.OffPolicyActor
    storage = prl.GAEBuffer if algorithm is prl.PPO else prl.ReplayBuffer
    scheme = prl.Scheme(
        algorithm.create_factory(),
        actor.create_factory(hidden_sizes=(9, 7), **settings),
        storage.create_factory(size=16),
        prl.VecEnv.create_factory("CartPole-v1", num_envs=4),
        seed=0,
    )
    network: Network = getattr(scheme.algorithm, role)
    return network


def numbers(output: Any) -> Tensor:
    """The tensor of an output."""
    found = (
        output if isinstance(output, Tensor) else next(each for each in vars(output).values() if type(each) is Tensor)
    )
    assert isinstance(found, Tensor)
    return found


def by_modules(network: Network, observations: Tensor) -> Tensor:
    with torch.no_grad():
        return numbers(network(Observations(observations)))


def while_acting(network: Network, observations: Tensor) -> Tensor:
    with torch.inference_mode():
        return numbers(network(Observations(observations)))


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("rows", [1, 8, 40])
@pytest.mark.parametrize(("algorithm", "role"), [(prl.PPO, "pi"), (prl.PPO, "value"), (prl.DQN, "q")])
def test_one_call_computes_what_the_modules_do(algorithm: Any, role: str, rows: int, activation: str) -> None:
    network = network_of(algorithm, role, activation=activation)
    observations = torch.randn(rows, 4, generator=torch.Generator().manual_seed(rows))
    torch.testing.assert_close(while_acting(network, observations), by_modules(network, observations))


@pytest.mark.parametrize("kind", ["hook", "own forward of the object", "subclass"])
def test_every_module_of_a_network_that_is_changed_is_called(kind: str) -> None:
    observations = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    places = [name for name, _ in network_of(prl.PPO, "pi").named_modules()]
    assert len(places) > 6
    for place in places:
        network, calls = network_of(prl.PPO, "pi"), []
        module = network.get_submodule(place)
        if isinstance(module, nn.ModuleList):
            continue
        before = while_acting(network, observations)
        if kind == "hook":
            module.register_forward_hook(lambda *_, calls=calls: calls.append(1))
        else:
            forward = type(module).forward

            def counted(self: Any, *given: Any, calls: list[int] = calls, forward: Any = forward) -> Any:
                calls.append(1)
                return forward(self, *given)

            if kind == "subclass":
                module.__class__ = type("Own", (type(module),), {"forward": counted})
            else:
                module.forward = counted.__get__(module)
        torch.testing.assert_close(while_acting(network, observations), before)
        assert calls, place


def test_weights_that_are_replaced_are_those_that_act() -> None:
    network = network_of(prl.PPO, "pi")
    observations = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    first = while_acting(network, observations)
    for layer in [module for module in network.modules() if isinstance(module, nn.Linear)]:
        layer.weight = nn.Parameter(layer.weight.detach() * 1.5)
        torch.testing.assert_close(while_acting(network, observations), by_modules(network, observations))
    assert not torch.allclose(while_acting(network, observations), first)


def test_heads_whose_forward_computes_more_are_called() -> None:
    class Scaled(OutputLayer):
        def forward(self, features: Tensor) -> Any:
            return super().forward(2 * features)

    network = network_of(prl.PPO, "value")
    observations = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    before = while_acting(network, observations)
    layer = next(module for module in network.head.modules() if isinstance(module, nn.Linear))
    network.head = Scaled(layer)
    torch.testing.assert_close(while_acting(network, observations), by_modules(network, observations))
    assert not torch.allclose(while_acting(network, observations), before)
