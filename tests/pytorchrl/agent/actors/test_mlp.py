"""Fully connected layers with dropout, normalisation and noise compute what torch's own modules do."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from pytorchrl.agent.actors.layers.mlp import MLP, BatchNorm, BatchRenorm, Dropout

EXTRAS: dict[str, dict[str, Any]] = {
    "plain": {},
    "layer norm": {"layer_norm": True},
    "batch norm": {"batch_norm": True},
    "batch renorm": {"batch_renorm_warmup": 3},
    "dropout": {"dropout": 0.3},
    "noisy": {"noisy": True},
    "all": {"layer_norm": True, "dropout": 0.3, "noisy": True},
}


def features(rows: int = 6) -> torch.Tensor:
    return torch.randn(rows, 3, generator=torch.Generator().manual_seed(0))


def make_mlp(seed: int = 0, **extras: Any) -> MLP:
    torch.manual_seed(seed)
    return MLP(3, (5, 4), generator=torch.Generator().manual_seed(seed), **extras)


@pytest.mark.parametrize("name", EXTRAS)
def test_equal_seeds_give_equal_features_and_every_parameter_gets_a_gradient(name: str) -> None:
    one, two = make_mlp(**EXTRAS[name]), make_mlp(**EXTRAS[name])
    out = one(features())
    assert out.shape == (6, 4)
    assert torch.equal(out, two(features()))
    (out * torch.arange(24.0).view(6, 4)).sum().backward()
    for parameter_name, parameter in one.named_parameters():
        assert parameter.grad is not None, parameter_name


@pytest.mark.parametrize("name", EXTRAS)
def test_evaluation_is_deterministic_and_changes_no_state(name: str) -> None:
    mlp = make_mlp(**EXTRAS[name])
    mlp(features())
    mlp.eval()
    before = copy.deepcopy(mlp.state_dict())
    out = mlp(features())
    assert torch.equal(mlp(features()), out)
    torch.testing.assert_close(torch.cat([mlp(row[None]) for row in features()]), out)
    for key, value in mlp.state_dict().items():
        assert torch.equal(value, before[key])


def test_layer_norm_is_applied_before_the_activation() -> None:
    mlp = make_mlp(layer_norm=True)
    expected = features()
    for layer in mlp.layers:
        expected = torch.relu(F.layer_norm(layer(expected), (layer.out_features,)))  # type: ignore[arg-type]
    torch.testing.assert_close(mlp(features()), expected)


def test_batch_norm_matches_torch() -> None:
    mlp, norms = make_mlp(batch_norm=True), [nn.BatchNorm1d(5), nn.BatchNorm1d(4)]
    expected = features()
    for layer, norm in zip(mlp.layers, norms, strict=True):
        expected = torch.relu(norm(layer(expected)))
    torch.testing.assert_close(mlp(features()), expected)
    for ours, norm in zip(mlp.norms, norms, strict=True):
        torch.testing.assert_close(ours.running_mean, norm.running_mean)
        torch.testing.assert_close(ours.running_var, norm.running_var)
    assert {"norms.0.running_mean", "norms.1.running_var"} <= set(dict(mlp.named_buffers()))


def test_batch_norm_uses_running_statistics_while_acting_in_training_mode() -> None:
    norm = BatchNorm(3)
    norm(features())
    statistics = copy.deepcopy(norm.state_dict())
    with torch.no_grad():
        one = norm(features()[:1])
    assert torch.equal(one, norm.eval()(features()[:1]))
    for key, value in norm.state_dict().items():
        assert torch.equal(value, statistics[key])


def test_batch_renormalisation_matches_the_algorithm_of_its_paper() -> None:
    """Ioffe (arXiv 1702.03275), algorithm 1, in double precision."""
    norm = BatchRenorm(3, warmup=2)
    with torch.no_grad():
        norm.weight.copy_(torch.tensor([0.5, 2.0, -1.0]))
        norm.bias.copy_(torch.tensor([0.1, -0.2, 0.3]))
    mean, variance = np.zeros(3), np.ones(3)
    generator = np.random.default_rng(0)
    for number in range(6):
        # From the third batch on, the features are so far off that one scale and one shift are clipped.
        batch = generator.normal([0.0, 30.0, 1.0], [1.0, 2.0, 20.0 if number > 1 else 1.0], (8, 3))
        deviation, running = np.sqrt(batch.var(0) + 1e-3), np.sqrt(variance + 1e-3)
        scale, shift = np.ones(3), np.zeros(3)
        if number >= 2:
            scale = np.clip(deviation / running, 1 / 3, 3)
            shift = np.clip((batch.mean(0) - mean) / running, -5, 5)
        expected = (batch - batch.mean(0)) / deviation * scale + shift
        expected = expected * norm.weight.detach().double().numpy() + norm.bias.detach().double().numpy()
        out = norm(torch.tensor(batch, dtype=torch.float32))
        np.testing.assert_allclose(out.detach().numpy(), expected, rtol=1e-3, atol=1e-4)
        mean = 0.99 * mean + 0.01 * batch.mean(0)
        variance = 0.99 * variance + 0.01 * batch.var(0, ddof=1)
    np.testing.assert_allclose(norm.running_mean, mean, rtol=1e-4)
    np.testing.assert_allclose(norm.running_var, variance, rtol=1e-4)
    with torch.no_grad():
        alone = norm(torch.tensor(batch[:1], dtype=torch.float32))
    weight, bias = norm.weight.detach().double().numpy(), norm.bias.detach().double().numpy()
    expected = (batch[:1] - mean) / np.sqrt(variance + 1e-3) * weight + bias
    np.testing.assert_allclose(alone.numpy(), expected, rtol=1e-3, atol=1e-4)


def test_batch_renormalisation_is_applied_to_inputs_and_activations() -> None:
    mlp = make_mlp(batch_renorm_warmup=0)
    norms = copy.deepcopy(list(mlp.renorms))
    assert [norm.num_features for norm in norms] == [3, 5, 4]
    expected = norms[0](features())
    for layer, norm in zip(mlp.layers, norms[1:], strict=True):
        expected = norm(torch.relu(layer(expected)))
    torch.testing.assert_close(mlp(features()), expected)


def test_dropout_zeroes_a_fraction_and_scales_the_rest() -> None:
    dropout = Dropout(0.25, torch.Generator().manual_seed(0))
    out = dropout(torch.ones(200, 200))
    assert set(out.unique().tolist()) == {0.0, torch.tensor(1 / 0.75).item()}
    assert (out == 0).float().mean().item() == pytest.approx(0.25, abs=0.01)


def test_random_numbers_come_from_the_generator_alone() -> None:
    mlp = make_mlp(dropout=0.5, noisy=True)
    before = torch.get_rng_state()
    mlp(features())
    assert torch.equal(torch.get_rng_state(), before)


def test_dropout_draws_on_the_device_of_the_features() -> None:
    mlp = make_mlp(dropout=0.5, batch_norm=True).to("meta")
    assert mlp(features().to("meta")).shape == (6, 4)


def test_conflicting_or_out_of_range_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="layer_norm and batch_norm exclude each other"):
        MLP(3, (4,), layer_norm=True, batch_norm=True)
    with pytest.raises(ValueError, match="batch_renorm_warmup already normalises batches; leave out batch_norm"):
        MLP(3, (4,), batch_norm=True, batch_renorm_warmup=10)
    with pytest.raises(ValueError, match=r"Dropout: the probability must lie in \[0, 1\), got 1.0"):
        MLP(3, (4,), dropout=1.0)


@pytest.mark.gpu
def test_dropout_and_noise_on_a_gpu_draw_from_a_gpu_generator() -> None:
    mlps = [
        MLP(3, (5, 4), dropout=0.3, noisy=True, generator=torch.Generator("cuda").manual_seed(0)).to("cuda")
        for _ in range(2)
    ]
    mlps[1].load_state_dict(mlps[0].state_dict())
    assert torch.equal(*(mlp(features().to("cuda")) for mlp in mlps))
