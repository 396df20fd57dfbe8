"""Every optimiser restores exact states, handles missing gradients and raises errors with a remedy."""

import copy
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pytorchrl.agent.optimizers import (
    LBFGS,
    SGD,
    Adam,
    AdamW,
    ElementwiseOptimizer,
    FlatParameters,
    Optimizer,
    RMSprop,
    Stepper,
    TorchOptimizer,
    flat_adam,
)

FLAT: list[Optimizer] = [Adam(), AdamW(), RMSprop(momentum=0.9), RMSprop(eps_inside_root=False), SGD(momentum=0.9)]
STEPPING = [*FLAT, TorchOptimizer("Adagrad"), TorchOptimizer(torch.optim.AdamW, {"amsgrad": True})]
ALL = [*STEPPING, LBFGS(max_iter=3, line_search="strong_wolfe"), LBFGS(max_iter=3)]


def network() -> nn.Sequential:
    net = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.normal_(generator=generator)
    return net


def loss_of(net: nn.Module, seed: int) -> Tensor:
    loss: Tensor = net(torch.randn(8, 3, generator=torch.Generator().manual_seed(seed))).square().mean() * 10
    return loss


def stepper_of(setting: Optimizer, net: nn.Module) -> Stepper:
    stepper = setting.make(FlatParameters(net.parameters()))
    stepper.learning_rate = 0.01
    return stepper


def values(net: nn.Module) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in net.parameters()]


def equal(some: Sequence[Tensor], others: Sequence[Tensor]) -> list[bool]:
    return [torch.equal(*pair) for pair in zip(some, others, strict=True)]


@pytest.mark.parametrize("setting", ALL, ids=repr)
def test_a_restored_optimiser_continues_bit_for_bit(setting: Optimizer) -> None:
    net, other = network(), network()
    stepper = stepper_of(setting, net)
    for seed in range(3):
        stepper.minimise(partial(loss_of, net, seed))
    state = stepper.state_dict()
    saved, weights = copy.deepcopy(state), copy.deepcopy(net.state_dict())
    continued = setting.make(FlatParameters(other.parameters()))
    other.load_state_dict(net.state_dict())
    continued.load_state_dict(state)
    assert continued.learning_rate == 0.01
    for seed in range(3, 6):
        stepper.minimise(partial(loss_of, net, seed))
    expected = values(net)
    # Neither optimiser may have changed what the other one loaded.
    for seed in range(3, 6):
        continued.minimise(partial(loss_of, other, seed))
    assert all(equal(expected, values(other)))
    net.load_state_dict(weights)
    stepper.load_state_dict(saved)
    for seed in range(3, 6):
        stepper.minimise(partial(loss_of, net, seed))
    assert all(equal(expected, values(net)))


@pytest.mark.parametrize("setting", ALL, ids=repr)
def test_a_copy_trains_its_own_parameters(setting: Optimizer) -> None:
    net = network()
    stepper = stepper_of(setting, net)
    stepper.minimise(partial(loss_of, net, 0))
    other_net, other = copy.deepcopy((net, stepper))
    before = values(net)
    other.minimise(partial(loss_of, other_net, 1))
    assert all(equal(before, values(net)))
    stepper.minimise(partial(loss_of, net, 1))
    assert all(equal(values(net), values(other_net)))
    assert not any(equal(before, values(net)))


@pytest.mark.parametrize("forgotten", [(), (2, 3), (0, 1, 2, 3)])
@pytest.mark.parametrize("setting", ALL, ids=repr)
def test_a_parameter_whose_state_was_forgotten_moves_as_at_its_first_step(
    setting: Optimizer, forgotten: Sequence[int]
) -> None:
    net, unchanged, other = network(), network(), network()
    steppers = [stepper_of(setting, each) for each in (net, unchanged)]
    for seed in range(4):
        for stepper, each in zip(steppers, (net, unchanged), strict=True):
            stepper.minimise(partial(loss_of, each, seed))
    steppers[0].forget([list(net.parameters())[position] for position in forgotten])
    assert all(equal(values(net), values(unchanged)))
    other.load_state_dict(net.state_dict())
    untrained = stepper_of(setting, other)
    for stepper, each in zip((*steppers, untrained), (net, unchanged, other), strict=True):
        stepper.minimise(partial(loss_of, each, 5))
    is_joint = isinstance(setting, LBFGS) and bool(forgotten)
    for position, (ours, kept, first) in enumerate(zip(*map(values, (net, unchanged, other)), strict=True)):
        torch.testing.assert_close(ours, first if position in forgotten or is_joint else kept)
        assert not torch.allclose(first, kept)


@pytest.mark.parametrize("setting", STEPPING, ids=repr)
def test_a_step_without_gradients_changes_no_parameter_and_no_state(setting: Optimizer) -> None:
    net = network()
    stepper = stepper_of(setting, net)
    stepper.minimise(partial(loss_of, net, 0), max_grad_norm=0.5)
    stepper.zero_grad()
    before, state = values(net), pickle.dumps(stepper.state_dict())
    stepper.step(0.5)
    assert all(equal(before, values(net)))
    assert pickle.dumps(stepper.state_dict()) == state


@pytest.mark.parametrize("setting", STEPPING, ids=repr)
def test_a_parameter_without_a_gradient_is_not_changed(setting: Optimizer) -> None:
    net = network()
    stepper = stepper_of(setting, net)
    stepper.minimise(partial(loss_of, net, 0))
    net[0].requires_grad_(False)
    before = values(net)
    stepper.minimise(partial(loss_of, net, 1))
    assert equal(before, values(net)) == [True, True, False, False]


@pytest.mark.parametrize("setting", FLAT, ids=repr)
@pytest.mark.parametrize("max_grad_norm", [None, 0.5])
@pytest.mark.parametrize("adamw", [flat_adam._adamw_, flat_adam._plain_adamw_], ids=["private", "public"])
def test_steps_read_no_tensor_values_back_from_the_device(
    monkeypatch: pytest.MonkeyPatch, adamw: Callable[..., Any], setting: Optimizer, max_grad_norm: float | None
) -> None:
    monkeypatch.setattr(flat_adam, "_adamw_", adamw)
    # Reading a value of a tensor on this device fails.
    net = network().to("meta")
    stepper = stepper_of(setting, net)
    stepper.minimise(lambda: net(torch.empty(8, 3, device="meta")).square().mean(), max_grad_norm)
    state = stepper.state_dict()
    net[0].requires_grad_(False)
    stepper.minimise(lambda: net(torch.empty(8, 3, device="meta")).square().mean(), max_grad_norm)
    other = stepper_of(setting, network().to("meta"))
    other.load_state_dict(state)


@pytest.mark.parametrize(
    ("setting", "other", "names"),
    [
        (Adam(), AdamW(), "Adam: the saved state is of AdamW"),
        (RMSprop(), TorchOptimizer(torch.optim.RMSprop), r"RMSprop: the saved state is of TorchOptimizer\(RMSprop\)"),
        (TorchOptimizer("Adagrad"), SGD(), r"TorchOptimizer\(Adagrad\): the saved state is of SGD"),
        (LBFGS(), Adam(), "LBFGS: the saved state is of Adam"),
    ],
)
def test_the_state_of_another_optimiser_is_refused_by_name(setting: Optimizer, other: Optimizer, names: str) -> None:
    state = stepper_of(other, network()).state_dict()
    with pytest.raises(ValueError, match=names):
        stepper_of(setting, network()).load_state_dict(state)


@pytest.mark.parametrize("setting", ALL, ids=repr)
def test_the_state_of_other_parameters_is_refused(setting: Optimizer) -> None:
    other = stepper_of(setting, nn.Linear(40, 2))
    stepper = stepper_of(setting, network())
    with pytest.raises(ValueError, match=r"load a state of the same networks|doesn't match the size"):
        stepper.load_state_dict(other.state_dict())


def test_a_state_of_another_number_of_parameters_is_refused_despite_equal_size() -> None:
    ours, theirs = ([nn.Parameter(torch.zeros(2)) for _ in range(number)] for number in (3, 2))
    theirs[1] = nn.Parameter(torch.zeros(20))
    stepper, other = (Adam().make(FlatParameters(trained)) for trained in (ours, theirs))
    theirs[0].grad = torch.ones(2)
    other.step()
    with pytest.raises(ValueError, match="there are 3 parameters, the saved number of steps has shape"):
        stepper.load_state_dict(other.state_dict())


@pytest.mark.parametrize("setting", ALL, ids=repr)
def test_parameters_that_were_moved_are_refused_instead_of_left_untrained(setting: Optimizer) -> None:
    net = network()
    stepper = stepper_of(setting, net)
    net.double()
    with pytest.raises(RuntimeError, match="moved after the algorithm was made"):
        stepper.minimise(lambda: net(torch.randn(2, 3, dtype=torch.float64)).sum())


def test_lbfgs_refuses_steps_without_a_closure_and_gradient_clipping() -> None:
    stepper = stepper_of(LBFGS(), network())
    with pytest.raises(RuntimeError, match=r"call minimise\(closure\), or choose another optimiser"):
        stepper.step()
    with pytest.raises(ValueError, match=r"max_grad_norm=0\.5"):
        stepper.minimise(lambda: torch.zeros(()), max_grad_norm=0.5)


def test_a_function_that_creates_a_torch_optimiser_is_accepted() -> None:
    def make(trained: Any, lr: float, momentum: float) -> torch.optim.Optimizer:
        return torch.optim.SGD([{"params": trained[:2]}, {"params": trained[2:]}], lr=lr, momentum=momentum)

    nets = network(), network()
    settings = TorchOptimizer(make, {"momentum": 0.9}), SGD(momentum=0.9)
    for net, setting in zip(nets, settings, strict=True):
        stepper = stepper_of(setting, net)
        for seed in range(3):
            stepper.minimise(partial(loss_of, net, seed))
    for our, their in zip(*map(values, nets), strict=True):
        torch.testing.assert_close(our, their)


def test_a_users_elementwise_optimiser_trains_and_its_averages_are_saved() -> None:
    @dataclass(frozen=True)
    class SignMomentum(ElementwiseOptimizer):
        averages = ("means",)

        def move(self, learning_rate: float, parameter: Tensor, gradient: Tensor, *averages: Tensor) -> None:
            parameter.sub_(averages[0].lerp_(gradient, 0.1).sign(), alpha=learning_rate)

    test_a_restored_optimiser_continues_bit_for_bit(SignMomentum())
    test_a_parameter_without_a_gradient_is_not_changed(SignMomentum())


@pytest.mark.parametrize(
    ("trained", "found"),
    [
        ([], "found none"),
        (
            [nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(2).double())],
            r"float32 on cpu, torch\.float64 on cpu",
        ),
    ],
)
def test_no_parameters_or_parameters_of_mixed_dtypes_are_refused(trained: list[nn.Parameter], found: str) -> None:
    with pytest.raises(ValueError, match=found):
        FlatParameters(trained)


@pytest.mark.parametrize("setting", ALL, ids=repr)
def test_a_loss_without_a_graph_is_refused(setting: Optimizer) -> None:
    net = network()
    stepper = stepper_of(setting, net)
    with pytest.raises(RuntimeError, match="does not require grad"):
        stepper.minimise(lambda: loss_of(net, 0).detach())
