"""Ops of losses equal their compositions of torch's operations, and keep autograd's contract."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from pytorchrl.agent.actors.outputs import Categorical, Distribution
from pytorchrl.agent.ops.quantile_huber import quantile_huber_loss, quantile_huber_loss_of_pairs
from pytorchrl.agent.ops.soft_maximum import weighted_soft_maximum, weighted_soft_maximum_of_mlp

Tensors = tuple[Tensor, ...]


@dataclass(frozen=True)
class Op:
    """An op, and its composition of torch's operations; both from the same tensors to one scalar."""

    name: str
    op: Callable[..., Tensor]
    composition: Callable[..., Tensor]
    given: Callable[[int, torch.Generator], Tensors]
    """From a number of rows to the tensors; the first of these are differentiated by."""
    learnt: int
    """Number of tensors that are differentiated by."""

    def __str__(self) -> str:
        return self.name


def surrogate(of: Callable[..., Any], dual_clip: float | None) -> Callable[..., Tensor]:
    def computed(logits: Tensor, action: Tensor, *given: Tensor) -> Tensor:
        result = of(Categorical(logits), action, *given, 0.2, dual_clip)
        loss: Tensor = 2 * result.objective - 0.3 * result.entropy
        return loss

    return computed


def for_surrogate(rows: int, random: torch.Generator) -> Tensors:
    logits, action = 3 * torch.randn(rows, 5, generator=random), torch.randint(5, (rows, 1), generator=random)
    older = logits.log_softmax(1).gather(1, action) + 0.3 * torch.randn(rows, 1, generator=random)
    return logits, action, older, torch.randn(rows, 1, generator=random), torch.rand(rows, 1, generator=random)


def quantile_huber(of: Callable[..., Tensor], kappa: float) -> Callable[..., Tensor]:
    def computed(quantiles: Tensor, target: Tensor, fractions: Tensor, weight: Tensor) -> Tensor:
        return (weight * of(quantiles, target, fractions, kappa)).sum()

    return computed


def for_quantiles(own: int, targets: int) -> Callable[[int, torch.Generator], Tensors]:
    def given(rows: int, random: torch.Generator) -> Tensors:
        quantiles, target = torch.randn(rows, own, generator=random), torch.randn(rows, targets, generator=random)
        return quantiles, target, torch.rand(own, generator=random), torch.rand(rows, 1, generator=random)

    return given


def soft_maximum_by_op(*given: Tensor) -> Tensor:
    quick = weighted_soft_maximum_of_mlp(given[:6], "tanh", *given[6:])
    return soft_maximum_by_torch(*given) if quick is None else quick


def soft_maximum_by_torch(*given: Tensor) -> Tensor:
    w1, b1, w2, b2, w3, b3, features, action, density, weight, bound = given
    inputs = torch.cat([features.unsqueeze(1).expand(-1, action.shape[1], -1), action], 2)
    hidden = ((inputs @ w1.T + b1).tanh() @ w2.T + b2).tanh()
    return weighted_soft_maximum((hidden @ w3.T + b3).squeeze(2), density, weight, bound)


def for_soft_maximum(rows: int, random: torch.Generator) -> Tensors:
    sizes = (6, 5), (6,), (4, 6), (4,), (1, 4), (1,), (rows, 3), (rows, 7, 2), (rows, 7), (rows, 1), (rows, 7)
    return tuple(torch.randn(size, generator=random) for size in sizes)


OPS = [
    *(
        Op(
            f"surrogate with dual clip {dual_clip}",
            surrogate(Categorical.clipped_surrogate, dual_clip),
            surrogate(Distribution.clipped_surrogate, dual_clip),
            for_surrogate,
            1,
        )
        for dual_clip in (None, 1.5)
    ),
    *(
        Op(
            f"quantile Huber {kappa} of {own} x {targets}",
            quantile_huber(quantile_huber_loss, kappa),
            quantile_huber(quantile_huber_loss_of_pairs, kappa),
            for_quantiles(own, targets),
            learnt,
        )
        for kappa in (1.0, 0.0)
        for own, targets, learnt in ((5, 4, 2), (60, 50, 1))
    ),
    Op("soft maximum", soft_maximum_by_op, soft_maximum_by_torch, for_soft_maximum, 6),
]


def made(op: Op, rows: int = 9, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensors:
    random = torch.Generator().manual_seed(seed)
    return tuple(each.to(dtype) if each.is_floating_point() else each for each in op.given(rows, random))


def value_and_gradients(function: Callable[..., Tensor], given: Tensors, learnt: int) -> list[Tensor]:
    given = tuple(each.detach().requires_grad_(place < learnt) for place, each in enumerate(given))
    value = function(*given)
    return [value.detach(), *torch.autograd.grad(value, given[:learnt])]


def assert_equal(found: Any, expected: Any, rtol: float = 1e-5, atol: float = 2e-6) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other.to(one.dtype), rtol=rtol, atol=atol, equal_nan=True)


ops = pytest.mark.parametrize("op", OPS, ids=str)


@ops
@pytest.mark.parametrize("rows", [0, 1, 9, 300])
def test_values_and_gradients_are_those_of_the_composition_in_double_precision(op: Op, rows: int) -> None:
    given = made(op, rows)
    expected = value_and_gradients(op.composition, made(op, rows, torch.float64), op.learnt)
    assert_equal(value_and_gradients(op.op, given, op.learnt), expected, atol=2e-6 * max(1, rows / 9))


@ops
def test_gradients_are_those_of_finite_differences(op: Op) -> None:
    given = made(op, 4, torch.float64)
    learnt = [each.requires_grad_() for each in given[: op.learnt]]
    assert torch.autograd.gradcheck(lambda *some: op.op(*some, *given[op.learnt :]), learnt)


@ops
def test_second_derivatives_are_right_or_refused_by_torch(op: Op) -> None:
    found = []
    for function in (op.op, op.composition):
        given = made(op)
        learnt = [each.requires_grad_() for each in given[: op.learnt]]
        gradients = torch.autograd.grad(function(*given), learnt, create_graph=True)
        refusal = ""
        try:
            second = torch.autograd.grad(sum(each.square().sum() for each in gradients), learnt, allow_unused=True)
        except RuntimeError as error:
            refusal = str(error)
        if refusal:
            assert "once_differentiable" in refusal or "does not require grad" in refusal
            return
        found.append([each for each in second if each is not None])
    assert_equal(*found)


@ops
def test_torch_func_differentiates_and_batches(op: Op) -> None:
    given = made(op)
    places = tuple(range(op.learnt))
    expected = value_and_gradients(op.composition, given, op.learnt)[1:]
    assert_equal(torch.func.grad(op.op, places)(*given), expected)
    others = made(op, seed=1)
    stacked = [torch.stack(both) for both in zip(given, others, strict=True)]
    assert_equal(torch.func.vmap(op.op)(*stacked), [op.composition(*given), op.composition(*others)])


@ops
def test_torch_func_transforms_a_function_that_also_uses_other_tensors(op: Op) -> None:
    given = made(op)
    for each in given[: op.learnt]:
        each.requires_grad_()
    factor = torch.tensor(2.0)
    found = torch.func.grad(lambda factor: factor * op.op(*given))(factor)
    assert_equal([found.detach()], [op.composition(*given).detach()])


@ops
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore:.*jit.trace.*:DeprecationWarning")
def test_a_trace_computes_other_tensors(op: Op) -> None:
    traced = torch.jit.trace(op.op, made(op), check_trace=False)  # type: ignore[no-untyped-call]
    others = made(op, seed=1)
    assert_equal([traced(*others)], [op.composition(*others)])


@ops
@pytest.mark.long
def test_the_op_is_compiled_as_one_graph(op: Op) -> None:
    compiled: Any = torch.compile(op.op, backend="aot_eager", fullgraph=True)
    given = made(op)
    assert_equal(value_and_gradients(compiled, given, op.learnt), value_and_gradients(op.composition, given, op.learnt))


@ops
def test_other_dtypes_devices_and_layouts_are_computed_by_torch(op: Op) -> None:
    rough = made(op, dtype=torch.bfloat16)
    assert_equal([op.op(*rough)], [op.composition(*rough)], rtol=0.05, atol=0.05)
    given = made(op)
    expected = value_and_gradients(op.composition, given, op.learnt)
    strided = tuple(torch.stack([each, each], -1)[..., 0] for each in given)
    assert_equal(value_and_gradients(op.op, strided, op.learnt), expected)
    nowhere = tuple(each.to("meta") for each in given)
    assert op.op(*nowhere).shape == ()


@ops
def test_a_loss_of_frozen_tensors_has_no_gradient(op: Op) -> None:
    given = made(op)
    assert not op.op(*given).requires_grad
    with torch.no_grad():
        assert_equal([op.op(*given)], [op.composition(*given)])


@ops
@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_nan_and_infinity_reach_the_loss(op: Op, wrong: float) -> None:
    given = made(op)
    for place in (0, op.learnt - 1):
        broken = [each.clone() for each in given]
        broken[place].view(-1)[-1] = wrong
        value = op.op(*broken)
        expected = op.composition(*broken)
        # One may say NaN where the other says infinity.
        assert value.isfinite() == expected.isfinite()
        assert not expected.isfinite() or torch.isclose(value, expected)


@pytest.mark.parametrize("rows", [0, 1, 9, 300])
@pytest.mark.parametrize("dual_clip", [None, 1.5])
def test_the_metrics_of_a_surrogate_are_those_of_the_composition(rows: int, dual_clip: float | None) -> None:
    logits, *given = made(OPS[0], rows)
    logits.requires_grad_()
    found = Categorical(logits).clipped_surrogate(*given, 0.2, dual_clip)
    assert_equal(found, Distribution.clipped_surrogate(Categorical(logits), *given, 0.2, dual_clip), atol=1e-4)
    assert [each.requires_grad for each in found] == [True, True, False, False]


@pytest.mark.parametrize("wrong", [-1, 5, 2**40])
def test_an_action_that_does_not_exist_is_refused(wrong: int) -> None:
    logits, action, *given = made(OPS[0])
    action[4] = wrong
    with pytest.raises(RuntimeError, match="index"):
        Categorical(logits).clipped_surrogate(action, *given, 0.2)


def test_actions_that_are_ruled_out_have_no_gradient() -> None:
    logits, action, *given = made(OPS[0])
    logits[:, 3] = -math.inf
    action[action == 3] = 0
    logits.requires_grad_()
    result = Categorical(logits).clipped_surrogate(action, *given, 0.2)
    (slopes,) = torch.autograd.grad(result.objective + result.entropy, logits)
    assert not slopes[:, 3].any()
    allowed = logits.detach()[:, [0, 1, 2, 4]].requires_grad_()
    action[action == 4] = 3
    expected = Distribution.clipped_surrogate(Categorical(allowed), action, *given, 0.2)
    assert_equal(result, expected)
    assert_equal([slopes[:, [0, 1, 2, 4]]], torch.autograd.grad(expected.objective + expected.entropy, allowed))


@pytest.mark.parametrize("method", ["log_prob", "entropy", "evaluate"])
def test_a_distribution_that_overrides_a_method_is_evaluated_by_it(method: str) -> None:
    def doubled(self: Categorical, *given: Tensor) -> Any:
        result = getattr(Categorical, method)(self, *given)
        return tuple(2 * each for each in result) if method == "evaluate" else 2 * result

    own: Any = type("Own", (Categorical,), {method: doubled})
    logits, *given = made(OPS[0])
    found = own(logits).clipped_surrogate(*given, 0.2)
    assert_equal(found, Distribution.clipped_surrogate(own(logits), *given, 0.2))
    plain = Categorical(logits).clipped_surrogate(*given, 0.2)
    assert (found.entropy != plain.entropy) or (found.objective != plain.objective)
