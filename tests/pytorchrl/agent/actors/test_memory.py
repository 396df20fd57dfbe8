"""Recurrent memory: one step follows the textbook, and an unrolled sequence equals single steps."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import pytorchrl as prl
from pytorchrl.agent.actors.heads import Policy, StateValue
from pytorchrl.agent.actors.layers.mlp import MLP
from pytorchrl.agent.actors.layers.sequence_model import SequenceModel
from pytorchrl.agent.actors.memory import Memory, MemoryKind
from pytorchrl.agent.actors.view import ActingView
from tests.support.by_hand import envs_with

KINDS: tuple[MemoryKind, ...] = ("gru", "lstm")
ENVS = envs_with(spaces.Discrete(3))


def make_memory(kind: MemoryKind, inputs: int = 3, size: int = 4) -> Memory:
    torch.manual_seed(0)
    memory = Memory(kind, inputs, size)
    with torch.no_grad():
        for parameter in memory.parameters():
            parameter.add_(torch.randn(parameter.shape) / 3)
    return memory


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def by_hand(memory: Memory, features: Any, state: Any) -> Any:
    """Compute one step of a GRU or an LSTM by the equations of torch's documentation."""
    w_in, w_state, b_in, b_state = (parameter.detach().numpy() for parameter in memory.cells.parameters())
    size = memory.output_size
    hidden = state[:, :size]
    gates_in, gates_state = features @ w_in.T + b_in, hidden @ w_state.T + b_state
    if memory.state_size == size:
        reset_gate, update_gate = (sigmoid((gates_in + gates_state)[:, i * size : (i + 1) * size]) for i in (0, 1))
        new = np.tanh(gates_in[:, 2 * size :] + reset_gate * gates_state[:, 2 * size :])
        return (1 - update_gate) * new + update_gate * hidden
    input_gate, forget_gate, new, output_gate = np.split(gates_in + gates_state, 4, axis=1)
    cell = sigmoid(forget_gate) * state[:, size:] + sigmoid(input_gate) * np.tanh(new)
    return np.concatenate([sigmoid(output_gate) * np.tanh(cell), cell], axis=1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_follows_the_textbook_and_an_episode_begins_with_a_zero_state(kind: MemoryKind) -> None:
    memory = make_memory(kind)
    features, state = torch.randn(5, 3), torch.randn(5, memory.state_size)
    done = torch.tensor([[0.0], [1], [0], [1], [0]])
    before = state.clone()
    hidden, after = memory(features, state, done)
    expected = by_hand(memory, features.numpy(), (state * (1 - done)).numpy())
    np.testing.assert_allclose(after.detach(), expected, atol=1e-5)
    np.testing.assert_allclose(hidden.detach(), expected[:, :4], atol=1e-5)
    assert torch.equal(state, before)


@pytest.mark.parametrize("states", [True, False])
@pytest.mark.parametrize("ends", [0.0, 0.2, 1.0])
@pytest.mark.parametrize("kind", KINDS)
def test_an_unrolled_sequence_equals_single_steps_with_equal_gradients(
    kind: MemoryKind, ends: float, states: bool
) -> None:
    memory = make_memory(kind)
    features, begin = torch.randn(9, 2, 3, requires_grad=True), torch.randn(2, memory.state_size)
    done = (torch.rand(9, 2, 1) < ends).float()
    state, steps, after = begin, [], []
    for t in range(9):
        hidden, state = memory(features[t], state, done[t])
        steps.append(hidden)
        after.append(state)
    weights = torch.randn(9, 2, 4)
    expected = torch.autograd.grad((torch.stack(steps) * weights).sum(), [features, *memory.parameters()])
    hidden, all_states = memory.unroll(features, begin, done, states=states)
    torch.testing.assert_close(hidden, torch.stack(steps))
    torch.testing.assert_close(all_states[-1], after[-1])
    if states:
        torch.testing.assert_close(all_states, torch.stack(after))
    for one, two in zip(
        torch.autograd.grad((hidden * weights).sum(), [features, *memory.parameters()]), expected, strict=True
    ):
        torch.testing.assert_close(one, two, atol=1e-4, rtol=1e-4)


def test_sequences_that_are_not_time_first_are_refused() -> None:
    memory = make_memory("gru")
    with pytest.raises(AssertionError, match=r"sequences are \(T, B, features\), got \(5, 3\)"):
        memory.unroll(torch.zeros(5, 3), torch.zeros(5, 4), torch.zeros(5, 1))
    with pytest.raises(AssertionError, match=r"done must be \(T, B, 1\), got \(5, 2\)"):
        memory.unroll(torch.zeros(5, 2, 3), torch.zeros(2, 4), torch.zeros(5, 2))


@pytest.mark.parametrize("shared_body", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_policy_and_value_function_have_separate_states_unless_they_share_a_body(
    kind: MemoryKind, shared_body: bool
) -> None:
    envs = prl.VecEnv.create_factory("CartPole-v1")()
    torch.manual_seed(0)
    actor = prl.OnPolicyActor.create_factory(hidden_sizes=(5,), shared_body=shared_body, memory=kind, memory_size=4)(
        "cpu", envs
    )
    policy, value = actor.make("policy", Policy(), acts=True), actor.make("value", StateValue(), acts=True)
    rhs = actor.initial_memory(3)
    assert rhs is not None
    assert rhs.shape == (3, 4 * (2 if kind == "lstm" else 1) * (1 if shared_body else 2))
    rhs = torch.randn(rhs.shape)
    obs, done = torch.randn(3, 4), torch.zeros(3, 1)
    view = actor.view(obs, rhs, done)
    assert isinstance(view, ActingView)
    policy(view)
    after_policy = view.rhs_after()
    torch.testing.assert_close(actor.value(obs, rhs, done), value(view))
    after = view.rhs_after()
    assert after.shape == rhs.shape
    assert (after != rhs).all()
    assert torch.equal(after_policy, after), "the state of the value function advances before it is evaluated"
    envs.close()


def test_an_actor_without_memory_has_no_initial_state_and_unknown_kinds_are_refused() -> None:
    envs = prl.VecEnv.create_factory("CartPole-v1")()
    for actor in (prl.OnPolicyActor.create_factory(), prl.OffPolicyActor.create_factory()):
        assert actor("cpu", envs).initial_memory(2) is None
    envs.close()
    with pytest.raises(ValueError, match=r"memory must be one of 'gru', 'lstm', .* got 'rnn'"):
        prl.OnPolicyActor.create_factory(memory="rnn")


def test_an_algorithm_keeps_states_of_its_own_beside_those_of_networks() -> None:
    actor = prl.OffPolicyActor.create_factory(hidden_sizes=(8,), memory="gru", memory_size=4)("cpu", ENVS)
    before, policy, after = actor.reserve_state(3), actor.make("policy", Policy(), acts=True), actor.reserve_state(2)
    states = actor.initial_memory(5)
    assert states is not None
    assert states.shape == (5, 9)
    states += 1
    done = torch.tensor([[1.0], [0], [0], [0], [0]])
    view = actor.view(torch.ones(5, *ENVS.observation_space.shape), states, done)
    assert isinstance(view, ActingView)
    assert torch.equal(view.state(before), (1 - done).expand(5, 3))
    policy(view)
    view.set_state_after(before, torch.full((5, 3), 2.0))
    found = view.rhs_after()
    assert (found[:, before] == 2).all()
    # Not set, it stays.
    assert (found[:, after] == 1).all()
    assert (found[:, policy.body.stored_at] != 1).all()
    with pytest.raises(ValueError, match="OffPolicyActor: without a memory no recurrent states are stored"):
        prl.OffPolicyActor.create_factory()("cpu", ENVS).reserve_state(3)


def test_a_sequence_model_is_a_normalised_gated_recurrent_unit() -> None:
    torch.manual_seed(0)
    model = SequenceModel(MLP(5, (3,), "tanh"), 2)
    state, choices, action = torch.randn(4, 2), torch.randn(4, 3), torch.randn(4, 2)
    with torch.no_grad():
        found = model(state, choices, action).numpy()
        inputs = model.inputs(torch.cat([choices, action], dim=1)).numpy()
    weight, bias = model.gates.weight.detach().numpy(), model.gates.bias.detach().numpy()
    numbers = np.concatenate([inputs, state.numpy()], axis=1) @ weight.T + bias
    mean, deviation = numbers.mean(1, keepdims=True), numbers.std(1, keepdims=True)
    reset, candidate, update = np.split((numbers - mean) / np.sqrt(deviation**2 + 1e-5), 3, axis=1)
    candidate, update = np.tanh(sigmoid(reset) * candidate), sigmoid(update - 1)
    np.testing.assert_allclose(found, update * candidate + (1 - update) * state.numpy(), rtol=1e-4, atol=1e-5)
