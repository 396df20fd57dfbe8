"""Spaces survive a round trip through JSON; files that describe very large spaces are refused."""

import json
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from pytorchrl.agent.envs.spaces import HybridBox, UnsupportedSpaceError, compact, space_as_data, space_from_data

SPACES = [
    spaces.Box(-1, 1, (3,), np.float32),
    spaces.Box(np.array([0, -2]), np.array([1, np.inf]), dtype=np.float64),
    spaces.Discrete(5, start=-2),
    spaces.MultiDiscrete([3, 2]),
    spaces.MultiDiscrete([[3, 2], [4, 5]], dtype=np.int32, start=[[1, 0], [0, 7]]),
    spaces.MultiBinary(4),
    spaces.MultiBinary((2, 3)),
    HybridBox(np.array([-1, -1, 0]), np.array([1, 1, 3]), np.float64, [(0, 2)]),
    HybridBox(np.full(3, -1), np.full(3, 1), np.float32, [(1, 2)]),
    spaces.Dict({"image": spaces.Box(0, 255, (8, 8, 3), np.uint8), "inner": spaces.Dict({"kind": spaces.Discrete(3)})}),
]


@pytest.mark.parametrize("space", SPACES, ids=repr)
@pytest.mark.parametrize("shorten", [compact, dict])
def test_a_space_survives_a_round_trip_through_json(space: Any, shorten: Any) -> None:
    again = space_from_data(json.loads(json.dumps(shorten(space_as_data(space)))))
    assert again == space
    assert again.dtype == space.dtype
    assert type(again) is type(space)
    assert getattr(again, "choices", None) == getattr(space, "choices", None)


def test_parts_keep_their_order_in_which_networks_read_them() -> None:
    space = spaces.Dict(state=spaces.Discrete(3), prices=spaces.Dict(next=spaces.Discrete(2), last=spaces.Discrete(2)))
    again: Any = space_from_data(json.loads(json.dumps(space_as_data(space))))
    assert list(again) == ["state", "prices"]
    assert list(again["prices"]) == ["next", "last"]


@pytest.mark.parametrize(
    "data",
    [
        {"type": "Box", "shape": [4_000, 4_000], "low": 0, "high": 1, "dtype": "float32"},
        {"type": "Discrete", "n": 10**12},
        {"type": "MultiDiscrete", "nvec": [10**12, 2]},
        {"type": "MultiDiscrete", "nvec": [[2**62, 2**62], [2**62, 2**62]]},
        {"type": "MultiBinary", "n": 10**12},
        {"type": "MultiBinary", "n": [10**6, 10**6]},
        {"type": "Dict", "subspaces": {"one": {"type": "Discrete", "n": 10**12}}},
    ],
)
def test_a_space_of_too_many_numbers_is_refused(data: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedSpaceError, match=r"a space may have at most 10,000,000 numbers, got \{'type': "):
        space_from_data(data)


def test_a_multidiscrete_space_of_floats_is_refused() -> None:
    with pytest.raises(UnsupportedSpaceError, match="a MultiDiscrete space must have an integer dtype, got 'float32'"):
        space_from_data({"type": "MultiDiscrete", "nvec": [2, 2], "dtype": "float32"})
