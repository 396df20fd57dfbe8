"""Images of every size and layout are convolved by default, and the actor's repr names its feature extractors."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import pytorchrl as prl
from pytorchrl.agent.actors.bodies import Body
from pytorchrl.agent.actors.encoders import NatureCNN, SmallCNN, VectorFeatures
from pytorchrl.agent.actors.heads import Policy
from pytorchrl.agent.actors.network import Network

IMAGES: dict[str, tuple[Any, type, int]] = {
    "MinAtar, floats": (spaces.Box(0, 1, (10, 10, 4), np.float32), SmallCNN, 4),
    "MinAtar, booleans": (spaces.Box(0, 1, (10, 10, 6), np.bool_), SmallCNN, 6),
    "MinAtar, channels first": (spaces.Box(0, 1, (4, 10, 10), np.float64), SmallCNN, 4),
    "multibinary": (spaces.MultiBinary((6, 7, 2)), SmallCNN, 2),
    "MiniGrid": (spaces.Box(0, 255, (7, 7, 3), np.uint8), SmallCNN, 3),
    "large floats": (spaces.Box(0, 1, (40, 50, 3), np.float32), NatureCNN, 3),
    "Atari": (spaces.Box(0, 255, (4, 84, 84), np.uint8), NatureCNN, 4),
    "one grey frame": (spaces.Box(0, 255, (84, 84), np.uint8), NatureCNN, 1),
    "stacked colours": (spaces.Box(0, 255, (4, 64, 64, 3), np.uint8), NatureCNN, 12),
    "stacked, channels first": (spaces.Box(0, 255, (4, 3, 64, 64), np.uint8), NatureCNN, 12),
}
NO_IMAGES = {
    "vector": spaces.Box(0, 1, (84,), np.float32),
    "matrix": spaces.Box(-1, 1, (4, 10), np.float32),
    "small matrix of bytes": spaces.Box(0, 255, (8, 8), np.uint8),
    "unbounded": spaces.Box(-np.inf, np.inf, (10, 10, 4), np.float32),
    "too small to convolve": spaces.Box(0, 255, (2, 2, 3), np.uint8),
}


def actor_of(observation: Any, **arguments: Any) -> tuple[prl.Actor, Network]:
    envs: Any = SimpleNamespace(observation_space=observation, action_space=spaces.Discrete(3))
    actor = prl.OnPolicyActor.create_factory(hidden_sizes=(8,), **arguments)("cpu", envs)
    return actor, actor.make("policy", Policy())


def features_of(network: Network) -> Any:
    assert isinstance(network.body, Body)
    return network.body.features


def batch_of(space: Any, size: int = 3) -> torch.Tensor:
    space.seed(0)
    return torch.from_numpy(np.stack([space.sample() for _ in range(size)]))


@pytest.mark.parametrize("name", IMAGES)
def test_images_are_convolved_by_the_network_for_their_size(name: str) -> None:
    space, network, channels = IMAGES[name]
    actor, policy = actor_of(space)
    assert type(features_of(policy)) is network
    assert features_of(policy).convolutions[0].in_channels == channels
    assert policy(actor.view(batch_of(space))).mode().shape == (3, 1)
    assert f"{network.__name__} of" in repr(actor)


@pytest.mark.parametrize("name", NO_IMAGES)
def test_observations_that_are_not_images_are_read_as_vectors(name: str) -> None:
    space = NO_IMAGES[name]
    actor, policy = actor_of(space)
    assert isinstance(features_of(policy), VectorFeatures)
    assert policy(actor.view(batch_of(space))).mode().shape == (3, 1)
    assert f"observations: vector of {np.prod(space.shape)} numbers" in repr(actor)


@pytest.mark.parametrize("name", ["stacked colours", "MinAtar, floats"])
def test_each_channel_reaches_the_convolutions_as_a_plane_in_every_layout(name: str) -> None:
    space, network, channels = IMAGES[name]
    features = network(space)
    seen: list[torch.Tensor] = []
    features.convolutions.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    observation = batch_of(space)
    features(observation)
    scale = 255 if space.dtype == np.uint8 else 1
    for channel in range(channels):
        plane = observation[:, channel // 3, :, :, channel % 3] if len(space.shape) == 4 else observation[..., channel]
        torch.testing.assert_close(seen[0][:, channel], plane / scale)


def test_byte_images_given_as_floats_are_scaled_and_not_modified() -> None:
    space, network, _ = IMAGES["Atari"]
    features = network(space)
    observation = batch_of(space)
    floats = observation.float()
    # With gradients, images may first be copied to another memory layout, which would hide a change in place.
    with torch.no_grad():
        torch.testing.assert_close(features(floats), features(observation))
    assert torch.equal(floats, observation.float())


def test_the_extractor_can_be_chosen() -> None:
    image = IMAGES["Atari"][0]
    assert isinstance(features_of(actor_of(image, feature_extractor="mlp")[1]), VectorFeatures)
    assert isinstance(features_of(actor_of(image, feature_extractor="small_cnn")[1]), SmallCNN)
    assert isinstance(features_of(actor_of(NO_IMAGES["unbounded"], feature_extractor="small_cnn")[1]), SmallCNN)
    with pytest.raises(ValueError, match=r"NatureCNN: images must be at least 36 pixels .* the space is Box\(0, 255"):
        actor_of(IMAGES["MiniGrid"][0], feature_extractor="nature_cnn")
    with pytest.raises(ValueError, match="SmallCNN: images must be"):
        actor_of(NO_IMAGES["vector"], feature_extractor="small_cnn")
    with pytest.raises(ValueError, match=r"feature_extractor must be one of 'auto', 'mlp', 'nature_cnn', 'small_cnn'"):
        prl.OnPolicyActor.create_factory(feature_extractor="cnn")


def test_a_chosen_network_applies_only_to_the_images_of_a_dict() -> None:
    space = spaces.Dict(view=IMAGES["Atari"][0], speed=spaces.Box(-1, 1, (2,)), gear=spaces.Discrete(5))
    actor, _ = actor_of(space, feature_extractor="small_cnn")
    assert "'view': SmallCNN of 84 x 84 pixels in 4 channels" in actor.reads
    assert "'speed': vector of 2 numbers" in actor.reads
    assert "'gear': one of 5" in actor.reads
    with pytest.raises(ValueError, match="feature_extractor 'small_cnn' is for images, there are none"):
        actor_of(spaces.Dict(speed=spaces.Box(-1, 1, (2,))), feature_extractor="small_cnn")
