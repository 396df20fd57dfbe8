"""Network outputs are computed on the device of their tensors: the meta device refuses tensors of another one."""

import pytest
import torch
from torch import Tensor

from pytorchrl.agent.actors.outputs.distributions import (
    Bernoulli,
    Categorical,
    DiagonalGaussian,
    Distribution,
    GaussianMixture,
    MultiCategorical,
    SquashedGaussian,
)
from pytorchrl.agent.actors.outputs.values import (
    ActionValues,
    CategoricalValues,
    QuantileValues,
    RescaledValues,
    ScalarValues,
    quantile_midpoints,
)

B = 3


def on_device(*shape: int) -> Tensor:
    return torch.empty(shape, device="meta", requires_grad=True)


@pytest.mark.parametrize(
    "distribution",
    [
        Categorical(on_device(B, 4)),
        MultiCategorical(on_device(B, 4), (2, 2), (2,)),
        Bernoulli(on_device(B, 4)),
        DiagonalGaussian(on_device(B, 4), on_device(4)),
        SquashedGaussian(on_device(B, 4), on_device(B, 4)),
        GaussianMixture(on_device(B, 2), on_device(B, 2, 4), on_device(4)),
    ],
    ids=lambda distribution: type(distribution).__name__,
)
def test_losses_of_distributions_stay_on_their_device(distribution: Distribution) -> None:
    generator, action = torch.Generator(), distribution.mode()
    loss = distribution.log_prob(action) + distribution.entropy() + distribution.kl(distribution.detach())
    if distribution.has_rsample:
        loss = loss + distribution.sample_with_log_prob(generator)[1] + distribution.rsample(generator, 2).sum()
    assert loss.device.type == "meta"
    loss.sum().backward()


@pytest.mark.parametrize(
    "values",
    [
        ScalarValues(on_device(B, 4)),
        RescaledValues(on_device(B, 4), 1e-3),
        QuantileValues(on_device(B, 4, 5), quantile_midpoints(5).to("meta")),
        CategoricalValues(on_device(7), on_device(B, 4, 7)),
    ],
    ids=lambda values: type(values).__name__,
)
def test_losses_of_values_stay_on_their_device(values: ActionValues) -> None:
    action = torch.empty(B, 1, dtype=torch.int64, device="meta")
    target = values.best().backup(on_device(B, 1), on_device(B, 1)).detach()
    loss, error = values.of(action).weighted_loss(on_device(B, 1), target)
    expected = values.expectation(on_device(B, 4)).error(target)
    assert {loss.device.type, error.device.type, expected.device.type, values.advantage(action).device.type} == {"meta"}
    loss.backward()
