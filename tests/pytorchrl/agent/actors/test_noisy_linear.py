"""Noisy layers compute what Fortunato et al. write, with noise from the generator that they are given."""

import math
import pickle

import pytest
import torch
import torch.nn.functional as F

import pytorchrl as prl
from pytorchrl.agent.actors.heads import Values
from pytorchrl.agent.actors.layers.linear_layers import NoisyLinear, orthogonal
from pytorchrl.agent.actors.layers.mlp import MLP
from pytorchrl.agent.actors.network import make_target


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# Noise is applied to the products of few rows, and to the weights for many.
FEW_AND_MANY = pytest.mark.parametrize("rows", [4, 40])


@FEW_AND_MANY
def test_a_noisy_layer_computes_equations_9_to_11(rows: int) -> None:
    layer = NoisyLinear(3, 2, generator(5))
    features = torch.randn(rows, 3)
    drawn = torch.empty(5).normal_(generator=generator(5))
    scaled = drawn.sign() * drawn.abs().sqrt()
    noise_in, noise_out = scaled[:3], scaled[3:]
    weight = layer.weight + layer.weight_sigma * torch.outer(noise_out, noise_in)
    bias = layer.bias + layer.bias_sigma * noise_out
    torch.testing.assert_close(layer(features), features @ weight.T + bias)


def test_means_and_noise_are_initialised_as_in_the_paper() -> None:
    layer = NoisyLinear(16, 500)
    assert torch.all(layer.weight_sigma == 0.5 / 4)
    assert torch.all(layer.bias_sigma == 0.5 / 4)
    for mean in (layer.weight, layer.bias):
        assert mean.abs().max() <= 1 / 4
        assert mean.std().item() == pytest.approx(2 / 4 / math.sqrt(12), rel=0.1)


def test_the_initial_noise_scale_is_a_hyper_parameter_of_the_actor() -> None:
    envs = prl.VecEnv("CartPole-v1")
    actor = prl.OffPolicyActor.create_factory(hidden_sizes=(16,), noisy=True, noisy_sigma=0.1)("cpu", envs)
    network = actor.make("q", Values())
    layers = [module for module in network.modules() if isinstance(module, NoisyLinear)]
    assert [layer.weight_sigma.unique().item() for layer in layers] == pytest.approx([0.1 / 2, 0.1 / 4])
    with pytest.raises(ValueError, match="OffPolicyActor: noisy_sigma must be greater than 0, got 0"):
        prl.OffPolicyActor.create_factory(noisy_sigma=0.0)


@FEW_AND_MANY
def test_all_rows_of_a_batch_share_the_noise_and_each_pass_draws_new_noise(rows: int) -> None:
    layer = NoisyLinear(3, 2, generator())
    features = torch.ones(rows, 3)
    first, second = layer(features), layer(features)
    torch.testing.assert_close(first, first[:1].expand(rows, 2))
    assert not torch.allclose(first, second)


def test_evaluation_has_no_noise_and_draws_no_random_numbers() -> None:
    drawing = generator()
    layer = NoisyLinear(3, 2, drawing).eval()
    before = drawing.get_state()
    features = torch.randn(4, 3)
    assert torch.equal(layer(features), F.linear(features, layer.weight, layer.bias))
    assert torch.equal(drawing.get_state(), before)


@FEW_AND_MANY
def test_gradients_reach_means_and_noise(rows: int) -> None:
    layer = NoisyLinear(3, 2, generator())
    layer(torch.randn(rows, 3)).sum().backward()
    for name, parameter in layer.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.any(), name


def test_a_target_draws_from_the_same_generator() -> None:
    drawing = generator()
    layer = MLP(3, (4, 2), noisy=True, dropout=0.5, generator=drawing)
    copied = make_target(layer)
    assert [part.generator for part in copied.modules() if hasattr(part, "generator")] == [drawing] * 3
    features = torch.randn(4, 3)
    state = drawing.get_state()
    expected = layer(features)
    drawing.set_state(state)
    assert torch.equal(copied(features), expected)
    assert all(one is not two for one, two in zip(layer.parameters(), copied.parameters(), strict=True))


def test_a_noisy_layer_can_be_pickled() -> None:
    layer = NoisyLinear(3, 2, generator())
    features = torch.randn(4, 3)
    other = pickle.loads(pickle.dumps(layer))
    assert torch.equal(other(features), layer(features))


def test_the_mean_weights_can_be_initialised_orthogonally() -> None:
    layer = NoisyLinear(4, 4)
    orthogonal(layer, 2.0)
    torch.testing.assert_close(layer.weight @ layer.weight.T, 4 * torch.eye(4))
    assert not layer.bias.any()
    assert layer.weight_sigma.all()


def test_noise_is_drawn_on_the_device_of_the_layer() -> None:
    layer = NoisyLinear(3, 2, generator()).to("meta")
    assert layer(torch.empty(4, 3, device="meta")).device.type == "meta"
