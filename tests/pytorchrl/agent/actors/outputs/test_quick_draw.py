"""The kernel that draws categorical actions while acting samples from the distribution of the logits."""

import math

import pytest
import torch

from pytorchrl.agent.actors.outputs import Categorical
from pytorchrl.agent.ops.categorical_draw import draw_actions

DRAWS = 200_000


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize(
    "probabilities", [[1.0], [0.5, 0.5], [0.1, 0.0, 0.6, 0.3], [0.0, 0.0, 1.0], [0.25, 0.75, 0.0], [1e-3, 0.999]]
)
def test_actions_are_drawn_with_their_probabilities(probabilities: list[float]) -> None:
    expected = torch.tensor(probabilities)
    with torch.inference_mode():
        action, log_prob = Categorical(expected.log().repeat(DRAWS, 1)).sample_with_log_prob(generator())
    assert action.shape == log_prob.shape == (DRAWS, 1)
    shares = torch.bincount(action[:, 0], minlength=len(expected)) / DRAWS
    # Four standard errors.
    assert ((shares - expected).abs() <= 4 * (expected * (1 - expected) / DRAWS).sqrt()).all()
    assert (shares[expected == 0] == 0).all()
    torch.testing.assert_close(log_prob[:, 0].exp(), expected[action[:, 0]])


@pytest.mark.parametrize("actions", [2, 7, 1_000])
def test_log_probabilities_while_acting_match_those_of_updates(actions: int) -> None:
    logits = 30 * torch.randn((300, actions), generator=generator(1))
    with torch.inference_mode():
        action, log_prob = Categorical(logits).sample_with_log_prob(generator())
    torch.testing.assert_close(log_prob, Categorical(logits).log_prob(action.clone()))


def test_logits_of_any_magnitude_give_an_action_of_nonzero_probability() -> None:
    logits = torch.tensor([[-1e30, 1e30], [1e30, -math.inf], [-3e38, -3e38], [-math.inf, -200.0]])
    with torch.inference_mode():
        action, log_prob = Categorical(logits).sample_with_log_prob(generator())
    assert action[:2, 0].tolist() == [1, 0]
    assert action[3] == 1
    torch.testing.assert_close(log_prob[:, 0], torch.tensor([0.0, 0.0, -math.log(2), 0.0]))


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_logits_of_nan_or_plus_infinity_give_nan_log_probabilities(wrong: float) -> None:
    with torch.inference_mode():
        for logits in ([0.0, wrong], [wrong, 0.0], [wrong, wrong]):
            action, log_prob = Categorical(torch.tensor([logits])).sample_with_log_prob(generator())
            assert log_prob.isnan().all()
            assert action.item() in (0, 1)


def test_equal_seeds_draw_equal_actions_and_later_draws_differ() -> None:
    with torch.inference_mode():
        policy = Categorical(torch.zeros((50, 3)))
        first = policy.sample(generator())
        random = generator()
        assert torch.equal(policy.sample(random), first)
        assert not torch.equal(policy.sample(random), first)


@pytest.mark.parametrize(
    "logits",
    [torch.zeros((4, 3), dtype=torch.float64), torch.zeros((3, 4)).T, torch.zeros((2, 4, 3))],
)
def test_logits_of_other_dtypes_and_layouts_are_sampled_by_torch(logits: torch.Tensor) -> None:
    with torch.inference_mode():
        assert draw_actions(logits, generator()) is None
        assert Categorical(logits).sample(generator()).shape == (*logits.shape[:-1], 1)


def test_log_probabilities_have_gradients_after_sampling_without_gradients() -> None:
    logits = torch.zeros((4, 3), requires_grad=True)
    policy = Categorical(logits)
    with torch.no_grad():
        action = policy.sample(generator())
    policy.log_prob(action).sum().backward()
    assert logits.grad is not None
    torch.testing.assert_close(logits.grad.gather(1, action), torch.full((4, 1), 2 / 3))
