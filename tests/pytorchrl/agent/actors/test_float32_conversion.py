"""Observations of float64 become float32 once, and a loss that matters is told."""

import copy
import re
import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch.utils._python_dispatch import TorchDispatchMode

import pytorchrl as prl
from pytorchrl.agent.actors.float32_conversion import Float32Conversion
from storages.transition import OBS, OBS2
from tests.support.training import train

NOW = 1.7e9 + 60
BOX = spaces.Box(-np.inf, np.inf, (2,), np.float64)


def batch_of(observation: Any) -> Any:
    return {OBS: observation, OBS2: observation}


def around(offset: float, spread: float, rows: int = 32) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).normal([0.0, offset], [1.0, spread], (rows, 2)))


def test_a_loss_of_more_than_the_spread_is_told_once_with_the_number_its_place_and_the_way_out() -> None:
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


class Casts(TorchDispatchMode):
    """Counts the tensors of observations that become float32."""

    def __init__(self) -> None:
        super().__init__()
        self.number = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if func is torch.ops.aten._to_copy.default and args[0].dtype is torch.float64 and args[0].shape[-1:] == (3,):
            self.number += made.dtype is torch.float32
        return made


class Watched(gym.Env[Any, Any]):
    """Observes three numbers of float64."""

    def __init__(self, discrete: bool) -> None:
        self.observation_space = spaces.Box(-1, 1, (3,), np.float64)
        self.action_space: Any = spaces.Discrete(2) if discrete else spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self.np_random.uniform(-1, 1, 3), {}

    def step(self, action: Any) -> Any:
        return self.np_random.uniform(-1, 1, 3), 1.0, False, False, {}


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("algorithm", ["SAC", "TD3", "DQN"])
def test_an_update_converts_the_observations_and_the_next_ones_once_each(algorithm: str, normalize: bool) -> None:
    scheme = prl.Scheme(
        getattr(prl, algorithm).create_factory(start_steps=12, mini_batch_size=8, test_every=0),
        prl.OffPolicyActor.create_factory(hidden_sizes=(8,), normalize_observations=normalize),
        prl.ReplayBuffer.create_factory(size=20),
        prl.VecEnv.create_factory(Watched, env_kwargs={"discrete": algorithm == "DQN"}),
    )
    train(scheme, 14)
    batch = next(iter(scheme.storage.generate_batches(1, 8)))
    conversions = []
    # Of three updates in a row, at least one does not look for a loss, too.
    for _ in range(3):
        with Casts() as casts:
            scheme.algorithm.update(batch)
        conversions.append(casts.number)
    scheme.close()
    assert min(conversions) == 2
