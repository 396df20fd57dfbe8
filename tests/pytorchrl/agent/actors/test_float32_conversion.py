"""Observations of float64 become float32 once, and a loss that matters is told."""

import copy
import re
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from pytorchrl.agent.actors.float32_conversion import Float32Conversion
from storages.transition import OBS, OBS2

NOW = 1.7e9 + 60
BOX = spaces.Box(-np.inf, np.inf, (2,), np.float64)


def batch_of(observation: Any) -> Any:
    return {OBS: observation, OBS2: observation}


def around(offset: float, spread: float, rows: int = 32) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).normal([0.0, offset], [1.0, spread], (rows, 2)))


def test_a_loss_of_more_than_the_spread_is_told_once_with_its_place_and_a_remedy() -> None:
    conversion = Float32Conversion(BOX, (), converts=True)
    told = re.escape("observations: number 1 of (2,) is about 170000") + ".*normalize_observations=True of the actor"
    with pytest.warns(RuntimeWarning, match=told):
        found = conversion.of_batch(batch_of(around(NOW, 20.0)))
    assert found[OBS].dtype is found[OBS2].dtype is torch.float32
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(4):
            copy.deepcopy(conversion).of_batch(batch_of(around(NOW, 20.0)))


def test_the_part_of_a_dict_is_named_and_the_others_are_not() -> None:
    conversion = Float32Conversion(spaces.Dict(near=BOX, time=BOX), (), converts=True)
    with pytest.warns(RuntimeWarning, match=r"^the part 'time' of observations: number 1 of \(2,\)") as told:
        found = conversion.of_batch(batch_of({"near": around(0.0, 1.0), "time": around(NOW, 20.0)}))
    assert len(told) == 1
    assert {part.dtype for part in found[OBS].values()} == {torch.float32}


def test_integers_that_float32_does_not_hold_are_told_too() -> None:
    conversion = Float32Conversion(spaces.Box(0, 2**40, (2,), np.int64), (), converts=True)
    with pytest.warns(RuntimeWarning, match="let the environment subtract a constant"):
        conversion.of_batch(batch_of(around(NOW, 20.0).long()))


@pytest.mark.parametrize(
    ("observation", "arguments"),
    [
        (around(0.0, 1.0), {}),
        (around(NOW, 1e6), {}),  # the spread is a thousand times the rounding
        (around(1.0, 1e-9), {}),  # rounding of an environment at rest
        (around(NOW, 20.0, rows=4), {}),  # too few to have a spread
        (around(NOW, 20.0), {"normalised": ("",)}),
        (around(NOW, 20.0), {"converts": False}),
    ],
)
def test_nothing_is_told_where_nothing_is_lost(observation: torch.Tensor, arguments: Any) -> None:
    conversion = Float32Conversion(BOX, **{"normalised": (), "converts": True} | arguments)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        conversion.of_batch(batch_of(observation))
