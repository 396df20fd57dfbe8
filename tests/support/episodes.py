"""Episodes of every kind of observation, and exact comparison of episodes."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from storages import Episode
from storages.transition import ACT, LOGP, REW

KINDS = ("vector", "double", "image", "discrete", "bits", "dict")


def observations(kind: str, rows: int, random: np.random.Generator) -> Any:
    match kind:
        case "vector":
            return random.normal(size=(rows, 3)).astype(np.float32)
        case "double":
            return random.normal(size=(rows, 2, 2))
        case "image":
            return random.integers(0, 255, (rows, 36, 40, 3), np.uint8)
        case "discrete":
            return random.integers(0, 7, (rows, 1))
        case "bits":
            return random.random((rows, 4)) < 0.5
        case _:
            return {"position": observations("vector", rows, random), "arm/pixels": observations("image", rows, random)}


def episode(
    length: int,
    kind: str = "vector",
    *,
    seed: int = 0,
    continuous: bool = False,
    terminated: bool = True,
    truncated: bool = False,
    further: bool = False,
) -> Episode:
    random = np.random.default_rng((seed, length))
    actions = random.normal(size=(length, 2)).astype(np.float32) if continuous else random.integers(0, 4, (length, 1))
    fields: dict[str, Any] = {ACT: actions, REW: random.normal(size=(length, 1))}
    if further:
        fields[LOGP] = random.normal(size=(length, 1)).astype(np.float32)
    return Episode(observations(kind, length + 1, random), fields, terminated, truncated, {"seed": seed})


def some(kind: str = "vector", **given: Any) -> list[Episode]:
    """One episode for each kind of end, one of them short."""
    return [
        episode(5, kind, seed=1, **given),
        episode(3, kind, seed=2, terminated=False, truncated=True, **given),
        episode(1, kind, seed=3, terminated=True, truncated=True, **given),
        episode(4, kind, seed=4, terminated=False, **given),
    ]


def assert_same(ones: Iterable[Episode], others: Iterable[Episode]) -> None:
    for one, other in zip(ones, others, strict=True):
        assert_same_leaves(one.observations, other.observations)
        assert_same_leaves(one.fields, other.fields)
        assert (one.terminated, one.truncated) == (other.terminated, other.truncated)


def assert_same_leaves(one: Any, other: Any) -> None:
    if isinstance(one, Mapping):
        assert one.keys() == other.keys()
        for name in one:
            assert_same_leaves(one[name], other[name])
    else:
        assert (one.shape, one.dtype, one.tobytes()) == (
            other.shape,
            other.dtype,
            np.ascontiguousarray(other).tobytes(),
        )
