"""Adam over one piece of memory does what torch's own Adam does."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from pytorchrl.agent.algorithms import flat_adam as flat_module
from pytorchrl.agent.algorithms.flat_adam import FlatAdam, FlatParameters
from tests.support.profiles import examples


def network() -> nn.Sequential:
    generator = torch.Generator().manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.normal_(generator=generator)
    return net


def backward(net: nn.Module, seed: int) -> None:
    inputs = torch.randn(8, 3, generator=torch.Generator().manual_seed(seed))
    (net(inputs).square().mean() * 10).backward()  # type: ignore[no-untyped-call]


def values(net: nn.Module) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in net.parameters()]


@pytest.mark.parametrize("max_grad_norm", [None, 0.5, 1e6])
def test_steps_are_those_of_torchs_adam_with_clipped_gradients(max_grad_norm: float | None) -> None:
    ours, theirs = network(), network()
    # Two groups share the norm, and each has a learning rate of its own.
    flat = FlatAdam([FlatParameters(ours[0].parameters()), FlatParameters(ours[2].parameters())], eps=1e-5)
    flat.learning_rates = [1e-2, 3e-3]
    adam = torch.optim.Adam(
        [{"params": theirs[0].parameters(), "lr": 1e-2}, {"params": theirs[2].parameters(), "lr": 3e-3}], eps=1e-5
    )
    for seed in range(20):
        flat.zero_grad()
        adam.zero_grad()
        backward(ours, seed)
        backward(theirs, seed)
        flat.step(max_grad_norm)
        if max_grad_norm is not None:
            nn.utils.clip_grad_norm_(theirs.parameters(), max_grad_norm)
        adam.step()
    for our, their in zip(values(ours), values(theirs), strict=True):
        torch.testing.assert_close(our, their, rtol=1e-5, atol=1e-6)


def test_laying_parameters_end_to_end_keeps_their_values_and_gradients_flow() -> None:
    before, net = values(network()), network()
    flat = FlatParameters(net.parameters())
    assert all(torch.equal(*pair) for pair in zip(before, values(net), strict=True))
    assert flat.vector.sum().item() == pytest.approx(sum(value.sum().item() for value in before), rel=1e-5)
    with torch.no_grad():
        flat.vector.zero_()
    assert not any(value.any() for value in values(net))


GROUPS = (0, 1), (2, 3), (4,)
SHAPES = (3, 2), (5,), (2, 2), (1,), ()


def three_groups() -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(1)
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in SHAPES]


def flat_adam(parameters: list[nn.Parameter]) -> FlatAdam:
    flat = FlatAdam([FlatParameters(parameters[position] for position in group) for group in GROUPS], eps=1e-5)
    flat.learning_rates = [1e-2, 3e-3, 0.1]
    return flat


@pytest.mark.parametrize("adam", [flat_module._adam_, flat_module._plain_adam_], ids=["private", "public"])
@settings(max_examples=examples(100), deadline=None)
@given(data=st.data(), max_grad_norm=st.sampled_from([None, 0.5, 1e6]))
def test_steps_are_those_of_torchs_adam_whichever_gradients_are_missing(
    adam: Callable[..., Any], data: st.DataObject, max_grad_norm: float | None
) -> None:
    ours, theirs = three_groups(), three_groups()
    flat = flat_adam(ours)
    groups = [[theirs[position] for position in group] for group in GROUPS]
    rates = zip(groups, flat.learning_rates, strict=True)
    torchs = torch.optim.Adam([{"params": group, "lr": rate} for group, rate in rates], eps=1e-5)
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 100)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flat_module, "_adam_", adam)
        for _ in range(data.draw(st.integers(1, 8))):
            missing = data.draw(
                st.sampled_from([set(), {0, 1}, {2, 3}, {4}, {0, 1, 2, 3, 4}]) | st.sets(st.integers(0, 4))
            )
            for position, (our, their) in enumerate(zip(ours, theirs, strict=True)):
                gradient = torch.randn(our.shape, generator=generator)
                our.grad, their.grad = (None, None) if position in missing else (gradient, gradient.clone())
            if data.draw(st.booleans()):
                saved, flat = copy.deepcopy(flat.state_dict()), flat_adam(ours)
                flat.load_state_dict(saved)
            flat.step(max_grad_norm)
            if max_grad_norm is not None:
                nn.utils.clip_grad_norm_(theirs, max_grad_norm)
            torchs.step()
            for our, their in zip(ours, theirs, strict=True):
                torch.testing.assert_close(our, their, rtol=1e-5, atol=1e-6)


def test_a_group_without_gradients_keeps_its_values_and_its_momentum() -> None:
    parameters = three_groups()
    flat = flat_adam(parameters)
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    flat.step(0.5)
    flat.zero_grad()
    parameters[0].grad = torch.ones_like(parameters[0])
    before = [parameter.detach().clone() for parameter in parameters]
    state = copy.deepcopy(flat.state_dict())
    flat.step(0.5)
    moved = [not torch.equal(*pair) for pair in zip(parameters, before, strict=True)]
    assert moved == [True, False, False, False, False]
    for name in ("means", "squares", "steps"):
        for group in (1, 2):
            assert torch.equal(flat.state_dict()[name][group], state[name][group])


def test_a_state_of_other_networks_is_refused() -> None:
    flat, other = flat_adam(three_groups()), flat_adam(three_groups())
    state = copy.deepcopy(flat.state_dict())
    state["steps"][0] = torch.zeros(3)
    with pytest.raises(ValueError, match="group 0 has 2 parameters"):
        other.load_state_dict(state)


def test_a_parameter_without_a_gradient_stays_where_it_is() -> None:
    net = network()
    optimizer = FlatAdam([FlatParameters(net.parameters())])
    optimizer.learning_rates = [0.1]
    net[0].requires_grad_(False)
    backward(net, 0)
    before = values(net)
    optimizer.step()
    moved = [not torch.equal(*pair) for pair in zip(before, values(net), strict=True)]
    assert moved == [False, False, True, True]


def test_a_saved_optimiser_goes_on_as_if_it_had_not_stopped() -> None:
    nets = network(), network()
    optimizers = [FlatAdam([FlatParameters(net.parameters())]) for net in nets]
    for optimizer in optimizers:
        optimizer.learning_rates = [0.01]
    backward(nets[0], 0)
    optimizers[0].step()
    optimizers[1].load_state_dict(copy.deepcopy(optimizers[0].state_dict()))
    nets[1].load_state_dict(nets[0].state_dict())
    for net, optimizer in zip(nets, optimizers, strict=True):
        optimizer.zero_grad()
        backward(net, 1)
        optimizer.step()
    assert all(torch.equal(*pair) for pair in zip(values(nets[0]), values(nets[1]), strict=True))


def test_a_copy_trains_its_own_parameters() -> None:
    net = network()
    optimizer = FlatAdam([FlatParameters(net.parameters())])
    optimizer.learning_rates = [0.01]
    other_net, other = copy.deepcopy((net, optimizer))
    before = values(net)
    backward(other_net, 0)
    other.step()
    assert all(torch.equal(*pair) for pair in zip(before, values(net), strict=True))
    assert not any(torch.equal(*pair) for pair in zip(before, values(other_net), strict=True))


def test_parameters_that_were_moved_are_refused_rather_than_not_trained() -> None:
    net = network()
    optimizer = FlatAdam([FlatParameters(net.parameters())])
    net.double()
    backward_in_double = net(torch.randn(2, 3, dtype=torch.float64)).sum()
    backward_in_double.backward()
    with pytest.raises(RuntimeError, match="moved after the algorithm was made"):
        optimizer.step()
