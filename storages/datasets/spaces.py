"""Spaces as plain data, as Minari writes them, and arrays laid out as they say.

A scalar of a space (Discrete) is (L,) on disk and (L, 1) in an :class:`Episode`; actions of a Discrete space that does
not start at 0 are counted from its start on disk, and from 0 here. Nested spaces (Dict in Dict, Tuple) become one dict
of arrays whose names are joined by slashes: ``arm/position``, ``arm/0``.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from storages.datasets.dataset import Space
from storages.episode import Observations
from storages.errors import DatasetError
from storages.transition import Array

_SMALLEST_IMAGE_SIDE = 32
"""Minari takes what is smaller for something else than a picture."""


@dataclass(frozen=True)
class Leaf:
    """A part of a space that is one array.

    Args:
        path: how to get there: keys of Dict spaces, positions in Tuple spaces.
        space: the part.
    """

    path: tuple[str | int, ...]
    space: Space

    @property
    def name(self) -> str:
        """The path as one name."""
        return "/".join(map(str, self.path))

    @property
    def is_scalar(self) -> bool:
        """Whether it is (L,) on disk."""
        return bool(self.space["type"] == "Discrete")

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one value on disk."""
        match self.space["type"]:
            case "Discrete":
                return ()
            case "MultiDiscrete":
                return np.shape(self.space["nvec"])
            case "MultiBinary":
                count = self.space["n"]
                return (count,) if isinstance(count, int) else tuple(count)
            case _:
                return tuple(self.space["shape"])

    @property
    def is_image(self) -> bool:
        """Whether Minari keeps it as JPEG unless told otherwise."""
        space = self.space
        if space["type"] != "Box" or np.dtype(space["dtype"]) != np.uint8:
            return False
        is_large = len(self.shape) in (2, 3) and min(self.shape[:2]) >= _SMALLEST_IMAGE_SIDE
        return is_large and bool(np.all(np.equal(space["low"], 0)) and np.all(np.equal(space["high"], 255)))

    def to_disk(self, array: Array, start: int = 0) -> Array:
        """(L, ...), as it is laid out on disk; ``start`` is added to what is counted from 0 here."""
        laid_out = array[:, 0] + start if self.is_scalar else array
        if self.space["type"] == "MultiBinary":
            return laid_out.astype(np.int8)
        return laid_out.astype(np.int64, copy=False) if self.is_scalar else laid_out

    def from_disk(self, array: Array, start: int = 0) -> Array:
        """The inverse of :meth:`to_disk`."""
        return (array[:, None] - start).astype(np.int64, copy=False) if self.is_scalar else array

    def fits(self, array: Array) -> bool:
        """Whether an episode's array is made of values of this part."""
        expected = (1,) if self.is_scalar else self.shape
        return tuple(array.shape[1:]) == expected


def leaves_of(space: Space, where: object) -> list[Leaf]:
    """The parts of a space that are arrays, in their order.

    Raises:
        DatasetError: it has parts that are not made of numbers.
    """
    try:
        return list(_leaves(space, (), where))
    except (KeyError, TypeError, ValueError) as error:
        raise DatasetError(f"{where} describes a space that cannot be understood: {space} ({error!r})") from error


def _leaves(space: Space, path: tuple[str | int, ...], where: object) -> Iterator[Leaf]:
    kind = space["type"]
    if kind == "Dict":
        for name, part in space["subspaces"].items():
            yield from _leaves(part, (*path, name), where)
    elif kind == "Tuple":
        for position, part in enumerate(space["subspaces"]):
            yield from _leaves(part, (*path, position), where)
    elif kind in ("Box", "Discrete", "MultiDiscrete", "MultiBinary"):
        leaf = Leaf(path, space)
        math.prod(leaf.shape)
        yield leaf
    else:
        raise DatasetError(f"{where} has a space of type {kind!r}, which is not made of numbers; it cannot be read")


def put_together(leaves: Sequence[Leaf], arrays: Mapping[str, Array]) -> Observations:
    """Observations of the arrays of leaves, by their names."""
    return arrays[""] if len(leaves) == 1 and not leaves[0].path else dict(arrays)


def by_name(observations: Observations) -> Mapping[str, Array]:
    """The inverse of :func:`put_together`."""
    return observations if isinstance(observations, Mapping) else {"": observations}


class SpaceGuess:
    """What the space of some values may have been, of which nobody said anything.

    Whole numbers on their own are Discrete, from the smallest (or 0) to the largest that came. All others are a Box: of
    whole numbers from the least to the most that their dtype can be, else without bounds.
    """

    def __init__(self) -> None:
        self._ranges: dict[str, tuple[int, int]] = {}
        self._seen: dict[str, Array] = {}

    def add(self, arrays: Mapping[str, Array]) -> None:
        """Take up values (L, ...), by the names of leaves."""
        for name, array in arrays.items():
            self._seen.setdefault(name, array[:1])
            if array.dtype.kind in "iu" and array.shape[1:] == (1,) and len(array):
                low, high = self._ranges.get(name, (0, 0))
                self._ranges[name] = min(low, int(array.min())), max(high, int(array.max()))

    def space(self) -> Space:
        """As plain data; of names with slashes, Dicts in Dicts."""
        if list(self._seen) == [""]:
            return self._part("")
        space: dict[str, Any] = {"type": "Dict", "subspaces": {}}
        for name in self._seen:
            *folders, last = name.split("/")
            inner = space
            for folder in folders:
                inner = inner["subspaces"].setdefault(folder, {"type": "Dict", "subspaces": {}})
            inner["subspaces"][last] = self._part(name)
        return space

    def _part(self, name: str) -> Space:
        example = self._seen[name]
        shape, dtype = list(example.shape[1:]), example.dtype
        if dtype.kind in "iu" and shape == [1]:
            smallest, largest = self._ranges[name]
            return {"type": "Discrete", "dtype": "int64", "start": smallest, "n": largest - smallest + 1}
        bounds: tuple[float, float] = (-np.inf, np.inf)
        if dtype.kind == "b":
            bounds = (False, True)
        elif dtype.kind in "iu":
            bounds = (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
        low, high = (np.full(shape, bound).tolist() for bound in bounds)
        return {"type": "Box", "dtype": dtype.name, "shape": shape, "low": low, "high": high}


def with_dtypes(space: Space, dtypes: Mapping[str, np.dtype[Any]], path: tuple[str | int, ...] = ()) -> Space:
    """A space whose Boxes say the dtypes that their values have, by the names of leaves."""
    kind = space["type"]
    if kind == "Dict":
        parts = {name: with_dtypes(part, dtypes, (*path, name)) for name, part in space["subspaces"].items()}
        return {**space, "subspaces": parts}
    if kind == "Tuple":
        listed = [with_dtypes(part, dtypes, (*path, number)) for number, part in enumerate(space["subspaces"])]
        return {**space, "subspaces": listed}
    if kind == "Box":
        return {**space, "dtype": dtypes["/".join(map(str, path))].name}
    return space


def united(one: Space | None, two: Space | None, where: object) -> Space | None:
    """A space that has the values of both; None where one of them is not known.

    Raises:
        DatasetError: they are of different kinds.
    """
    if one is None or two is None:
        return None
    kind = one["type"]
    if dict(one) == dict(two):
        return one
    different = DatasetError(f"{where} have different spaces: {one} and {two}")
    if kind != two["type"]:
        raise different
    if kind == "Box" and one["shape"] == two["shape"] and one["dtype"] == two["dtype"]:
        low = np.minimum(one["low"], two["low"]).tolist()
        return {**one, "low": low, "high": np.maximum(one["high"], two["high"]).tolist()}
    if kind == "Discrete" and one["start"] == two["start"]:
        return {**one, "n": max(one["n"], two["n"])}
    if kind == "Dict" and one["subspaces"].keys() == two["subspaces"].keys():
        parts = {name: united(part, two["subspaces"][name], where) for name, part in one["subspaces"].items()}
        return {**one, "subspaces": parts}
    raise different
