"""Implicit quantiles agree with slow numpy loops and draw their fractions from a seeded generator."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

import pytorchrl as prl
from pytorchrl.agent.actors.heads import ImplicitQuantiles
from pytorchrl.agent.actors.network import make_target
from pytorchrl.agent.actors.outputs import ImplicitQuantileValues
from pytorchrl.agent.risk_measures import CPW, CVaR
from tests.support.by_hand import envs_with, numpy

B, FEATURES, NUM_ACTIONS, COSINES = 5, 6, 3, 4
KINDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "linear": ({}, {}),
    "hidden layers": ({}, {"hidden_sizes": (7,)}),
    "dueling": ({"dueling": True}, {}),
    "noisy": ({"noisy": True}, {}),
    "noisy hidden layers": ({"noisy": True}, {"hidden_sizes": (7,)}),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def make_head(kind: str = "linear", **settings: Any) -> Any:
    """Make a head's module with 8 quantiles for losses and 5 to choose an action."""
    body, head = KINDS[kind]
    torch.manual_seed(0)
    actor = prl.OffPolicyActor.create_factory(**body)("cpu", envs_with(spaces.Discrete(NUM_ACTIONS)))
    actor.generator.manual_seed(0)
    numbers = {"num_quantiles": 8, "num_action_quantiles": 5, "num_cosines": COSINES}
    return ImplicitQuantiles(**(numbers | head | settings)).build(FEATURES, actor)


def features(seed: int = 1) -> Tensor:
    return torch.randn((B, FEATURES), generator=torch.Generator().manual_seed(seed))


def slow_quantiles(module: Any, rows: Tensor, fractions: Tensor) -> Any:
    """Compute equation 4 and the layers after it, one row and one fraction at a time: (B, n, N)."""
    weight, bias = numpy(module.embedding.weight), numpy(module.embedding.bias)
    found = np.zeros((len(rows), NUM_ACTIONS, len(fractions)))
    for b, row in enumerate(numpy(rows)):
        for n, fraction in enumerate(numpy(fractions)):
            embedded = np.zeros(FEATURES)
            for j in range(FEATURES):
                cosines = [np.cos(np.pi * i * fraction) * weight[j, i - 1] for i in range(1, COSINES + 1)]
                embedded[j] = max(0.0, sum(cosines) + bias[j])
            joined = torch.from_numpy((row * embedded)[None]).float()
            behind = module.numbers(joined if module.hidden is None else module.hidden(joined))
            found[b, :, n] = numpy(behind[0])
    return found


@every_kind
def test_quantiles_match_the_equation_of_the_paper(kind: str) -> None:
    module, fractions = make_head(kind).eval(), torch.tensor([0.0, 0.31, 0.5, 1.0])
    values = module(features()).at(fractions)
    slow = slow_quantiles(module, features(), fractions)
    np.testing.assert_allclose(numpy(values.quantiles), slow, rtol=1e-4, atol=1e-5)
    assert torch.equal(values.fractions, fractions)


@every_kind
def test_means_and_mixtures_match_those_of_the_quantiles(kind: str) -> None:
    module, fractions, rows = make_head(kind).eval(), torch.tensor([0.1, 0.2, 0.9]), features()
    quantiles = module.quantiles(rows, fractions)
    weights = torch.rand(B, NUM_ACTIONS).softmax(1)
    torch.testing.assert_close(module.means(rows, fractions), quantiles.mean(2))
    torch.testing.assert_close(module.mixed(rows, fractions, weights), (weights[:, :, None] * quantiles).sum(1))


def test_gradients_of_the_mixture_shortcut_match_those_of_explicit_quantiles() -> None:
    module, fractions = make_head(), torch.tensor([0.1, 0.2, 0.9])
    weights, rows = torch.rand(B, NUM_ACTIONS).softmax(1), features().requires_grad_()
    leaves = [rows, *module.parameters()]
    long = (weights[:, :, None] * module.quantiles(rows, fractions)).sum(1).square().sum()
    short = module.mixed(rows, fractions, weights).square().sum()
    for ours, theirs in zip(torch.autograd.grad(short, leaves), torch.autograd.grad(long, leaves), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_noise_changes_values_and_its_scale_gets_gradients() -> None:
    module = make_head("noisy")
    values = [module(features()).at_midpoints().values for _ in range(2)]
    assert not torch.allclose(*values)
    module(features()).of(torch.zeros(B, 1, dtype=torch.int64)).quantiles.sum().backward()
    assert module.numbers.layer.weight_sigma.grad.abs().sum() > 0


def test_one_fraction_is_drawn_uniformly_in_each_of_equal_intervals() -> None:
    module, action = make_head(), torch.zeros(B, 1, dtype=torch.int64)
    drawn = np.stack([numpy(module(features()).of(action).fractions) for _ in range(400)])
    parts = drawn * 8 - np.arange(8)
    assert parts.min() >= 0
    assert parts.max() <= 1
    # Each fraction is uniform within its interval and independent of the others.
    np.testing.assert_allclose(parts.mean(0), 0.5, atol=0.06)
    np.testing.assert_allclose(np.cov(parts.T), np.eye(8) / 12, atol=0.02)


def test_each_query_draws_new_fractions_which_all_actions_share() -> None:
    values = make_head()(features())
    action = torch.tensor([[0], [2], [1], [1], [0]])
    first, second = values.of(action), values.expectation(torch.full((B, NUM_ACTIONS), 1 / NUM_ACTIONS))
    assert first.quantiles.shape == second.quantiles.shape == (B, 8)
    assert not torch.equal(first.fractions, second.fractions)
    at = values.at(first.fractions)
    torch.testing.assert_close(first.quantiles, at.of(action).quantiles)
    torch.testing.assert_close(second.quantiles, values.at(second.fractions).quantiles.mean(1))
    assert values.values is values.values
    assert torch.equal(values.greedy(), values.values.argmax(1, keepdim=True))
    torch.testing.assert_close(values.advantage(values.greedy()), torch.zeros(B, 1))
    assert values.best().mean.shape == (B, 1)


def test_draws_depend_on_the_generator_state_and_targets_share_the_generator() -> None:
    module, action = make_head(), torch.zeros(B, 1, dtype=torch.int64)
    state = module.generator.get_state()
    first = module(features()).of(action).fractions
    target = make_target(module)
    assert target.generator is module.generator
    target.num_quantiles = 3
    module.generator.set_state(state)
    assert torch.equal(module(features()).of(action).fractions, first)
    assert target(features()).of(action).quantiles.shape == (B, 3)
    other = torch.Generator().manual_seed(4)
    before = module.generator.get_state()
    values = [module(features()).explorer_for(other.manual_seed(4)).values for _ in range(2)]
    assert torch.equal(*values)
    assert torch.equal(module.generator.get_state(), before)


def test_quantiles_at_midpoints_draw_no_random_numbers() -> None:
    module = make_head()
    before = module.generator.get_state()
    values = module(features()).at_midpoints()
    torch.testing.assert_close(values.values, values.at(torch.tensor([0.1, 0.3, 0.5, 0.7, 0.9])).values)
    assert torch.equal(module.generator.get_state(), before)


@pytest.mark.parametrize("risk", [CVaR(0.25), CPW()])
def test_a_risk_measure_distorts_only_the_fractions_that_choose_actions(risk: Any) -> None:
    module, rows = make_head(risk=risk), features()
    values = module(rows).at_midpoints()
    torch.testing.assert_close(values.values, module(rows).at(risk.distort(module.midpoints)).values)
    module.generator.manual_seed(3)
    drawn = (torch.arange(5) + torch.rand(5, generator=torch.Generator().manual_seed(3))) / 5
    torch.testing.assert_close(module(rows).values, module(rows).at(risk.distort(drawn)).values)
    fractions = values.of(torch.zeros(B, 1, dtype=torch.int64)).fractions
    assert fractions[-1] > 0.25


def test_a_users_layer_without_a_bias_is_accepted() -> None:
    class WithoutBias(prl.OffPolicyActor):
        def linear(self, inputs: int, outputs: int) -> nn.Module:
            return nn.Linear(inputs, outputs, bias=False)

    actor = WithoutBias.create_factory()("cpu", envs_with(spaces.Discrete(NUM_ACTIONS)))
    values = ImplicitQuantiles(num_quantiles=8).build(FEATURES, actor)(features())
    assert isinstance(values, ImplicitQuantileValues)
    assert values.best().quantiles.shape == (B, 8)


@every_kind
def test_all_tensors_stay_on_the_device_of_the_features(kind: str) -> None:
    # The meta device refuses operations with tensors of another device.
    module = make_head(kind).to("meta")
    values = module(torch.empty(B, FEATURES, device="meta"))
    action = values.greedy()
    target = values.at_midpoints().best().backup(values.values[:, :1], values.values[:, :1])
    assert values.of(action).loss(target).device.type == "meta"
    assert values.at(module.midpoints).expectation(values.values.softmax(1)).mean.device.type == "meta"
