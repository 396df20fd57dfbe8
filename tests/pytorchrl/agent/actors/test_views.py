"""Views compute the features of each body once and hold the recurrent states to store."""

from typing import Any

import pytest
import torch
from gymnasium import spaces

import pytorchrl as prl
from pytorchrl.agent.actors.bodies import RecurrentBody
from pytorchrl.agent.actors.codec import make_codec
from pytorchrl.agent.actors.heads import ActionValue, Policy, SquashedGaussianPolicy, StateValue, Values
from pytorchrl.agent.actors.unrolling import Unrolling
from pytorchrl.agent.actors.view import (
    ActingView,
    JoinedViews,
    NextSequenceSteps,
    Observations,
    Repeated,
    SequenceSteps,
)
from storages.transition import OBS, OBS2
from tests.support.by_hand import envs_with
from tests.support.toys import continuous

BOX = continuous(size=2)


def actor_of(action_space: Any, **hyper_parameters: Any) -> prl.Actor:
    torch.manual_seed(0)
    return prl.OffPolicyActor.create_factory(hidden_sizes=(8,), **hyper_parameters)("cpu", envs_with(action_space))


def test_features_are_computed_once_without_and_once_with_gradients() -> None:
    actor = actor_of(spaces.Discrete(3))
    network = actor.make("q", Values())
    calls = []
    network.body.register_forward_hook(lambda *_: calls.append(torch.is_grad_enabled()))
    view = actor.view(torch.randn(5, 3))
    for _ in range(2):
        with torch.no_grad():
            assert not network(view).values.requires_grad
        assert network(view).values.requires_grad
    assert calls == [False, True]


def test_each_body_has_features_of_its_own() -> None:
    actor = actor_of(spaces.Discrete(3))
    one, other = actor.make("one", Values()), actor.make("other", Values())
    view = actor.view(torch.randn(5, 3))
    assert not torch.equal(view.features(one.body), view.features(other.body))


@pytest.mark.parametrize("memory", ["gru", "lstm"])
def test_only_recurrent_states_of_acting_networks_are_stored(memory: Any) -> None:
    actor = actor_of(BOX, memory=memory, memory_size=4)
    codec = make_codec(BOX, actor.device, scaled=True)
    size = 4 if memory == "gru" else 8
    first = actor.make("first", SquashedGaussianPolicy(), acts=True)
    critics = actor.make_ensemble("critics", ActionValue(), 2, codec=codec)
    second = actor.make("second", StateValue(), acts=True)
    initial = actor.initial_memory(3)
    assert initial is not None
    assert initial.shape == (3, 2 * size)
    assert not initial.any()

    rhs, obs, done = torch.randn(3, 2 * size), torch.randn(3, 3), torch.zeros(3, 1)
    view = actor.view(obs, rhs, done)
    assert isinstance(view, ActingView)
    critics(view, torch.zeros(3, 2))
    after = view.rhs_after()
    assert (after != rhs).all(), "states of networks that were not evaluated advance, too"
    second(view)
    first(view)
    assert torch.equal(view.rhs_after(), after)
    for network, where in ((first, slice(0, size)), (second, slice(size, None))):
        assert isinstance(network.body, RecurrentBody)
        features, state = network.body(obs, rhs[:, where], done)
        torch.testing.assert_close(view.rhs_after()[:, where], state)
        torch.testing.assert_close(view.features(network.body), features)


@pytest.mark.parametrize("memory", ["gru", "lstm"])
def test_a_recurrent_state_advances_once_a_step_however_often_it_is_evaluated(memory: Any) -> None:
    actor = actor_of(spaces.Discrete(3), memory=memory, memory_size=4)
    network = actor.make("q", Values(), acts=True)
    rhs = actor.initial_memory(2)
    view = actor.view(torch.randn(2, 3), rhs, torch.zeros(2, 1))
    assert isinstance(view, ActingView)
    first = network(view).values
    state = view.rhs_after()
    assert torch.equal(network(view).values, first)
    assert torch.equal(view.rhs_after(), state)
    assert rhs is not None
    assert not rhs.any(), "the state before the step is not modified"


@pytest.mark.parametrize("memory", [None, "gru"])
def test_a_repeated_view_evaluates_several_actions_for_each_row(memory: Any) -> None:
    actor = actor_of(BOX, memory=memory, memory_size=4)
    critic = actor.make("critic", ActionValue(), codec=make_codec(BOX, actor.device, scaled=True), acts=True)
    obs, rhs, done = torch.randn(3, 3), torch.randn(3, 4), torch.zeros(3, 1)
    action = torch.randn(6, 2)
    values = critic(Repeated(actor.view(obs, rhs, done), 2), action).mean
    assert values.shape == (6, 1)
    for row in range(3):
        for position in (0, 1):
            view = actor.view(obs[row : row + 1], rhs[row : row + 1], done[row : row + 1])
            number = 2 * row + position
            expected = critic(view, action[number : number + 1]).mean
            torch.testing.assert_close(values[number : number + 1], expected)


def test_gradients_of_repeated_rows_add_up() -> None:
    actor = actor_of(spaces.Discrete(3))
    network = actor.make("policy", Policy())
    obs = torch.randn(4, 3)
    once, thrice = (
        torch.autograd.grad(network(view).log_probs.square().sum(), list(network.parameters()))
        for view in (Observations(obs), Repeated(Observations(obs), 3))
    )
    for one, three in zip(once, thrice, strict=True):
        torch.testing.assert_close(three, 3 * one)


def test_a_part_of_dict_observations_has_the_rows_of_the_features() -> None:
    one, other = torch.arange(12.0).view(3, 2, 2), torch.arange(12.0, 24.0).view(3, 2, 2)
    rows, further = one.flatten(0, 1), other.flatten(0, 1)
    unrolling = Unrolling({OBS: {"a": one}, OBS2: {"a": other}})
    assert torch.equal(SequenceSteps(unrolling).part("a"), rows)
    assert torch.equal(NextSequenceSteps(unrolling).part("a"), further)
    view = Observations({"a": rows})
    assert torch.equal(view.part("a"), rows)
    assert torch.equal(ActingView({"a": rows}, rows, rows, []).part("a"), rows)
    assert torch.equal(Repeated(view, 2).part("a")[:4], rows[[0, 0, 1, 1]])
    assert torch.equal(JoinedViews(view, Observations({"a": further})).part("a"), torch.cat([rows, further]))
