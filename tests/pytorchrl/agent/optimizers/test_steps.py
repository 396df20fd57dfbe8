"""Each optimiser's steps match torch's optimisers or the equations of its paper."""

import copy
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from pytorchrl.agent.optimizers import (
    LBFGS,
    SGD,
    Adam,
    AdamW,
    FlatParameters,
    Optimizer,
    RMSprop,
    TorchOptimizer,
    flat_stepper,
)
from pytorchrl.agent.optimizers import (
    flat_adam as flat_module,
)
from tests.support.profiles import examples

SHAPES = (3, 2), (5,), (2, 2), (1,), ()
LEARNING_RATE = 0.02
Make = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]


def parameters() -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(1)
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in SHAPES]


def of_torch(name: str, **arguments: Any) -> Make:
    return lambda trained: getattr(torch.optim, name)(trained, lr=LEARNING_RATE, **arguments)


SAME: list[tuple[Optimizer, Make]] = [
    (Adam(eps=1e-5), of_torch("Adam", eps=1e-5)),
    (Adam(betas=(0.5, 0.9)), of_torch("Adam", betas=(0.5, 0.9))),
    (AdamW(weight_decay=0.3), of_torch("AdamW", weight_decay=0.3)),
    (SGD(), of_torch("SGD")),
    (SGD(momentum=0.9), of_torch("SGD", momentum=0.9)),
    (
        SGD(momentum=0.9, nesterov=True, weight_decay=0.1),
        of_torch("SGD", momentum=0.9, nesterov=True, weight_decay=0.1),
    ),
    (RMSprop(eps_inside_root=False, centered=False), of_torch("RMSprop", alpha=0.95, eps=0.01)),
    (
        RMSprop(alpha=0.9, eps=1e-3, eps_inside_root=False, momentum=0.8),
        of_torch("RMSprop", alpha=0.9, eps=1e-3, centered=True, momentum=0.8),
    ),
    (TorchOptimizer("Adagrad", {"lr_decay": 0.1}), of_torch("Adagrad", lr_decay=0.1)),
    (TorchOptimizer(torch.optim.NAdam), of_torch("NAdam")),
]


@pytest.mark.quick_share(0.4, long=0.7)
@pytest.mark.parametrize("most_copied", [0, 1_000], ids=["in place", "copied"])
@pytest.mark.parametrize(("ours", "theirs"), SAME, ids=[repr(setting) for setting, _ in SAME])
@settings(max_examples=examples(40), deadline=None)
@given(data=st.data(), max_grad_norm=st.sampled_from([None, 0.5, 1e6]))
def test_steps_match_torch_whichever_gradients_are_missing(
    ours: Optimizer, theirs: Make, most_copied: int, data: st.DataObject, max_grad_norm: float | None
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flat_stepper, "_MOST_COPIED_NUMBERS", most_copied)
        assert_steps_match_torch(ours, theirs, data, max_grad_norm)


@settings(max_examples=examples(40), deadline=None)
@given(data=st.data(), max_grad_norm=st.sampled_from([None, 0.5, 1e6]))
def test_adamw_steps_match_torch_without_its_private_fused_function(
    data: st.DataObject, max_grad_norm: float | None
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flat_module, "_adamw_", flat_module._plain_adamw_)
        assert_steps_match_torch(AdamW(weight_decay=0.3), of_torch("AdamW", weight_decay=0.3), data, max_grad_norm)


@pytest.mark.parametrize("changed", ["missing", "other arguments", "other results", "the same"])
def test_torchs_private_function_is_used_only_if_it_behaves_as_expected(
    monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    known = torch._fused_adamw_

    def other_arguments(*tensors: Any, learning_rate: float) -> None:
        raise AssertionError

    def other_results(*tensors: Any, lr: float, **others: Any) -> None:
        known(*tensors, lr=-lr, **others)

    function = {"other arguments": other_arguments, "other results": other_results, "the same": known}.get(changed)
    if function is None:
        monkeypatch.delattr(torch, "_fused_adamw_")
    else:
        monkeypatch.setattr(torch, "_fused_adamw_", function)
    assert flat_module._fastest_adamw_() is (known if changed == "the same" else flat_module._plain_adamw_)


def assert_steps_match_torch(ours: Optimizer, theirs: Make, data: st.DataObject, max_grad_norm: float | None) -> None:
    """Compare steps with torch; gradients may be missing, and the state may be saved and loaded between steps."""
    our_parameters, their_parameters = parameters(), parameters()
    stepper, optimizer = ours.make(FlatParameters(our_parameters)), theirs(their_parameters)
    stepper.learning_rate = LEARNING_RATE
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 100)))
    everything = set(range(len(SHAPES)))
    for _ in range(data.draw(st.integers(1, 8))):
        missing = data.draw(st.sampled_from([set(), everything]) | st.sets(st.sampled_from(sorted(everything))))
        for position, (our, their) in enumerate(zip(our_parameters, their_parameters, strict=True)):
            # Matrices are laid out by columns, unlike autograd's gradients, but as a user's may be.
            gradient = torch.randn(our.shape[::-1], generator=generator).permute(tuple(reversed(range(our.dim()))))
            our.grad, their.grad = (None, None) if position in missing else (gradient, gradient.clone())
        if data.draw(st.booleans()):
            saved = copy.deepcopy(stepper.state_dict())
            stepper = ours.make(FlatParameters(our_parameters))
            stepper.load_state_dict(saved)
        stepper.step(max_grad_norm)
        if max_grad_norm is not None:
            nn.utils.clip_grad_norm_(their_parameters, max_grad_norm)
        optimizer.step()
        for our, their in zip(our_parameters, their_parameters, strict=True):
            torch.testing.assert_close(our, their, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("centered", [True, False])
def test_rmsprop_with_epsilon_inside_the_root_follows_the_equations_of_graves(momentum: float, centered: bool) -> None:
    trained = parameters()
    setting = RMSprop(alpha=0.95, eps=0.01, momentum=momentum, centered=centered)
    stepper = setting.make(FlatParameters(trained))
    stepper.learning_rate = LEARNING_RATE
    generator = np.random.default_rng(0)
    expected = [parameter.detach().double().numpy().copy() for parameter in trained]
    squares, means, moves = ([np.zeros_like(value) for value in expected] for _ in range(3))
    for _ in range(20):
        for i, parameter in enumerate(trained):
            gradient = generator.normal(size=parameter.shape)
            parameter.grad = torch.tensor(gradient, dtype=torch.float32)
            squares[i] = 0.95 * squares[i] + 0.05 * gradient**2
            means[i] = 0.95 * means[i] + 0.05 * gradient
            variance = squares[i] - means[i] ** 2 if centered else squares[i]
            moves[i] = momentum * moves[i] - LEARNING_RATE * gradient / np.sqrt(variance + 0.01)
            expected[i] = expected[i] + moves[i]
        stepper.step()
    for parameter, value in zip(trained, expected, strict=True):
        np.testing.assert_allclose(parameter.detach().numpy(), value, rtol=1e-4, atol=1e-5)


def test_constant_gradients_give_rmsprop_no_root_of_a_negative_number() -> None:
    trained = parameters()
    stepper = RMSprop(alpha=0.5, eps=1e-12, eps_inside_root=True).make(FlatParameters(trained))
    stepper.learning_rate = 1e-9
    for _ in range(60):
        for parameter in trained:
            parameter.grad = torch.full_like(parameter, 1 / 3)
        stepper.step()
    assert all(parameter.isfinite().all() for parameter in trained)


def rosenbrock(x: Tensor, y: Tensor) -> Tensor:
    return ((1 - x).square() + 100 * (y - x.square()).square()).sum()


@pytest.mark.parametrize("line_search", [None, "strong_wolfe"])
def test_lbfgs_matches_torch(line_search: Any) -> None:
    ours, theirs = ([nn.Parameter(torch.tensor([-1.0, 0.5])), nn.Parameter(torch.tensor([1.0, 1.0]))] for _ in "ab")
    rate = 1.0 if line_search else 1e-3
    stepper = LBFGS(max_iter=5, history_size=4, line_search=line_search).make(FlatParameters(ours))
    stepper.learning_rate = rate
    optimizer = torch.optim.LBFGS(theirs, lr=rate, max_iter=5, history_size=4, line_search_fn=line_search)

    def closure() -> float:
        optimizer.zero_grad()
        loss = rosenbrock(*theirs)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.item()

    for _ in range(12):
        our_loss, their_loss = stepper.minimise(lambda: rosenbrock(*ours)), optimizer.step(closure)  # type: ignore[no-untyped-call]
        assert our_loss.item() == pytest.approx(their_loss)
        assert all(torch.equal(*pair) for pair in zip(ours, theirs, strict=True))
    if line_search:
        assert rosenbrock(*ours) < 1e-6


@pytest.mark.parametrize("setting", [Adam(), SGD(momentum=0.5), RMSprop(), TorchOptimizer("Adagrad")], ids=repr)
@pytest.mark.parametrize("max_grad_norm", [None, 0.1])
def test_minimise_equals_a_backward_pass_and_a_step(setting: Optimizer, max_grad_norm: float | None) -> None:
    ours, theirs = parameters(), parameters()
    steppers = [setting.make(FlatParameters(trained)) for trained in (ours, theirs)]
    for _ in range(3):
        for stepper in steppers:
            stepper.learning_rate = LEARNING_RATE
        with torch.no_grad():
            loss = steppers[0].minimise(lambda: sum_of_squares(ours), max_grad_norm)
        steppers[1].zero_grad()
        expected = sum_of_squares(theirs)
        expected.backward()  # type: ignore[no-untyped-call]
        steppers[1].step(max_grad_norm)
        assert torch.equal(loss, expected.detach())
        assert not loss.requires_grad
        assert all(torch.equal(*pair) for pair in zip(ours, theirs, strict=True))


def sum_of_squares(trained: list[nn.Parameter]) -> Tensor:
    return torch.stack([parameter.square().sum() for parameter in trained]).sum()


def test_adam_clips_gradients_in_double_precision() -> None:
    generator = torch.Generator().manual_seed(1)
    ours, theirs = ([nn.Parameter(each.detach().double()) for each in parameters()] for _ in range(2))
    stepper, optimizer = Adam().make(FlatParameters(ours)), torch.optim.Adam(theirs, lr=LEARNING_RATE)
    stepper.learning_rate = LEARNING_RATE
    for _ in range(3):
        for our, their in zip(ours, theirs, strict=True):
            our.grad = torch.randn(our.shape, dtype=torch.float64, generator=generator)
            their.grad = our.grad.clone()
        stepper.step(0.5)
        nn.utils.clip_grad_norm_(theirs, 0.5)
        optimizer.step()
    for our, their in zip(ours, theirs, strict=True):
        torch.testing.assert_close(our, their)
