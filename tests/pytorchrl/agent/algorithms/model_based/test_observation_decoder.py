"""World models predict observations of every space: compressed numbers, choices as one-hot vectors, and pixels."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

import pytorchrl as prl
from pytorchrl.agent.actors.encoders import some_observations
from pytorchrl.agent.actors.view import Observations
from pytorchrl.agent.algorithms.model_based.observation_decoder import (
    ObservationHead,
    ObservationTargets,
    SymlogObservations,
    squared_error,
)
from pytorchrl.agent.ops.two_hot import symlog
from tests.support.every_algorithm import ACTIONS

BITS = spaces.Box(0, 1, (10, 10, 4), np.bool_)
OBSERVATIONS: dict[str, Any] = {
    "vector": spaces.Box(-np.inf, np.inf, (3,), np.float32),
    "float64": spaces.Box(-np.inf, np.inf, (3,), np.float64),
    "number": spaces.Box(-1, 1, (), np.float32),
    "matrix": spaces.Box(-1, 1, (2, 3), np.float32),
    "integers": spaces.Box(-500, 500, (3,), np.int64),
    "bits of a game": BITS,
    "pixels": spaces.Box(0, 255, (64, 48, 3), np.uint8),
    "stacked pixels": spaces.Box(0, 255, (2, 84, 84), np.uint8),
    "small pixels": spaces.Box(-1, 1, (4, 5, 5), np.float32),
    "choice": spaces.Discrete(4, start=-2),
    "choices": spaces.MultiDiscrete([3, 2]),
    "bits": spaces.MultiBinary(3),
}
OBSERVATIONS["dict"] = spaces.Dict({name.replace(" ", "_"): space for name, space in OBSERVATIONS.items()})
SHAPES: dict[str, tuple[int, ...]] = {
    "vector": (3,),
    "float64": (3,),
    "number": (1,),
    "matrix": (6,),
    "integers": (3,),
    "bits of a game": (4, 10, 10),
    "pixels": (3, 64, 48),
    "stacked pixels": (2, 84, 84),
    "small pixels": (4, 5, 5),
    "choice": (4,),
    "choices": (5,),
    "bits": (3,),
}
ROWS = 5


def made(name: str, **actor: Any) -> tuple[Any, Any]:
    """An algorithm for observations of a space, and some of them."""

    class Envs:
        num_envs, stacked_frames = 1, 0
        observation_space, action_space = OBSERVATIONS[name], ACTIONS["discrete"]

    body = prl.OffPolicyActor.create_factory(hidden_sizes=(8,), memory="gru", memory_size=5, **actor)("cpu", Envs())
    algorithm = prl.DreamerV3.create_factory(num_latents=2, num_classes=3, num_bins=9)("cpu", body, Envs())
    return algorithm, some_observations(Envs.observation_space, ROWS, torch.device("cpu"))


@pytest.mark.parametrize("name", OBSERVATIONS)
def test_a_model_predicts_what_it_is_shown(name: str) -> None:
    algorithm, seen = made(name)
    model = algorithm.model
    targets = model.targets(seen)
    predicted = model.decoder(Observations(torch.zeros(ROWS, model.num_features)))
    expected = [SHAPES[name]] if name != "dict" else None
    assert [part.shape for part in predicted] == [part.shape for part in targets]
    assert expected is None or [tuple(part.shape[1:]) for part in targets] == expected
    assert all(part.dtype == torch.float32 for part in targets)
    latent = model.latent_of(torch.zeros(ROWS, 5), seen, lambda logits: logits.argmax(-1))
    assert latent.features.shape == (ROWS, model.num_features)
    error = squared_error(predicted, targets)
    assert error.shape == (ROWS, 1)
    by_hand = sum(
        ((ours - theirs) ** 2).reshape(ROWS, -1).sum(1) for ours, theirs in zip(predicted, targets, strict=True)
    )
    torch.testing.assert_close(error[:, 0], by_hand)


def test_numbers_are_compressed_and_choices_are_not() -> None:
    space = spaces.Dict({"numbers": spaces.Box(-np.inf, np.inf, (2,), np.float64), "choice": spaces.Discrete(3)})
    observed = {"numbers": torch.tensor([[1e6, -3.0]], dtype=torch.float64), "choice": torch.tensor([[2]])}
    converted = SymlogObservations(space, None)(observed)
    torch.testing.assert_close(converted["numbers"], symlog(torch.tensor([[1e6, -3.0]])))
    numbers, choice = ObservationTargets(space, SymlogObservations(space, None))(observed)
    assert torch.equal(numbers, choice) is False
    torch.testing.assert_close(numbers if numbers.shape[1] == 2 else choice, converted["numbers"])
    assert sorted((choice if numbers.shape[1] == 2 else numbers)[0].tolist()) == [0, 0, 1]


def test_normalised_numbers_are_predicted_as_networks_see_them() -> None:
    algorithm, seen = made("vector", normalize_observations=True)
    normalization = algorithm.actor.normalization
    normalization.add(10 * seen + 3)
    normalization.use_newest()
    (target,) = algorithm.model.targets(seen)
    torch.testing.assert_close(target, symlog(normalization(seen)))


@pytest.mark.parametrize(
    ("name", "low", "high"), [("pixels", 0, 255), ("small pixels", -1, 1), ("bits of a game", 0, 1)]
)
def test_pixels_are_predicted_between_0_and_1(name: str, low: float, high: float) -> None:
    algorithm, seen = made(name)
    (target,) = algorithm.model.targets(seen)
    (predicted,) = algorithm.model.decoder(Observations(10 * torch.randn(ROWS, algorithm.model.num_features)))
    pixels = (seen.float() - low) / (high - low)
    axes = pixels if pixels.shape[1:] == target.shape[1:] else pixels.movedim(-1, 1)
    torch.testing.assert_close(target, axes)
    assert predicted.min() >= 0
    assert predicted.max() <= 1
    assert target.max() <= 1


def test_a_decoder_learns_images() -> None:
    algorithm, _ = made("bits of a game")
    torch.manual_seed(0)
    features = torch.eye(4)
    decoder = ObservationHead(algorithm.model.targets).build(4, algorithm.actor)
    target = [(torch.rand(4, 4, 10, 10) < 0.3).float()]
    optimizer = torch.optim.Adam(decoder.parameters(), lr=1e-2)
    for _ in range(150):
        optimizer.zero_grad()
        loss = squared_error(decoder(features), target).mean()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert isinstance(decoder, nn.Module)
    # Of the mean image, the error is about 60.
    assert float(loss.detach()) < 15
