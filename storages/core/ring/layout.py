"""The layout of samples: their fields flattened into leaves, and each leaf's shape and dtype.

The first sample fixes the layout; every later one is validated against it before anything is stored, so that a sample
that does not fit is refused as a whole.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch

from storages.transition import (
    BATCH_FIELDS,
    DONE,
    FLAGS,
    INFO,
    REQUIRED,
    REWC,
    RHS,
    RHS2,
    SCALARS,
    SINGLES,
    SKIPPED,
    SUCCESSORS,
    TRUNC2,
    Array,
    Leaf,
    Sample,
)

FieldKey: TypeAlias = tuple[str, ...]
"""Key of a leaf in a sample: ("Reward",), or ("Observation", "pixels") inside a dict observation."""


class SampleError(ValueError):
    """A sample that a storage refuses; its contents stay as they are."""


@dataclass(frozen=True)
class LeafLayout:
    """Shape and dtype of a leaf in one transition."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def count(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


Layout: TypeAlias = dict[FieldKey, LeafLayout]
_MAY_BE_EMPTY = (RHS, RHS2, INFO)
"""Fields that count as absent where a collector gives a dict without arrays."""
SCALAR = LeafLayout((1,), np.dtype(np.float32))
"""Layout of a field with one number for each transition."""


def leaves(sample: Sample) -> Iterator[tuple[FieldKey, Leaf]]:
    """Iterate over the arrays of a sample and their keys."""
    for key, value in sample.items():
        # Checked first, because isinstance() with Mapping is slow.
        if type(value) is np.ndarray:
            yield (key,), value
        elif isinstance(value, Mapping):
            for name, leaf in value.items():
                yield (key, name), leaf
        else:
            yield (key,), value


def nest(flat: Mapping[FieldKey, Any]) -> dict[str, Any]:
    """Nest leaves by key: the inverse of :func:`leaves`."""
    nested: dict[str, Any] = {}
    for path, value in flat.items():
        if len(path) == 1:
            nested[path[0]] = value
        else:
            nested.setdefault(path[0], {})[path[1]] = value
    return nested


def text(path: FieldKey) -> str:
    """Return a key for messages: ``Observation['pixels']``."""
    return path[0] if len(path) == 1 else f"{path[0]}[{path[1]!r}]"


def stored_fields(sample: Sample, fields: frozenset[str] | None) -> Sample:
    """Return the fields of a sample that are stored; all where ``fields`` is None."""
    return sample if fields is None else {key: value for key, value in sample.items() if key in fields}


def first_layout(
    sample: Sample, owner: str, computed: frozenset[str] = frozenset(), made_for: int | None = None
) -> tuple[Layout, int]:
    """Return the layout of a first sample, and its number of environments.

    Args:
        sample: the first one.
        owner: the storage's name.
        computed: fields that the storage computes; samples must not have them.
        made_for: the number of environments that the storage was made for; None for any.

    Raises:
        SampleError: a required field is missing or empty, a name is not a string or is reserved for a field that the
            storage adds, OBS2 has another layout than OBS, or the fields disagree on the number of environments.
    """
    _refuse_names(sample, owner, computed)
    layout: Layout = {}
    num_envs = _first_axis_of(sample[DONE])
    for path, leaf in leaves(sample):
        array = as_array(leaf, path, owner)
        if array.ndim == 0 or array.shape[0] != num_envs or num_envs == 0:
            raise SampleError(
                f"{owner}: the first axis of every field must be the environments; {DONE} has {num_envs} of them, "
                f"{text(path)} has shape {array.shape}"
            )
        layout[path] = LeafLayout(array.shape[1:], _stored_dtype(path, array.dtype))
    for key in SCALARS:
        if (key,) in layout and layout[(key,)].shape != (1,):
            shape = layout[(key,)].shape
            raise SampleError(f"{owner}: {key} must have shape ({num_envs}, 1), got {(num_envs, *shape)}")
    if REWC in sample:
        components = layout.get((REWC,))
        if components is None or len(components.shape) != 1 or not components.count:
            got = "a dict" if components is None else (num_envs, *components.shape)
            raise SampleError(f"{owner}: {REWC} must have shape ({num_envs}, components), got {got}")
    for successor, first in SUCCESSORS.items():
        of_successor = {path[1:]: leaf for path, leaf in layout.items() if path[0] == successor}
        of_first = {path[1:]: leaf for path, leaf in layout.items() if path[0] == first}
        if of_successor != of_first:
            raise SampleError(
                f"{owner}: {successor} must have the shape and dtype of {first}, got {_shown(of_successor)} "
                f"beside {_shown(of_first)}"
            )
    layout.setdefault((TRUNC2,), LeafLayout((1,), np.dtype(np.bool_)))
    if made_for not in (None, num_envs):
        raise SampleError(f"{owner}: made for {made_for} environments, the sample holds {num_envs}")
    return layout, num_envs


def _refuse_names(sample: Sample, owner: str, computed: frozenset[str]) -> None:
    for key in REQUIRED:
        if key not in sample:
            raise SampleError(f"{owner}: a sample needs {', '.join(REQUIRED)}; {key} is missing from {list(sample)}")
    for key, value in sample.items():
        names = list(value) if isinstance(value, Mapping) else [key]
        if not names and key not in _MAY_BE_EMPTY:
            raise SampleError(f"{owner}: {key} is a dict without arrays; give it at least one")
        for name in (key, *names):
            if not isinstance(name, str):
                raise SampleError(f"{owner}: names of fields and of parts of observations must be str, got {name!r}")
        if key == SKIPPED and key in computed:
            raise SampleError(
                f"{owner}: a replay storage keeps no skipped rows, and a sample has {SKIPPED}; insert_masked(sample, "
                f"mask) stores the transitions of the other environments"
            )
        if key in BATCH_FIELDS or key in computed:
            maker = "batches add" if key in BATCH_FIELDS else "the storage computes"
            raise SampleError(f"{owner}: {key} is a field that {maker}; give the sample's field another name")


def _stored_dtype(path: FieldKey, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype in which a leaf of a dtype is stored."""
    if path[0] in FLAGS:
        return np.dtype(np.bool_)
    return np.dtype(np.float32) if becomes_single(path, dtype) else dtype


def becomes_single(path: FieldKey, dtype: np.dtype[Any]) -> bool:
    """Return whether a leaf of a dtype is stored as float32, because batches hold its sums."""
    return path[0] in SINGLES and (dtype.kind in "biu" or dtype == np.float16)


def _first_axis_of(leaf: object) -> int:
    shape: tuple[int, ...] = getattr(leaf, "shape", ())
    return shape[0] if shape else 0


def _shown(layout: Layout) -> str:
    if list(layout) == [()]:
        return f"{layout[()].dtype}{layout[()].shape}"
    return str({path[0]: f"{leaf.dtype}{leaf.shape}" for path, leaf in layout.items()}) if layout else "nothing"


def fit(
    sample: Sample, layout: Layout, num_envs: int, owner: str, layout_from: str | None = None
) -> dict[FieldKey, Array]:
    """Return the arrays of a sample in the shapes and dtypes of the layout; flags and integer rewards are converted.

    Args:
        sample: the sample.
        layout: that of the first sample.
        num_envs: environments in a step.
        owner: the storage's name.
        layout_from: where the layout comes from, if not from a sample of this process.

    Raises:
        SampleError: a field is missing, unknown, or of another shape or dtype.
    """
    try:
        return _fitting(sample, layout, num_envs, owner)
    except SampleError as error:
        if layout_from is None:
            raise
        raise SampleError(
            f"{error}. The first sample was that of {layout_from}, which this storage goes on with; for other "
            f"spaces or another number of environments, begin an empty storage"
        ) from None


def _fitting(sample: Sample, layout: Layout, num_envs: int, owner: str) -> dict[FieldKey, Array]:
    arrays: dict[FieldKey, Array] = {}
    for path, leaf in leaves(sample):
        expected = layout.get(path)
        if expected is not None and type(leaf) is np.ndarray and leaf.dtype == expected.dtype:
            shape = leaf.shape
            if shape[1:] == expected.shape and shape[0] == num_envs:
                arrays[path] = leaf
                continue
        if expected is None:
            raise SampleError(
                f"{owner}: {text(path)} was not in the first sample, which fixed the fields: "
                f"{', '.join(text(known) for known in layout)}"
            )
        array = leaf if type(leaf) is np.ndarray else as_array(leaf, path, owner)
        if array.shape != (num_envs, *expected.shape):
            raise SampleError(
                f"{owner}: {text(path)} had shape {(num_envs, *expected.shape)} in the first sample, "
                f"now it has {array.shape}"
            )
        arrays[path] = converted(array, path, expected.dtype, owner)
    if len(arrays) != len(layout):
        arrays.setdefault((TRUNC2,), np.zeros((num_envs, 1), np.bool_))
        for path in layout:
            if path not in arrays:
                raise SampleError(f"{owner}: {text(path)} was in the first sample and is missing now")
    return arrays


def converted(array: Array, path: FieldKey, dtype: np.dtype[Any], owner: str) -> Array:
    """Return an array in its stored dtype: flags as booleans, rewards of integers or half precision as float32.

    Raises:
        SampleError: it is of another dtype.
    """
    if array.dtype == dtype:
        return array
    if path[0] in FLAGS:
        flags: Array = array != 0
        return flags
    if becomes_single(path, array.dtype):
        return array.astype(dtype)
    raise SampleError(f"{owner}: {text(path)} had dtype {dtype} in the first sample, now it has {array.dtype}")


def as_array(leaf: object, path: FieldKey, owner: str) -> Array:
    """Return a leaf as a numpy array, without a copy of arrays and CPU tensors."""
    if isinstance(leaf, torch.Tensor):
        if leaf.dtype == torch.bfloat16 and path[0] in SINGLES:
            leaf = leaf.float()
        try:
            return leaf.detach().cpu().numpy()
        except TypeError:
            raise SampleError(
                f"{owner}: {text(path)} must have a dtype that NumPy supports, got {leaf.dtype}; convert it with "
                f".float()"
            ) from None
    if isinstance(leaf, np.ma.MaskedArray):
        raise SampleError(f"{owner}: {text(path)} is a masked array; give it values with filled()")
    if isinstance(leaf, np.ndarray):
        if not _has_a_tensor_dtype(leaf.dtype):
            raise SampleError(
                f"{owner}: {text(path)} must have a numeric dtype that PyTorch supports, got dtype {leaf.dtype.str}"
            )
        return leaf
    way_out = ""
    if isinstance(leaf, Mapping):
        way_out = "; nested dicts are not supported: join names by slashes, as {'arm/position': ...}"
    elif isinstance(leaf, tuple):
        way_out = "; give a dict with a name for each part instead of a tuple"
    raise SampleError(f"{owner}: {text(path)} must be an array or a tensor, got {type(leaf).__name__}{way_out}")


def _has_a_tensor_dtype(dtype: np.dtype[Any]) -> bool:
    longest = 16 if dtype.kind == "c" else 8
    return dtype.kind in "biufc" and dtype.itemsize <= longest and dtype.isnative
