"""Network outputs are computed on the device of their tensors: the meta device refuses tensors of another one."""

from collections.abc import Callable, Mapping

import pytest
import torch
from torch import Tensor

from pytorchrl.agent.actors.outputs import (
    ActionValues,
    Bernoulli,
    Categorical,
    CategoricalValues,
    DiagonalGaussian,
    Distribution,
    GaussianMixture,
    MultiCategorical,
    QuantileValues,
    RescaledValues,
    ScalarValues,
    SquashedGaussian,
    quantile_midpoints,
)

B = 3


def on_device(*shape: int) -> Tensor:
    return torch.empty(shape, device="meta", requires_grad=True)


DISTRIBUTIONS: Mapping[str, Callable[[], Distribution]] = {
    "Categorical": lambda: Categorical(on_device(B, 4)),
    "MultiCategorical": lambda: MultiCategorical(on_device(B, 4), (2, 2), (2,)),
    "Bernoulli": lambda: Bernoulli(on_device(B, 4)),
    "DiagonalGaussian": lambda: DiagonalGaussian(on_device(B, 4), on_device(4)),
    "SquashedGaussian": lambda: SquashedGaussian(on_device(B, 4), on_device(B, 4)),
    "GaussianMixture": lambda: GaussianMixture(on_device(B, 2), on_device(B, 2, 4), on_device(4)),
}
VALUES: Mapping[str, Callable[[], ActionValues]] = {
    "ScalarValues": lambda: ScalarValues(on_device(B, 4)),
    "RescaledValues": lambda: RescaledValues(on_device(B, 4), 1e-3),
    "QuantileValues": lambda: QuantileValues(on_device(B, 4, 5), quantile_midpoints(5).to("meta")),
    "CategoricalValues": lambda: CategoricalValues(on_device(7), on_device(B, 4, 7)),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_losses_of_distributions_stay_on_their_device(name: str) -> None:
    distribution = DISTRIBUTIONS[name]()
    generator, action = torch.Generator(), distribution.mode()
    loss = distribution.log_prob(action) + distribution.entropy() + distribution.kl(distribution.detach())
    if distribution.has_rsample:
        loss = loss + distribution.sample_with_log_prob(generator)[1] + distribution.rsample(generator, 2).sum()
    assert loss.device.type == "meta"
    loss.sum().backward()


@pytest.mark.parametrize("name", VALUES)
def test_losses_of_values_stay_on_their_device(name: str) -> None:
    values = VALUES[name]()
    action = torch.empty(B, 1, dtype=torch.int64, device="meta")
    target = values.best().backup(on_device(B, 1), on_device(B, 1)).detach()
    loss, error = values.of(action).weighted_loss(on_device(B, 1), target)
    expected = values.expectation(on_device(B, 4)).error(target)
    assert {loss.device.type, error.device.type, expected.device.type, values.advantage(action).device.type} == {"meta"}
    loss.backward()
