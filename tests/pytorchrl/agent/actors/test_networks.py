"""Networks: frozen ones pass gradients on, targets are Polyak averages, bodies are shared on request."""

import copy
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import pytorchrl as prl
from pytorchrl.agent.actors.bodies import Body
from pytorchrl.agent.actors.codec import make_codec
from pytorchrl.agent.actors.heads import ActionValue, CategoricalReturns, Policy, QuantileReturns, StateValue, Values
from pytorchrl.agent.actors.layers.mlp import BatchNorm
from pytorchrl.agent.actors.network import make_target
from pytorchrl.agent.actors.view import JoinedViews
from pytorchrl.agent.algorithms.training import Target
from tests.support.by_hand import envs_with, perturb
from tests.support.toys import continuous

BOX = continuous(size=2)


def actor_of(action_space: Any, **hyper_parameters: Any) -> prl.Actor:
    torch.manual_seed(0)
    return prl.OffPolicyActor.create_factory(hidden_sizes=(8,), **hyper_parameters)("cpu", envs_with(action_space))


def critics_of(actor: prl.Actor, count: int = 2) -> Any:
    codec = make_codec(BOX, torch.device("cpu"), scaled=True)
    return actor.make_ensemble("critics", ActionValue(), count, codec=codec)


class LinearEncoder(torch.nn.Module):
    """An encoder of the observation, with parameters."""

    def __init__(self, space: Any) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(space.shape[0], 4)

    def forward(self, observation: Any) -> Any:
        return torch.relu(self.layer(observation))


@pytest.mark.parametrize("memory", [None, "gru"])
def test_a_frozen_network_passes_gradients_to_the_action_and_accumulates_none(memory: Any) -> None:
    actor = actor_of(BOX, feature_extractor=LinearEncoder, memory=memory, memory_size=4)
    critics = critics_of(actor)
    action = torch.randn(5, 2, requires_grad=True)
    view = actor.view(torch.randn(5, 3), torch.zeros(5, 0), torch.zeros(5, 1))
    free = torch.autograd.grad(critics[0](view, action).mean.sum(), action)[0]
    with critics.frozen():
        assert not any(p.requires_grad for critic in critics for p in critic.joint.parameters())
        sum(value.mean.sum() for value in critics(view, action)).backward()
        frozen = torch.autograd.grad(critics[0](view, action).mean.sum(), action)[0]
    assert torch.equal(frozen, free)
    assert action.grad is not None
    assert all(parameter.grad is None for parameter in critics.parameters())
    critics[0](view, action).mean.sum().backward()
    assert all(parameter.grad is not None for parameter in critics[0].parameters())


def test_a_frozen_network_normalises_by_running_statistics_without_updating_them() -> None:
    actor = actor_of(BOX, batch_norm=True)
    critic = critics_of(actor)[0]
    view, action = actor.view(torch.randn(5, 3)), torch.randn(5, 2, requires_grad=True)
    critic(view, action)
    before = copy.deepcopy(critic.state_dict())
    with torch.no_grad():
        expected = critic(view, action).mean
    with critic.frozen():
        judged = critic(view, action).mean
    torch.testing.assert_close(judged, expected)
    torch.autograd.grad(judged.sum(), action)
    assert all(torch.equal(weight, before[name]) for name, weight in critic.state_dict().items())
    assert not torch.allclose(critic(view, action).mean, expected)


def test_a_late_action_joins_after_the_first_layers_and_only_those_have_batch_norm() -> None:
    torch.manual_seed(0)
    hidden = {"hidden_sizes": (6, 5, 4), "late_action": 2, "batch_norm": True, "dropout": 0.1}
    actor = prl.OffPolicyActor.create_factory(**hidden)("cpu", envs_with(BOX))
    critic, policy = critics_of(actor)[0], actor.make("policy", Policy())
    assert isinstance(critic.body, Body)
    assert [layer.in_features for layer in critic.body.hidden.layers] == [3, 6]
    assert [layer.in_features for layer in critic.joint.layers] == [5 + 2]
    assert [len(part.norms) for part in (critic.body.hidden, critic.joint, policy.body.hidden)] == [2, 0, 3]
    assert all(part.dropout is not None for part in (critic.body.hidden, critic.joint))
    obs, action = torch.randn(4, 3), torch.randn(4, 2)
    with torch.inference_mode():
        expected = critic.head(critic.joint(torch.cat([critic.body(obs), action], dim=1))).mean
        torch.testing.assert_close(critic(actor.view(obs), action).mean, expected)
    with pytest.raises(ValueError, match="OffPolicyActor: late_action must be at most the number of hidden_sizes, 1"):
        actor_of(BOX, late_action=2)


def test_joined_views_are_evaluated_as_one_batch() -> None:
    critic = critics_of(actor := actor_of(BOX))[0]
    first, second, action = torch.randn(3, 3), torch.randn(2, 3), torch.randn(5, 2)
    joined = critic(JoinedViews(actor.view(first), actor.view(second)), action).mean
    torch.testing.assert_close(joined, critic(actor.view(torch.cat([first, second])), action).mean)


def test_an_algorithm_may_override_the_layer_settings_of_a_network() -> None:
    actor = actor_of(BOX, layer_norm=True)
    codec = make_codec(BOX, torch.device("cpu"), scaled=True)
    critic = actor.make("q", ActionValue(), codec=codec, layers={"layer_norm": False, "dropout": 0.5})
    policy = actor.make("policy", Policy(), layers={"batch_renorm_warmup": 5})
    assert not critic.joint.norms
    assert critic.joint.dropout.probability == 0.5
    assert len(policy.body.hidden.norms) == 1
    assert len(policy.body.hidden.renorms) == 2


def test_unfreezing_restores_which_parameters_are_trainable() -> None:
    critics = critics_of(actor_of(BOX))
    with critics.frozen():
        pass
    target = make_target(critics)
    with target.frozen():
        pass
    assert all(parameter.requires_grad for parameter in critics.parameters())
    assert not any(parameter.requires_grad for parameter in target.parameters())
    with pytest.raises(ZeroDivisionError), critics.frozen():
        _ = 1 / 0
    assert all(parameter.requires_grad for parameter in critics.parameters())


def test_networks_of_an_ensemble_start_with_different_weights() -> None:
    actor = actor_of(BOX)
    critics = critics_of(actor, 3)
    assert len(critics) == len(list(critics)) == 3
    view, action = actor.view(torch.randn(5, 3)), torch.randn(5, 2)
    values = [value.mean for value in critics(view, action)]
    assert torch.equal(values[2], critics[2](view, action).mean)
    assert not any(torch.equal(values[i], values[j]) for i, j in ((0, 1), (0, 2), (1, 2)))


def target_of(network: Any) -> Target:
    return Target(network, None, "polyak", None)


def test_a_target_starts_as_a_copy_and_moves_by_one_minus_polyak() -> None:
    network = actor_of(spaces.Discrete(3)).make("q", Values())
    target = target_of(network)
    before = {name: weight.clone() for name, weight in target.network.state_dict().items()}
    assert all(torch.equal(before[name], weight) for name, weight in network.state_dict().items())
    perturb(network, 1)
    assert all(torch.equal(weight, before[name]) for name, weight in target.network.state_dict().items())
    target.update(0.75)
    for name, weight in network.state_dict().items():
        torch.testing.assert_close(target.network.state_dict()[name], 0.75 * before[name] + 0.25 * weight)
    target.update(0.0)
    assert all(torch.equal(target.network.state_dict()[n], w) for n, w in network.state_dict().items())


def test_buffers_of_a_target_are_copied_from_its_network() -> None:
    actor = actor_of(spaces.Discrete(3), batch_norm=True)
    network = actor.make("q", Values())
    target = target_of(network)
    network(actor.view(torch.randn(50, 3) + 3))
    norms = [next(m for m in q.modules() if isinstance(m, BatchNorm)) for q in (network, target.network)]
    of_network, of_target = (norm.running_mean for norm in norms)
    assert of_network is not None
    assert of_target is not None
    assert not torch.equal(of_network, of_target)
    target.update(0.99)
    assert torch.equal(of_network, of_target)
    assert of_network is not of_target


def test_a_target_shares_the_normalisation_and_generator_of_its_network() -> None:
    actor = actor_of(spaces.Discrete(3), normalize_observations=True, noisy=True)
    network = actor.make("q", Values())
    target = make_target(network)
    assert isinstance(target.body, Body)
    assert target.body.normalization is actor.normalization
    noisy = next(m for m in target.modules() if hasattr(m, "weight_sigma"))
    assert noisy.generator is actor.generator
    assert not any(parameter.requires_grad for parameter in target.parameters())


@pytest.mark.parametrize("memory", [None, "lstm"])
def test_networks_of_observations_share_their_body_if_shared_body_is_set(memory: Any) -> None:
    for shared in (False, True):
        actor = actor_of(BOX, shared_body=shared, memory=memory)
        policy, value = actor.make("policy", Policy()), actor.make("value", StateValue())
        assert (policy.body is value.body) is shared
        critics = critics_of(actor)
        assert critics[0].body is not policy.body, "networks that take actions have bodies of their own"
        assert critics[0].body is not critics[1].body


def test_a_second_network_of_the_same_name_is_refused() -> None:
    actor = actor_of(BOX)
    actor.make("policy", Policy())
    message = "the actor already has a network named 'policy'; give each its own name"
    with pytest.raises(ValueError, match=message):
        actor.make("policy", Policy())
    with pytest.raises(ValueError, match=message):
        actor.make_ensemble("policy", StateValue(), 2)


def test_a_name_that_an_exported_network_could_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match="a network is named 'continue', a keyword of Python"):
        actor_of(BOX).make("continue", Policy())


def test_a_network_may_take_additional_inputs_that_are_not_actions() -> None:
    actor = actor_of(spaces.Discrete(3))
    network = actor.make("decoder", StateValue(), beside=4)
    view, one, other = actor.view(torch.randn(5, 3)), torch.randn(5, 4), torch.randn(5, 4)
    assert network(view, one).shape == (5, 1)
    assert not torch.equal(network(view, one), network(view, other))


@pytest.mark.parametrize("late_action", [0, 1])
def test_all_hidden_layers_of_a_network_of_pairs_see_both_observations(late_action: int) -> None:
    actor = actor_of(spaces.Discrete(3), normalize_observations=True, late_action=late_action, shared_body=True)
    assert actor.normalization is not None
    actor.normalization.add(torch.randn(10, 3) * 5)
    actor.normalization.use_newest()
    policy, network = actor.make("policy", Policy()), actor.make_of_pairs("pairs", StateValue())
    first, second = torch.randn(5, 3), torch.randn(5, 3)
    inputs = network.inputs(actor.view(first), actor.view(second).features(network.body))
    torch.testing.assert_close(inputs, torch.cat([actor.normalization(each) for each in (first, second)], dim=1))
    assert network.joint is not None
    assert [layer.in_features for layer in network.joint.layers] == [6]
    assert not {id(one) for one in policy.parameters()} & {id(one) for one in network.parameters()}
    with pytest.raises(ValueError, match="the actor already has a network named 'pairs'"):
        actor.make_of_pairs("pairs", StateValue())


def test_a_network_gets_discrete_actions_as_one_hot_vectors() -> None:
    space = spaces.Discrete(3, start=4)
    actor = actor_of(space)
    network = actor.make("q", ActionValue(), codec=make_codec(space, actor.device, scaled=False))
    assert network.joint is not None
    seen = []
    network.joint.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    network(actor.view(torch.randn(3, 3)), torch.tensor([[0], [2], [1]]))
    assert seen[0][:, 3:].tolist() == [[1, 0, 0], [0, 0, 1], [0, 1, 0]]


def test_the_state_dict_of_an_actor_holds_the_weights_of_every_network() -> None:
    actor = actor_of(BOX, shared_body=True, normalize_observations=True)
    actor.make("policy", Policy())
    actor.make("value", StateValue())
    critics_of(actor)
    names = actor.state_dict().keys()
    prefixes = ("networks.policy.head", "networks.value.head", "networks.critics.networks.1", "normalization")
    assert all(any(name.startswith(prefix) for name in names) for prefix in prefixes)
    parameters = list(actor.parameters())
    assert len({id(parameter) for parameter in parameters}) == len(parameters)


def test_noise_is_drawn_while_exploring_and_not_in_evaluation() -> None:
    actor = actor_of(spaces.Discrete(3), noisy=True)
    network = actor.make("q", Values())
    obs = torch.randn(5, 3)
    with actor.acting(noisy=False):
        one, two = (network(actor.view(obs)).values for _ in range(2))
    assert torch.equal(one, two)
    with actor.acting(noisy=True):
        three, four = (network(actor.view(obs)).values for _ in range(2))
    assert not torch.equal(three, four)
    assert network.training


def test_layers_of_heads_are_noisy_only_if_noisy_is_set(linear_class: type[torch.nn.Linear]) -> None:
    for noisy in (False, True):
        for dueling in (False, True):
            network = actor_of(spaces.Discrete(3), noisy=noisy, dueling=dueling).make("q", Values())
            plain = [m for m in network.modules() if type(m) is linear_class]
            assert bool(plain) is not noisy


@pytest.mark.parametrize("noisy", [False, True])
def test_a_dueling_head_adds_centred_advantages_to_the_state_value(noisy: bool) -> None:
    actor = actor_of(spaces.Discrete(3), dueling=True, noisy=noisy)
    network = actor.make("q", Values())
    streams: Any = network.head.numbers
    obs = torch.randn(5, 3)
    with actor.acting(noisy=False):
        features = actor.view(obs).features(network.body)
        value = streams.value(torch.relu(streams.value_hidden(features)))
        advantage = streams.advantage(torch.relu(streams.advantage_hidden(features)))
        values = network(actor.view(obs)).values
    torch.testing.assert_close(values, value + advantage - advantage.mean(1, keepdim=True))
    torch.testing.assert_close(values.mean(1, keepdim=True), value)


def test_dueling_size_sets_the_hidden_units_of_both_streams() -> None:
    actor = actor_of(spaces.Discrete(3), dueling=True, dueling_size=7)
    streams = actor.make("q", QuantileReturns(5)).head.numbers
    shapes = [streams.value_hidden, streams.advantage_hidden, streams.value, streams.advantage]
    features = streams.value_hidden.weight.shape[1]
    assert [tuple(layer.weight.shape) for layer in shapes] == [(7, features), (7, features), (5, 7), (15, 7)]


def test_dueling_heads_work_with_quantiles_and_atoms() -> None:
    actor = actor_of(spaces.Discrete(3), dueling=True)
    view = actor.view(torch.randn(5, 3))
    quantiles = actor.make("quantiles", QuantileReturns(7))
    streams: Any = quantiles.head.numbers
    features = view.features(quantiles.body)
    value = streams.value(torch.relu(streams.value_hidden(features)))
    torch.testing.assert_close(quantiles(view).quantiles.mean(1), value)
    atoms = actor.make("atoms", CategoricalReturns(5, -1.0, 1.0))
    assert atoms(view).values.shape == (5, 3)
    assert atoms(view).values.abs().max() <= 1


def test_spaces_alone_are_enough_to_create_an_actor() -> None:
    envs: Any = SimpleNamespace(observation_space=spaces.Box(-1, 1, (), np.float32), action_space=spaces.Discrete(2))
    actor = prl.OffPolicyActor.create_factory()("cpu", envs)
    assert actor.make("q", Values())(actor.view(torch.zeros(4, 1))).values.shape == (4, 2)
