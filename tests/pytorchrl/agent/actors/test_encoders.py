"""Built-in feature extractors compute the documented features of each kind of observation."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from gymnasium import spaces

from pytorchrl.agent.actors.bodies import Body
from pytorchrl.agent.actors.encoders import (
    DataEfficientConvolutions,
    DrQConvolutions,
    EmbeddingFeatures,
    ImpalaCNN,
    NatureCNN,
    NatureConvolutions,
    SmallCNN,
    VectorFeatures,
    described,
    features_of,
    output_size_of,
)
from pytorchrl.agent.actors.encoders.convolutions import (
    ImpalaConvolutions,
    SmallConvolutions,
    WideImpalaConvolutions,
    image_layout,
)
from pytorchrl.agent.actors.layers.mlp import MLP

IMAGE = spaces.Box(0, 255, (4, 84, 84), np.uint8)
MULTI_DISCRETE = spaces.MultiDiscrete([3, 2, 4], start=[1, 0, -1])


def make_features(space: Any, extractor: Any) -> Any:
    torch.manual_seed(0)
    return features_of(space, "orthogonal", extractor)


def test_the_impala_network_has_the_layers_of_its_paper() -> None:
    features = make_features(IMAGE, "impala_cnn")
    image = torch.randint(0, 256, (2, 4, 84, 84), dtype=torch.uint8)
    out = image.float() / 255
    modules = iter(features.convolutions)
    for channels in (16, 32, 32):
        convolution, _, *blocks = (next(modules) for _ in range(4))
        assert convolution.weight.shape[0] == channels
        out = F.max_pool2d(F.conv2d(out, convolution.weight, convolution.bias, padding=1), 3, 2, 1)
        for block in blocks:
            inside = F.conv2d(torch.relu(out), block.first.weight, block.first.bias, padding=1)
            out = out + F.conv2d(torch.relu(inside), block.second.weight, block.second.bias, padding=1)
    flat = torch.relu(out).flatten(1)
    assert flat.shape == (2, 32 * 11 * 11)
    torch.testing.assert_close(features(image), torch.relu(features.linear(flat)), rtol=1e-4, atol=1e-4)
    assert features.output_size == 256
    features(image).sum().backward()
    assert all(parameter.grad is not None for parameter in features.parameters())


@pytest.mark.parametrize("extractor", ["small_cnn", "impala_cnn"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.bool_, np.uint8])
@pytest.mark.parametrize("shape", [(10, 10, 4), (4, 10, 10)])
def test_small_images_give_equal_features_in_every_dtype_and_layout(extractor: Any, dtype: Any, shape: Any) -> None:
    reference = make_features(spaces.Box(0, 1, (4, 10, 10), np.float32), extractor)
    image = torch.rand(3, 4, 10, 10, generator=torch.Generator().manual_seed(0)) < 0.3
    features = make_features(spaces.Box(0, 1, shape, dtype), extractor)
    laid_out = image if shape[0] == 4 else image.movedim(1, -1)
    torch.testing.assert_close(features(laid_out.to(getattr(torch, np.dtype(dtype).name))), reference(image.float()))


def test_byte_images_are_scaled_by_the_upper_bound_of_their_space() -> None:
    full = make_features(spaces.Box(0, 255, (3, 8, 8), np.uint8), "small_cnn")
    few = make_features(spaces.Box(0, 5, (3, 8, 8), np.uint8), "small_cnn")
    image = torch.randint(0, 6, (2, 3, 8, 8), dtype=torch.uint8)
    torch.testing.assert_close(few(image), full(image * 51))


def test_multidiscrete_observations_become_concatenated_one_hot_vectors() -> None:
    features = make_features(MULTI_DISCRETE, "mlp")
    out = features(torch.tensor([[1, 1, -1], [3, 0, 2]]))
    expected = [[1, 0, 0, 0, 1, 1, 0, 0, 0], [0, 0, 1, 1, 0, 0, 0, 0, 1]]
    assert out.tolist() == expected
    assert out.dtype == torch.float32
    assert type(features) is type(make_features(MULTI_DISCRETE, "auto"))


def test_multidiscrete_observations_of_any_shape_become_one_hot_vectors() -> None:
    features = make_features(spaces.MultiDiscrete([[2, 3], [2, 2]]), "auto")
    assert features(torch.tensor([[[1, 2], [0, 1]]])).tolist() == [[0, 1, 0, 0, 1, 1, 0, 0, 1]]


def test_each_value_of_a_discrete_observation_has_an_embedding() -> None:
    features = make_features(spaces.Discrete(5, start=-2), "embedding")
    observation = torch.tensor([[-2], [2]])
    assert torch.equal(features(observation), features.table.weight[[0, 4]])
    assert features.output_size == 16
    features(observation).sum().backward()
    assert features.table.weight.grad.any(dim=1).tolist() == [True, False, False, False, True]


def test_each_entry_of_a_multidiscrete_observation_has_its_own_embeddings() -> None:
    features = EmbeddingFeatures(MULTI_DISCRETE, size=2)
    out = features(torch.tensor([[1, 1, -1], [3, 0, 2]]))
    weight = features.table.weight
    assert torch.equal(out, torch.stack([weight[[0, 4, 5]].flatten(), weight[[2, 3, 8]].flatten()]))


def test_the_size_of_an_embedding_can_be_chosen() -> None:
    body = Body(spaces.Discrete(5), (4,), "relu", "uniform", extractor=lambda space: EmbeddingFeatures(space, size=3))
    assert body.features.output_size == 3
    assert body(torch.zeros(2, 1, dtype=torch.int64)).shape == (2, 4)


@pytest.mark.parametrize(
    ("space", "observation", "expected"),
    [
        (spaces.Box(-1, 1, (), np.float64), torch.tensor([[0.5], [1.0]], dtype=torch.float64), [[0.5], [1.0]]),
        (spaces.Discrete(9), torch.tensor([[7], [2]]), [[7.0], [2.0]]),
        (MULTI_DISCRETE, torch.tensor([[1, 1, -1]]), [[1.0, 1.0, -1.0]]),
        (spaces.MultiBinary((1, 2)), torch.tensor([[[1, 0]]], dtype=torch.int8), [[1.0, 0.0]]),
        (spaces.Box(0, 255, (2, 2), np.uint8), torch.tensor([[[9, 8], [7, 6]]], dtype=torch.uint8), [[9.0, 8, 7, 6]]),
    ],
)
def test_the_identity_extractor_returns_the_numbers_unchanged(
    space: Any, observation: torch.Tensor, expected: Any
) -> None:
    out = make_features(space, "identity")(observation)
    assert out.tolist() == expected
    assert out.dtype == torch.float32


def test_a_box_observation_without_axes_is_one_number() -> None:
    body = Body(spaces.Box(-1, 1, (), np.float32), (4,), "relu", "uniform")
    assert body(torch.zeros(3, 1)).shape == (3, 4)
    assert described(spaces.Box(-1, 1, (), np.float32), "auto") == "vector of 1 number"


@pytest.mark.quick_share(0.5)
@pytest.mark.parametrize(
    ("extractor", "name"),
    [
        (NatureCNN, "nature_cnn"),
        (SmallCNN, "small_cnn"),
        (ImpalaCNN, "impala_cnn"),
        (NatureConvolutions, "nature_convolutions"),
        (SmallConvolutions, "small_convolutions"),
        (ImpalaConvolutions, "impala_convolutions"),
        (WideImpalaConvolutions, "wide_impala_convolutions"),
        (DataEfficientConvolutions, "data_efficient_convolutions"),
        (DrQConvolutions, "drq_convolutions"),
        (EmbeddingFeatures, "embedding"),
        (VectorFeatures, "identity"),
        (MLP, "mlp"),
    ],
)
def test_an_extractor_class_and_its_name_are_equivalent(extractor: Any, name: Any) -> None:
    space = spaces.Dict(view=IMAGE, gear=spaces.Discrete(5), speed=spaces.Box(-1, 1, (2,), np.float32))
    by_class, by_name = make_features(space, extractor), make_features(space, name)
    assert [type(part) for part in by_class.parts] == [type(part) for part in by_name.parts]
    assert described(space, extractor) == described(space, name)


def test_nature_convolutions_equal_those_of_nature_cnn() -> None:
    alone, whole = make_features(IMAGE, "nature_convolutions"), make_features(IMAGE, "nature_cnn")
    alone.convolutions.load_state_dict(whole.convolutions.state_dict())
    image = torch.randint(0, 256, (2, *IMAGE.shape), dtype=torch.uint8)
    assert output_size_of(alone) == 3136
    torch.testing.assert_close(torch.relu(whole.linear(alone(image))), whole(image))
    assert described(IMAGE, "nature_convolutions").startswith("NatureConvolutions of 84 x 84 pixels")


@pytest.mark.parametrize(
    ("name", "whole", "maps"),
    [
        ("small_convolutions", "small_cnn", (16, 82, 82)),
        ("impala_convolutions", "impala_cnn", (32, 11, 11)),
        ("nature_convolutions", "nature_cnn", (64, 7, 7)),
    ],
)
def test_convolutions_alone_have_the_maps_that_a_linear_layer_reads(
    name: Any, whole: Any, maps: tuple[int, int, int]
) -> None:
    alone, network = make_features(IMAGE, name), make_features(IMAGE, whole)
    assert (alone.maps, network.maps) == (maps, None)
    assert alone.output_size == network.linear.in_features
    alone.convolutions.load_state_dict(network.convolutions.state_dict())
    image = torch.randint(0, 256, (1, *IMAGE.shape), dtype=torch.uint8)
    torch.testing.assert_close(torch.relu(network.linear(alone(image))), network(image))


def test_wide_convolutions_of_impala_have_four_times_the_channels() -> None:
    assert make_features(spaces.Box(0, 255, (3, 16, 16), np.uint8), "wide_impala_convolutions").maps == (128, 2, 2)


def test_data_efficient_convolutions_see_each_pixel_once_and_have_the_papers_features() -> None:
    module = make_features(IMAGE, "data_efficient_convolutions")
    assert output_size_of(module) == 64 * 3 * 3
    image = torch.randint(0, 256, (2, *IMAGE.shape), dtype=torch.uint8)
    first, second = (layer for layer in module.convolutions if isinstance(layer, torch.nn.Conv2d))
    # A stride of the size of the kernel makes a convolution a linear layer of each patch.
    patches = torch.nn.functional.unfold(image.float() / 255, 5, stride=5)
    hidden = torch.relu(first.weight.flatten(1) @ patches + first.bias[:, None]).view(2, 32, 16, 16)
    patches = torch.nn.functional.unfold(hidden, 5, stride=5)
    expected = torch.relu(second.weight.flatten(1) @ patches + second.bias[:, None])
    torch.testing.assert_close(module(image), expected.flatten(1), rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="DataEfficientConvolutions: images must be at least 25 pixels"):
        make_features(spaces.Box(0, 255, (3, 24, 24), np.uint8), "data_efficient_convolutions")


def test_drq_convolutions_see_pixels_around_zero_and_have_the_papers_features() -> None:
    module = make_features(IMAGE, "drq_convolutions")
    assert output_size_of(module) == 32 * 35 * 35
    image = torch.randint(0, 256, (2, *IMAGE.shape), dtype=torch.uint8)
    convolutions = [layer for layer in module.convolutions if isinstance(layer, torch.nn.Conv2d)]
    out = image.float() / 255 - 0.5
    for layer, stride in zip(convolutions, (2, 1, 1, 1), strict=True):
        out = torch.relu(torch.nn.functional.conv2d(out, layer.weight, layer.bias, stride))
    torch.testing.assert_close(module(image), out.flatten(1), rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="DrQConvolutions: images must be at least 15 pixels"):
        make_features(spaces.Box(0, 255, (3, 14, 14), np.uint8), "drq_convolutions")


def test_a_named_extractor_is_used_for_the_parts_of_a_dict_that_it_fits() -> None:
    space = spaces.Dict(view=IMAGE, gear=spaces.Discrete(5), speed=spaces.Box(-1, 1, (2,), np.float32))
    assert described(space, "embedding") == (
        "'view': NatureCNN of 84 x 84 pixels in 4 channels, 'gear': embedding of one of 5, 'speed': vector of 2 numbers"
    )
    assert "'view': ImpalaCNN of 84 x 84" in described(space, "impala_cnn")
    assert "'gear': one of 5" in described(space, "impala_cnn")
    assert "'gear': vector of 1 number" in described(space, "identity")
    assert described(MULTI_DISCRETE, "auto") == "one of 3, 2, 4"
    assert output_size_of(make_features(space, "embedding")) == 512 + 16 + 2


@pytest.mark.parametrize(
    ("space", "extractor", "message"),
    [
        (IMAGE, "embedding", "EmbeddingFeatures: the space must be Discrete or MultiDiscrete, got Box"),
        (spaces.Discrete(3), "nature_cnn", "NatureCNN: images must be at least 36 pixels"),
        (
            spaces.Dict(a=IMAGE),
            "embedding",
            "'embedding' is for Discrete and MultiDiscrete observations, there are none",
        ),
        (spaces.Dict(a=spaces.Discrete(3)), "impala_cnn", "'impala_cnn' is for images, there are none"),
        (spaces.Tuple([IMAGE]), "auto", "feature_extractor 'auto': observations must be arrays or dicts of arrays"),
    ],
)
def test_an_extractor_that_does_not_fit_the_space_is_refused(space: Any, extractor: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_features(space, extractor)


EVERY_KIND = [
    (IMAGE, "nature_cnn"),
    (IMAGE, "impala_cnn"),
    (spaces.MultiBinary((6, 7, 2)), "auto"),
    (spaces.Discrete(5, start=2), "mlp"),
    (spaces.Discrete(5, start=2), "embedding"),
    (MULTI_DISCRETE, "mlp"),
    (MULTI_DISCRETE, "embedding"),
    (spaces.Box(-1, 1, (), np.float64), "identity"),
    (spaces.Dict(view=IMAGE, gear=spaces.Discrete(5)), "small_cnn"),
]


def observations_of(space: Any, device: str) -> Any:
    if isinstance(space, spaces.Dict):
        return {name: observations_of(part, device) for name, part in space.spaces.items()}
    space.seed(0)
    rows = np.stack([np.asarray(space.sample()).reshape(space.shape or (1,)) for _ in range(3)])
    return torch.as_tensor(rows, device=device)


@pytest.mark.parametrize(("space", "extractor"), EVERY_KIND)
def test_features_are_computed_without_reading_values_back_from_the_device(space: Any, extractor: Any) -> None:
    features = make_features(space, extractor).to("meta")
    assert features(observations_of(space, "meta")).shape == (3, output_size_of(features))


@pytest.mark.gpu
@pytest.mark.parametrize(("space", "extractor"), EVERY_KIND)
def test_features_on_a_gpu_match_those_on_the_cpu(space: Any, extractor: Any) -> None:
    features = make_features(space, extractor)
    expected = features(observations_of(space, "cpu"))
    out = features.to("cuda")(observations_of(space, "cuda"))
    torch.testing.assert_close(out.cpu(), expected, atol=1e-2, rtol=1e-2)


@pytest.mark.parametrize(
    ("shape", "channels_last"),
    [
        ((10, 10, 10), True), ((10, 10, 4), True), ((5, 5, 20), True), ((84, 84, 1), True), ((4, 84, 84), False),
        ((20, 5, 5), False), ((84, 10, 10), False), ((3, 60, 80), False), ((60, 80, 3), True), ((2, 84, 84, 3), True),
    ],
)  # fmt: skip
def test_two_axes_of_equal_length_are_height_and_width(shape: tuple[int, ...], channels_last: bool) -> None:
    layout = image_layout(spaces.Box(0, 1, shape, np.bool_))
    assert layout is not None
    assert layout.channels_last == channels_last
    image = torch.arange(float(np.prod(shape))).reshape(1, *shape)
    assert layout.channels_first(image).shape == (1, layout.channels, layout.height, layout.width)
