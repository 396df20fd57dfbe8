"""Gymnasium spaces as plain data, in Minari's format, and the conversion of arrays to and from Minari's layout.

A scalar (Discrete) is (L,) on disk and (L, 1) in an :class:`Episode`. Actions of a Discrete or MultiDiscrete space are
counted from its ``start`` on disk, and from 0 here. Nested spaces (Dict in Dict, Tuple) become one dict of arrays,
whose names are joined by slashes: ``arm/position``, ``arm/0``.
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
"""Minari does not treat smaller arrays as images."""


@dataclass(frozen=True)
class SpaceLeaf:
    """A leaf of a nested space, whose values are one array.

    Args:
        path: keys of Dict spaces and positions in Tuple spaces that lead to it.
        space: the space of the leaf.
    """

    path: tuple[str | int, ...]
    space: Space

    @property
    def name(self) -> str:
        """The path, joined by slashes."""
        return "/".join(map(str, self.path))

    @property
    def is_scalar(self) -> bool:
        """Whether its values are scalars: (L,) on disk."""
        return bool(self.space["type"] == "Discrete")

    @property
    def start(self) -> Array:
        """Smallest values of a Discrete or MultiDiscrete space on disk; 0 for other spaces."""
        counts = self.space["type"] in ("Discrete", "MultiDiscrete")
        return np.asarray(self.space.get("start", 0) if counts else 0, np.int64)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one value on disk."""
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
        """Whether Minari writes it as JPEG by default."""
        space = self.space
        if space["type"] != "Box" or np.dtype(space["dtype"]) != np.uint8:
            return False
        is_large = len(self.shape) in (2, 3) and min(self.shape[:2]) >= _SMALLEST_IMAGE_SIDE
        return is_large and bool(np.all(np.equal(space["low"], 0)) and np.all(np.equal(space["high"], 255)))

    def to_disk(self, array: Array, start: Array | int = 0) -> Array:
        """Convert values (L, ...) to their layout on disk; ``start`` is added to values that are counted from it."""
        laid_out = array[:, 0] if self.is_scalar else array
        if self.space["type"] == "MultiBinary":
            return laid_out.astype(np.int8)
        if self.is_scalar:
            return laid_out.astype(np.int64, copy=False) + start
        return (laid_out + start).astype(laid_out.dtype, copy=False) if np.any(start) else laid_out

    def from_disk(self, array: Array, start: Array | int = 0) -> Array:
        """Invert :meth:`to_disk`."""
        if self.is_scalar:
            return (array[:, None] - start).astype(np.int64, copy=False)
        return (array - start).astype(array.dtype, copy=False) if np.any(start) else array

    def fits(self, array: Array) -> bool:
        """Return whether the array of an episode has the shape of this leaf."""
        expected = (1,) if self.is_scalar else self.shape
        return tuple(array.shape[1:]) == expected


def leaves_of(space: Space, where: object) -> list[SpaceLeaf]:
    """Return the leaves of a space, in order.

    Raises:
        DatasetError: the space is malformed, or has leaves that are not numeric arrays.
    """
    try:
        return list(_leaves(space, (), where))
    except (KeyError, TypeError, ValueError) as error:
        raise DatasetError(f"{where} describes a malformed space: {space} ({error!r})") from error


def _leaves(space: Space, path: tuple[str | int, ...], where: object) -> Iterator[SpaceLeaf]:
    kind = space["type"]
    if kind == "Dict":
        for name, part in space["subspaces"].items():
            yield from _leaves(part, (*path, name), where)
    elif kind == "Tuple":
        for position, part in enumerate(space["subspaces"]):
            yield from _leaves(part, (*path, position), where)
    elif kind in ("Box", "Discrete", "MultiDiscrete", "MultiBinary"):
        leaf = SpaceLeaf(path, space)
        math.prod(leaf.shape)
        yield leaf
    else:
        name = "/".join(map(str, path))
        way_out = (
            f"; parts of observations are left out by leave_out=[{name!r}], or --leave-out {name} of `data convert`"
            if name
            else ""
        )
        part = f"a part {name!r}" if name else "a space"
        raise DatasetError(f"{where} has {part} of type {kind!r}, which is not numeric and cannot be read{way_out}")


def without(space: Space | None, leave_out: Sequence[str], where: object) -> Space | None:
    """Return a Dict space without some parts.

    Args:
        space: the space; None if it is unknown.
        leave_out: names of the parts, in nested spaces joined by slashes.
        where: the place, for errors.

    Raises:
        DatasetError: there is no such part, or none is left.
    """
    for name in leave_out:
        space = _without(space or {}, name.split("/"), where, name)
    return space


def _without(space: Space, path: Sequence[str], where: object, name: str) -> Space:
    subspaces = space.get("subspaces")
    if space.get("type") != "Dict" or not isinstance(subspaces, Mapping) or path[0] not in subspaces:
        there = ", ".join(subspaces) if isinstance(subspaces, Mapping) else "no parts"
        raise DatasetError(f"{where} has no part {name} to leave out; it has {there}")
    kept = {key: part for key, part in subspaces.items() if key != path[0]}
    if len(path) > 1:
        kept = {
            key: _without(part, path[1:], where, name) if key == path[0] else part for key, part in subspaces.items()
        }
    if not kept:
        raise DatasetError(f"{where} has no part of observations but {name}, so it cannot be left out")
    return {**space, "subspaces": kept}


def observations_of(leaves: Sequence[SpaceLeaf], arrays: Mapping[str, Array]) -> Observations:
    """Make observations from arrays by leaf name."""
    return arrays[""] if len(leaves) == 1 and not leaves[0].path else dict(arrays)


def arrays_by_name(observations: Observations) -> Mapping[str, Array]:
    """Invert :func:`observations_of`."""
    return observations if isinstance(observations, Mapping) else {"": observations}


class WrittenSpace:
    """The space of written values: a given one, or one that is inferred from the values.

    Inferred spaces of integer scalars are Discrete, from the smallest value (or 0) to the largest. All others are
    Boxes, with the limits of the dtype for integers, and without bounds for floats.

    Args:
        given: the space, whose Boxes may have other dtypes than the values; inferred if None.
        what: the word for the values in errors, such as "observations".
    """

    def __init__(self, given: Space | None, what: str) -> None:
        self._given, self._what = given, what
        self._first: dict[str, Array] = {}
        """First value of each leaf."""
        self._ranges: dict[str, tuple[int, int]] = {}
        """Smallest and largest value of each integer scalar, by leaf name."""
        self.leaves: list[SpaceLeaf] = []
        """The leaves of the space; empty before the first values."""

    def add(self, arrays: Mapping[str, Array]) -> None:
        """Add values (L, ...) by leaf name, all with the same shapes and dtypes.

        Raises:
            DatasetError: the values do not fit the given space.
        """
        for name, array in arrays.items():
            if array.dtype.kind in "iu" and array.shape[1:] == (1,):
                low, high = self._ranges.get(name, (0, 0))
                self._ranges[name] = min(low, int(array.min())), max(high, int(array.max()))
        if self._first:
            return
        self._first = {name: array[:1] for name, array in arrays.items()}
        self.leaves = leaves_of(self._given or self.space(), f"what is said of {self._what}")
        if (names := {leaf.name for leaf in self.leaves}) != arrays.keys():
            raise DatasetError(
                f"the space to be written has {self._what} {sorted(names)}, the episode {sorted(arrays)}"
            )
        for leaf in self.leaves:
            if not leaf.fits(arrays[leaf.name]):
                raise DatasetError(f"values of shape {arrays[leaf.name].shape[1:]} are not of the space {leaf.space}")

    def space(self) -> Space:
        """Return the space as plain data; names with slashes become nested Dicts."""
        if self._given is not None:
            return self._with_dtypes(self._given, ())
        if list(self._first) == [""]:
            return self._guess("")
        space: dict[str, Any] = {"type": "Dict", "subspaces": {}}
        for name in self._first:
            *folders, last = name.split("/")
            inner = space
            for folder in folders:
                inner = inner["subspaces"].setdefault(folder, {"type": "Dict", "subspaces": {}})
            inner["subspaces"][last] = self._guess(name)
        return space

    def _guess(self, name: str) -> Space:
        if name in self._ranges:
            smallest, largest = self._ranges[name]
            return {"type": "Discrete", "dtype": "int64", "start": smallest, "n": largest - smallest + 1}
        shape, dtype = list(self._first[name].shape[1:]), self._first[name].dtype
        bounds: tuple[float, float] = (-np.inf, np.inf)
        if dtype.kind == "b":
            bounds = (False, True)
        elif dtype.kind in "iu":
            bounds = (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
        low, high = (np.full(shape, bound).tolist() for bound in bounds)
        return {"type": "Box", "dtype": dtype.name, "shape": shape, "low": low, "high": high}

    def _with_dtypes(self, space: Space, path: tuple[str | int, ...]) -> Space:
        """Return the space with the dtypes of the values in its Boxes."""
        match space["type"]:
            case "Dict":
                subspaces: Any = {
                    name: self._with_dtypes(part, (*path, name)) for name, part in space["subspaces"].items()
                }
            case "Tuple":
                subspaces = [self._with_dtypes(part, (*path, place)) for place, part in enumerate(space["subspaces"])]
            case "Box":
                return {**space, "dtype": self._first["/".join(map(str, path))].dtype.name}
            case _:
                return space
        return {**space, "subspaces": subspaces}


def union_of(one: Space | None, two: Space | None, where: object) -> Space | None:
    """Return the smallest space that contains two spaces; None if one of them is unknown.

    Raises:
        DatasetError: they are of different kinds, or Discrete spaces that are counted from different starts.
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
        parts = {name: union_of(part, two["subspaces"][name], where) for name, part in one["subspaces"].items()}
        return {**one, "subspaces": parts}
    raise different
