"""Compiled log probabilities, entropies and gradients of categorical actions are those of autograd."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from pytorchrl.agent.actors.outputs import Categorical
from pytorchrl.agent.actors.outputs.distributions import discrete

ROWS, ACTIONS = [0, 1, 5, 300], [1, 2, 7, 32, 33]


def random(rows: int, actions: int, scale: float = 3.0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Logits, actions, and gradients by log probabilities and entropies."""
    generator = torch.Generator().manual_seed(rows * 100 + actions)
    logits = scale * torch.randn(rows, actions, generator=generator)
    action = torch.randint(actions, (rows, 1), generator=generator)
    by_log_prob, by_entropy = torch.randn(2, rows, 1, generator=generator)
    return logits, action, by_log_prob, by_entropy


def by_autograd(logits: Tensor, action: Tensor, by_log_prob: Tensor, by_entropy: Tensor | None) -> list[Tensor]:
    logits = logits.double().requires_grad_()
    log_probs = logits.log_softmax(-1)
    log_prob, entropy = log_probs.gather(-1, action), -(log_probs.exp() * log_probs).sum(-1, keepdim=True)
    loss = (log_prob * by_log_prob).sum()
    if by_entropy is not None:
        loss = loss + (entropy * by_entropy).sum()
    return [log_prob.detach(), entropy.detach(), torch.autograd.grad(loss, logits)[0]]


def by_kernels(logits: Tensor, action: Tensor, by_log_prob: Tensor, by_entropy: Tensor | None) -> list[Tensor]:
    with torch.no_grad():
        distribution = Categorical(logits)
        log_prob, entropy = distribution.evaluate(action)
        return [log_prob, entropy, *distribution.slopes(action, by_log_prob, by_entropy)]


def assert_close(found: list[Tensor], expected: list[Tensor]) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other.to(one.dtype), rtol=1e-5, atol=2e-6)


@pytest.fixture
def computed_by_torch(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each evaluation was left to torch."""
    calls: list[bool] = []
    evaluate = discrete.evaluate_actions

    def recorded(logits: Tensor, action: Tensor) -> discrete.Evaluated | None:
        found = evaluate(logits, action)
        calls.append(found is None)
        return found

    monkeypatch.setattr(discrete, "evaluate_actions", recorded)
    return calls


@pytest.mark.parametrize("with_entropy", [True, False])
@pytest.mark.parametrize("actions", ACTIONS)
@pytest.mark.parametrize("rows", ROWS)
def test_values_and_gradients_are_those_of_autograd(rows: int, actions: int, *, with_entropy: bool) -> None:
    logits, action, by_log_prob, by_entropy = random(rows, actions)
    batch = logits, action, by_log_prob, by_entropy if with_entropy else None
    assert_close(by_kernels(*batch), by_autograd(*batch))


@pytest.mark.parametrize(("actions", "by_torch"), [(2, False), (32, False), (33, True)])
def test_a_few_actions_are_computed_by_kernels(actions: int, by_torch: bool, computed_by_torch: list[bool]) -> None:
    by_kernels(*random(5, actions))
    assert computed_by_torch == [by_torch]


def test_other_dtypes_layouts_and_gradients_are_left_to_torch(computed_by_torch: list[bool]) -> None:
    logits, action, by_log_prob, by_entropy = random(5, 3)
    expected = by_autograd(logits, action, by_log_prob, by_entropy)
    others = [
        (logits.double(), action),
        (logits.t().contiguous().t(), action),
        (logits, torch.cat([action, action], 1)[:, :1]),
    ]
    for each, taken in others:
        with torch.no_grad():
            assert_close([*Categorical(each).evaluate(taken)], expected[:2])
    learnt = logits.clone().requires_grad_()
    assert Categorical(learnt).evaluate(action)[0].requires_grad
    assert computed_by_torch == [True] * 4


def test_slopes_of_another_layout_are_left_to_torch() -> None:
    logits, action, by_log_prob, by_entropy = random(5, 3)
    strided = torch.cat([by_log_prob, by_log_prob], 1)[:, :1]
    single = by_entropy[:1].expand(5, 1)
    batch = logits, action, strided, single
    assert_close(by_kernels(*batch), by_autograd(*batch))


def test_a_gradient_can_be_computed_without_an_evaluation() -> None:
    logits, action, by_log_prob, by_entropy = random(5, 3)
    with torch.no_grad():
        (slopes,) = Categorical(logits).slopes(action, by_log_prob, by_entropy)
    assert_close([slopes], by_autograd(logits, action, by_log_prob, by_entropy)[2:])


def test_a_gradient_can_be_computed_for_other_actions_than_those_evaluated() -> None:
    logits, action, by_log_prob, by_entropy = random(5, 3)
    other = (action + 1) % 3
    with torch.no_grad():
        distribution = Categorical(logits)
        distribution.evaluate(action)
        (slopes,) = distribution.slopes(other, by_log_prob, by_entropy)
    assert_close([slopes], by_autograd(logits, other, by_log_prob, by_entropy)[2:])


def test_actions_that_are_ruled_out_have_no_gradient() -> None:
    logits, action = torch.tensor([[0.0, -math.inf, 1.0], [-200.0, 0.0, -math.inf]]), torch.tensor([[2], [1]])
    ones = torch.ones(2, 1)
    log_prob, entropy, slopes = by_kernels(logits, action, ones, ones)
    expected = by_autograd(logits[:1, ::2], torch.tensor([[1]]), ones[:1], ones[:1])
    assert_close([log_prob[:1], entropy[:1], slopes[:1, ::2]], expected)
    assert slopes[0, 1] == 0
    assert log_prob[1] == 0
    assert entropy[1] == 0
    assert not slopes[1].any()
    with torch.no_grad():
        assert Categorical(logits).evaluate(torch.tensor([[1], [2]]))[0].flatten().tolist() == [-math.inf, -math.inf]


def test_nan_propagates_to_its_row_alone() -> None:
    logits, action, by_log_prob, by_entropy = random(4, 3)
    logits[2, 1] = math.nan
    for result in by_kernels(logits, action, by_log_prob, by_entropy):
        assert torch.equal(result.isnan().all(1), torch.tensor([False, False, True, False]))
        assert not result[[0, 1, 3]].isnan().any()


@given(st.lists(st.floats(-200, 200, width=32), min_size=1, max_size=8), st.data())
def test_any_logits_give_the_values_of_double_precision(logits: list[float], data: st.DataObject) -> None:
    action = torch.tensor([[data.draw(st.integers(0, len(logits) - 1))]])
    one = torch.ones(1, 1)
    batch = torch.tensor([logits]), action, one, one
    for found, expected in zip(by_kernels(*batch), by_autograd(*batch), strict=True):
        torch.testing.assert_close(found, expected.float(), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("wrong", [-1, 3, 2**40])
def test_an_action_that_does_not_exist_is_refused(wrong: int) -> None:
    logits, action, *_ = random(5, 3)
    action[4] = wrong
    with torch.no_grad(), pytest.raises(RuntimeError, match="index"):
        Categorical(logits).evaluate(action)
