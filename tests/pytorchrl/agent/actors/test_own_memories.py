"""Memories of several layers, and of users' cells and layers: unrolled, reset, stored, frozen, hooked, or refused."""

import copy
import functools
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import pytorchrl as prl
from pytorchrl.agent.actors.memory import Memory
from pytorchrl.agent.actors.own_memory import OwnMemory
from pytorchrl.agent.actors.stacked_memory import StackedMemory, make_memory
from tests.support.by_hand import envs_with, perturb
from tests.support.memories import MEMORIES, LeakyIntegrator, LinearAfterGRU, MinimalGatedUnit, WithTrace
from tests.support.toys import continuous

STEPS, ROWS, INPUTS = 9, 2, 3


def made(memory: Any, memory_layers: int = 1, size: int = 4) -> Any:
    torch.manual_seed(0)
    module = make_memory(memory, memory_layers, INPUTS, size)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn(parameter.shape) / 3)
    return module


def stepped(memory: Any, features: Tensor, state: Tensor, done: Tensor) -> tuple[Tensor, Tensor]:
    shown, states = [], []
    for one, begins in zip(features, done, strict=True):
        output, state = memory(one, state, begins)
        shown.append(output)
        states.append(state)
    return torch.stack(shown), torch.stack(states)


@pytest.mark.parametrize("states", [True, False])
@pytest.mark.parametrize("ends", [0.0, 0.2, 1.0])
@pytest.mark.parametrize("name", MEMORIES)
def test_an_unrolled_sequence_equals_single_steps_with_equal_gradients(name: str, ends: float, states: bool) -> None:
    memory = made(**MEMORIES[name])
    features = torch.randn(STEPS, ROWS, INPUTS, requires_grad=True)
    begin = torch.randn(ROWS, memory.state_size, requires_grad=True)
    before, done = begin.detach().clone(), (torch.rand(STEPS, ROWS, 1) < ends).float()
    inputs = [features, begin, *memory.parameters()]
    shown, after = stepped(memory, features, begin, done)
    assert shown.shape == (STEPS, ROWS, memory.output_size)
    weights = torch.randn(shown.shape)
    expected = torch.autograd.grad((shown * weights).sum(), inputs)
    unrolled, reached = memory.unroll(features, begin, done, states=states)
    torch.testing.assert_close(unrolled, shown)
    torch.testing.assert_close(reached[-1], after[-1])
    if states:
        torch.testing.assert_close(reached, after)
    found = torch.autograd.grad((unrolled * weights).sum(), inputs)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)
    assert torch.equal(begin, before)


@pytest.mark.parametrize(("kind", "reference"), [("lstm", nn.LSTM), ("gru", nn.GRU)])
@pytest.mark.parametrize("layers", [2, 3])
def test_stacked_layers_equal_torchs_layers_of_the_same_weights(kind: Any, reference: Any, layers: int) -> None:
    memory = made(kind, layers)
    torchs = reference(INPUTS, 4, num_layers=layers)
    for number, layer in enumerate(memory.layers):
        for name, parameter in layer.cells.named_parameters():
            torchs.get_parameter(name.replace("_l0", f"_l{number}")).data.copy_(parameter.data)
    features = torch.randn(STEPS, ROWS, INPUTS)
    begin, done = torch.zeros(ROWS, memory.state_size), torch.zeros(STEPS, ROWS, 1)
    expected, state = torchs(features)
    shown, reached = memory.unroll(features, begin, done)
    torch.testing.assert_close(shown, expected)
    # For each layer, the hidden state, and of an LSTM the cell state.
    parts = [part for of_layer in zip(*(state if kind == "lstm" else [state]), strict=True) for part in of_layer]
    torch.testing.assert_close(reached[-1], torch.cat(parts, dim=1))


@pytest.mark.parametrize("name", ["gru", "lstm"])
def test_one_layer_by_name_is_the_memory_without_a_stack(name: Any) -> None:
    memory = made(name)
    assert type(memory) is Memory
    assert list(memory.state_dict()) == [
        f"cells.{part}_l0" for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    ]


@pytest.mark.parametrize("name", MEMORIES)
def test_packed_episodes_equal_padded_ones(name: str) -> None:
    envs = envs_with(continuous())
    actor = prl.OffPolicyActor.create_factory(hidden_sizes=(5,), memory_size=4, **MEMORIES[name])("cpu", envs)
    body: Any = actor.make("value", prl.heads.StateValue()).body
    obs, done = torch.randn(4, 2, 3), torch.zeros(4, 2, 1)
    done[0] = 1
    expected, states = body.unroll(obs, body.initial_state(2), done)
    # The second episode has one step less.
    rows = [(step, row) for step in range(4) for row in range(2) if (step, row) != (3, 1)]
    steps, columns = zip(*rows, strict=True)
    where = torch.tensor(steps), torch.tensor(columns)
    found, packed = body.unroll_packed(obs[where], body.initial_state(2), done[where], [2, 2, 2, 1])
    torch.testing.assert_close(found, expected[where])
    torch.testing.assert_close(packed, states[where])


@pytest.mark.parametrize("name", MEMORIES)
def test_states_of_acting_networks_are_stored_and_reset_where_episodes_begin(name: str) -> None:
    envs = envs_with(continuous())
    actor = prl.OnPolicyActor.create_factory(hidden_sizes=(5,), memory_size=4, **MEMORIES[name])("cpu", envs)
    algorithm = prl.PPO.create_factory()("cpu", actor, envs)
    perturb(actor, 0, 0.3)
    body: Any = actor.networks["policy"].body
    states = actor.initial_memory(3)
    assert states is not None
    assert states.shape == (3, 2 * body.state_size)
    assert not states.any()
    obs, exploration = torch.randn(3, 3), prl.Exploration(algorithm.codec, 3, "cpu", seed=0, deterministic=True)
    reached = torch.randn(states.shape)
    begins = torch.tensor([[0.0], [1.0], [0.0]])
    step = algorithm.acting_step(obs, reached, begins, exploration)
    anew = algorithm.acting_step(obs, states, torch.zeros(3, 1), exploration)
    assert step.rhs is not None
    assert anew.rhs is not None
    torch.testing.assert_close(step.rhs[1], anew.rhs[1])
    torch.testing.assert_close(step.action[1], anew.action[1])
    assert not torch.allclose(step.rhs[0], anew.rhs[0])


def trained(algorithm: Any, actor: Any, storage: Any) -> prl.Scheme:
    return prl.Scheme(algorithm, actor, storage, prl.VecEnv.create_factory("Pendulum-v1", num_envs=2), seed=0)


def learn(scheme: prl.Scheme, steps: int = 40) -> None:
    scheme.set_progress(0, steps)
    while scheme.steps < steps:
        _, due = scheme.collect(steps)
        for _ in range(due):
            list(scheme.update())


def sac(**actor: Any) -> prl.Scheme:
    return trained(
        prl.SAC.create_factory(start_steps=20, update_every=10, mini_batch_size=4, test_every=0),
        prl.OffPolicyActor.create_factory(hidden_sizes=(6,), memory_size=4, **actor),
        prl.ReplayBuffer.create_factory(size=60, sequences=prl.Sequences(4, burn_in=2)),
    )


def ppo(**actor: Any) -> prl.Scheme:
    return trained(
        prl.PPO.create_factory(num_epochs=1, num_mini_batch=2, test_every=0),
        prl.OnPolicyActor.create_factory(hidden_sizes=(6,), memory_size=4, **actor),
        prl.GAEBuffer.create_factory(size=10),
    )


@pytest.mark.parametrize("make", [sac, ppo])
@pytest.mark.parametrize("name", MEMORIES)
def test_every_parameter_learns_and_frozen_ones_stay_to_the_bit(name: str, make: Any) -> None:
    for are_frozen in (False, True):
        with make(**MEMORIES[name]) as scheme:
            within = {
                where: parameter
                for where, parameter in scheme.actor.named_parameters()
                if ".memory." in where and "target" not in where
            }
            for parameter in within.values():
                parameter.requires_grad_(not are_frozen)
            before = copy.deepcopy(dict(scheme.actor.named_parameters()))
            learn(scheme)
            moved = {w for w, p in scheme.actor.named_parameters() if not torch.equal(p, before[w])}
        assert moved & within.keys() == (set() if are_frozen else within.keys())
        assert any(".body.body." in where for where in moved), "layers before the memory learn"


@pytest.mark.parametrize("memory", ["gru", "lstm"])
def test_layers_before_a_frozen_memory_learn(memory: str) -> None:
    with sac(memory=memory) as scheme:
        for where, parameter in scheme.actor.named_parameters():
            if ".memory." in where:
                parameter.requires_grad_(False)
        before = copy.deepcopy(dict(scheme.actor.named_parameters()))
        learn(scheme)
        still = {
            where
            for where, parameter in scheme.actor.named_parameters()
            if ".body.body." in where and torch.equal(parameter, before[where])
        }
    assert still == set()


@pytest.mark.parametrize("make", [sac, ppo])
@pytest.mark.parametrize("memory", [MinimalGatedUnit, LinearAfterGRU])
def test_hooks_on_a_users_module_are_called_while_it_acts_and_in_updates(memory: Any, make: Any) -> None:
    with make(memory=memory) as scheme:
        called: dict[str, set[bool]] = {}

        def note(name: str, *_: Any) -> None:
            called.setdefault(name, set()).add(torch.is_inference_mode_enabled())

        hooked = {name for name, module in scheme.actor.named_modules() if type(module) is memory}
        for name in hooked:
            scheme.actor.get_submodule(name).register_forward_hook(functools.partial(note, name))
        learn(scheme)
        assert called.keys() == hooked
        acting = [name for name in hooked if name.startswith(("networks.policy", "networks.value"))]
        assert acting
        assert all(called[name] == {False, True} for name in acting)


def test_a_module_of_users_is_in_evaluation_mode_only_while_it_acts() -> None:
    modes: set[tuple[bool, bool]] = set()

    class Watched(MinimalGatedUnit):
        def forward(self, features: Tensor, state: Tensor | None = None) -> Tensor:
            modes.add((torch.is_inference_mode_enabled(), self.training))
            return super().forward(features, state)

    with sac(memory=Watched) as scheme:
        modes.clear()
        learn(scheme)
    assert {(True, False), (False, True)} <= modes
    assert (True, True) not in modes


def test_a_factory_with_a_memory_of_ones_own_goes_to_other_processes() -> None:
    for given in MEMORIES.values():
        factory = prl.OffPolicyActor.create_factory(**given)
        copied = pickle.loads(pickle.dumps(factory))
        assert copied.config == factory.config
        copied("cpu", envs_with(continuous())).make("value", prl.heads.StateValue())


def test_a_single_network_has_a_memory_of_its_own() -> None:
    own = {"critics": {"memory": MinimalGatedUnit, "memory_size": 7}, "policy": {"memory_layers": 2}}
    with sac(memory="gru", per_network=own) as scheme:
        critics, policy = scheme.actor.networks["critics"], scheme.actor.networks["policy"]
        assert [type(critic.body.memory.cells) for critic in critics] == [MinimalGatedUnit] * 2  # type: ignore[attr-defined]
        assert critics[0].body.output_size == 7  # type: ignore[index]
        assert isinstance(policy.body.memory, StackedMemory)  # type: ignore[union-attr]
        states = scheme.actor.initial_memory(1)
        assert states is not None
        assert states.shape == (1, 2 * 4)
        learn(scheme)


# Refused


class Returning(nn.Module):
    """Returns what a function makes of features and state."""

    def __init__(self, make: Any) -> None:
        super().__init__()
        self.make = make

    def forward(self, features: Tensor, state: Any = None) -> Any:
        return self.make(features, state)


def returning(make: Any) -> Any:
    return lambda input_size, size: Returning(make)


class Ahead(nn.Module):
    """Its outputs depend on the next step."""

    def __init__(self, input_size: int, size: int) -> None:
        super().__init__()

    def forward(self, features: Tensor, state: Any = None) -> Any:
        return features.roll(-1, dims=0), features[-1:]


AS_A_CELL = r"As a cell, for features \(3, 5\)"


@pytest.mark.parametrize(
    ("memory", "error", "message"),
    [
        (
            nn.Linear,
            ValueError,
            r"memory Linear must be .*it raised TypeError: Linear.forward\(\) takes",
        ),
        (returning(lambda x, s: {"state": x}), ValueError, f"{AS_A_CELL} it returned a dict"),
        (returning(lambda x, s: x[:1]), ValueError, rf"{AS_A_CELL} it returned a Tensor \(1, 5\)"),
        (returning(lambda x, s: x.double()), ValueError, r"it returned a Tensor \(3, 5\) of torch.float64"),
        (returning(lambda x, s: ()), ValueError, f"{AS_A_CELL} it returned a tuple of nothing"),
        (returning(lambda x, s: (x, None)), ValueError, r"it returned a tuple of a Tensor \(3, 5\), a NoneType"),
        (
            returning(lambda x, s: x if s is None else torch.cat([x, s], dim=1)),
            ValueError,
            r"it returned the state a Tensor \(3, 10\) after the state a Tensor \(3, 5\)",
        ),
        (returning(lambda x, s: x * x.nothing), ValueError, "it raised AttributeError: 'Tensor' object has no"),
        (lambda input_size, size: 3, TypeError, r"memory <lambda> must make a torch.nn.Module .* got a int"),
        (functools.partial(nn.GRU, batch_first=True), ValueError, r"memory GRU must be .*a Tensor \(1, 3, 4\)"),
        (functools.partial(nn.GRU, bidirectional=True), ValueError, "GRU computes something else for single steps"),
        (Ahead, ValueError, "memory Ahead computes something else for single steps than for a sequence of them"),
    ],
)
def test_a_module_that_is_no_recurrent_layer_is_refused_with_what_it_returned(
    memory: Any, error: type[Exception], message: str
) -> None:
    for layers in (1, 2):
        with pytest.raises(error, match=message):
            make_memory(memory, layers, 5, 4)


@pytest.mark.parametrize("declared", ["4", 0, (4, "4")])
def test_a_declared_size_that_is_none_is_refused(declared: Any) -> None:
    class Declaring(LeakyIntegrator):
        def __init__(self, input_size: int, size: int) -> None:
            super().__init__(input_size, size)
            self.hidden_size = declared

    with pytest.raises(ValueError, match=r"its hidden_size is .*, and neither a size nor a tuple of sizes"):
        OwnMemory(Declaring, 3, 4)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"memory": "rnn"},
            "memory must be one of 'gru', 'lstm', or must be callable, or must be a sequence, got 'rnn'",
        ),
        ({"memory": ("gru", "rnn")}, "memory .*holds a value that must be one of 'gru', 'lstm'"),
        ({"memory": ()}, r"memory lists the layers, \(\), which are none; None is no memory"),
        ({"memory": ["gru", "lstm"], "memory_layers": 2}, r"memory lists the layers, .*, and memory_layers=2; leave"),
        ({"memory": "gru", "memory_layers": 0}, "memory_layers must be at least 1, got 0"),
        ({"memory": nn.GRUCell(3, 4)}, "memory is an instance of GRUCell; .* pass the class, or a function of sizes"),
        ({"memory": ("gru", nn.GRUCell(3, 4))}, "memory is an instance of GRUCell"),
        ({"memory": lambda space: WithTrace(3, 4)}, r"memory <lambda> must make a module of two numbers, .* \(space\)"),
        (
            {"memory": "gru", "per_network": {"value": {"memory": None}}},
            r"per_network\['value'\]: memory=None, but all networks have a memory or none",
        ),
        (
            {"per_network": {"value": {"memory_size": 3}}},
            r"per_network\['value'\]: memory_size=3, but all networks have a memory or none",
        ),
        (
            {"memory": "gru", "memory_layers": 2, "per_network": {"value": {"memory": ("gru",)}}},
            r"per_network\['value'\]: memory lists the layers, .*, and memory_layers=2",
        ),
        ({"memory": "gru", "per_network": {"value": {"memory": "rnn"}}}, r"per_network\['value'\]: memory must be one"),
    ],
)
def test_a_memory_that_none_can_be_is_refused_when_the_factory_is_made(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"OnPolicyActor: {message}"):
        prl.OnPolicyActor.create_factory(**given)


class LearntBeginning(nn.Module):
    """Begins with a parameter where it is given no state."""

    def __init__(self, inputs: int, size: int) -> None:
        super().__init__()
        self.layer, self.first = nn.GRU(inputs, size), nn.Parameter(torch.ones(1, 1, size))

    def forward(self, features: Tensor, state: Any = None) -> Any:
        return self.layer(features, self.first.repeat(1, features.shape[1], 1) if state is None else state)


class Keeping(nn.Module):
    """Goes on with the state of its last call where it is given none."""

    def __init__(self, inputs: int, size: int) -> None:
        super().__init__()
        self.layer, self.last = nn.GRU(inputs, size), None

    def forward(self, features: Tensor, state: Any = None) -> Any:
        kept = self.last if self.last is not None and self.last.shape[1] == features.shape[1] else None
        output, self.last = self.layer(features, kept if state is None else state)
        return output, self.last


@pytest.mark.parametrize(
    ("memory", "reason"), [(LearntBeginning, "begins with another state than zeros"), (Keeping, "keeps a state")]
)
def test_a_memory_that_begins_with_another_state_than_zeros_is_refused(memory: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=f"memory {memory.__name__} {reason}"):
        OwnMemory(memory, 3, 4)


def test_a_layer_that_draws_random_numbers_is_no_error() -> None:
    class Noisy(LinearAfterGRU):
        def forward(self, features: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
            outputs, state = super().forward(features, state)
            return outputs + torch.randn_like(outputs), state

    assert OwnMemory(Noisy, 3, 4).output_size == 5


def test_lazy_layers_are_initialised_and_the_trial_changes_no_mode() -> None:
    class Lazy(MinimalGatedUnit):
        def __init__(self, input_size: int, size: int) -> None:
            super().__init__(input_size, size)
            self.gate = nn.LazyLinear(size)  # type: ignore[assignment]
            self.fixed = nn.Dropout().eval()

    cells: Any = OwnMemory(Lazy, 3, 4).cells
    assert cells.gate.weight.shape == (4, 7)
    assert cells.training
    assert not cells.fixed.training


def test_refusals_name_the_kind_of_memory() -> None:
    storage = prl.ReplayBuffer.create_factory(size=9)
    for memory, name in ((MinimalGatedUnit, "MinimalGatedUnit"), (("gru", WithTrace), "gru, WithTrace")):
        with pytest.raises(prl.CompositionError, match=rf"OffPolicyActor has a memory \({name}\), which learns from"):
            trained(prl.SAC.create_factory(), prl.OffPolicyActor.create_factory(memory=memory), storage)


def test_a_body_without_any_parameter_keeps_a_state() -> None:
    envs = envs_with(continuous())
    actor = prl.OffPolicyActor.create_factory(hidden_sizes=(), memory=LeakyIntegrator)("cpu", envs)
    network: Any = actor.make("value", prl.heads.StateValue(), acts=True)
    assert not list(network.body.parameters())
    obs = torch.randn(2, 3)
    view: Any = actor.view(obs, actor.initial_memory(2), torch.ones(2, 1))
    network(view)
    assert torch.equal(view.rhs_after(), 0.1 * obs)
