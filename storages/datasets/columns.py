"""Arrays of steps by name: one array, several that are joined, or a group of parts."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from storages.datasets.answers import Answers
from storages.errors import AmbiguousDataError, DatasetError
from storages.transition import Array


class Joined:
    """Arrays (N,) or (N, k) side by side as one array (N, K), read when they are sliced.

    Args:
        parts: the arrays, all with N rows.
    """

    def __init__(self, parts: list[Any]) -> None:
        self._parts = parts
        widths = [math.prod(part.shape[1:]) for part in parts]
        self.shape = (len(parts[0]), sum(widths))
        self.dtype = np.result_type(*(part.dtype for part in parts))

    def __len__(self) -> int:
        """Number of rows N."""
        return int(self.shape[0])

    def __getitem__(self, rows: Any) -> Array:
        """Read some rows."""
        return np.concatenate([_flat(np.asarray(part[rows])) for part in self._parts], axis=1).astype(self.dtype)


def find_array(arrays: Mapping[str, Any], name: str, path: Path) -> Any:
    """Return the array, or the group of arrays, of a name; names joined by commas are one array.

    Raises:
        DatasetError: there is none, or arrays that are to be joined have different lengths.
    """
    if name in arrays:
        return arrays[name]
    names = [part.strip() for part in name.split(",")]
    if missing := [part for part in names if part not in arrays]:
        raise DatasetError(f"{path} lacks {', '.join(missing)}; it has {', '.join(arrays)}")
    parts = [arrays[part] for part in names]
    lengths = {part: len(array) for part, array in zip(names, parts, strict=True)}
    if len(set(lengths.values())) > 1:
        raise DatasetError(f"{path} holds arrays of different lengths: {lengths}")
    return Joined(parts)


def parts_of(array: Any, leave_out: tuple[str, ...], path: Path) -> dict[str, Any]:
    """Return the arrays of observations by the name of their part; "" for a single array.

    Args:
        array: an array, or a mapping of names to arrays or further mappings.
        leave_out: names of parts that are not read.
        path: the file, for errors.

    Raises:
        DatasetError: a part to leave out is not there, or no other part is.
    """
    parts = _parts(array)
    if unknown := [name for name in leave_out if name not in parts]:
        raise DatasetError(f"{path} has no part {', '.join(unknown)} to leave out; it has {', '.join(parts)}")
    kept = {name: part for name, part in parts.items() if name not in leave_out}
    if not kept:
        raise DatasetError(f"{path} has no part of observations that is read; it has {', '.join(parts)}")
    return kept


def _parts(array: Any) -> dict[str, Any]:
    if not isinstance(array, Mapping):
        return {"": array}
    return {
        "/".join(filter(None, (name, further))): part
        for name, inner in array.items()
        for further, part in _parts(inner).items()
    }


def as_columns(array: Any) -> Array:
    """Return an array (L, ...); one number per step becomes (L, 1)."""
    values: Array = np.asarray(array)
    return values[:, None] if values.ndim == 1 else values


def read_actions(array: Any, answers: Answers) -> Array:
    """Return actions (L, ...), discrete ones as int64, counted from 0."""
    actions = as_columns(array)
    return actions.astype(np.int64) - (answers.first_action or 0) if actions.dtype.kind in "iu" else actions


def check_actions(array: Any, answers: Answers, path: Path) -> None:
    """Check that actions that are whole numbers are counted from 0, or from the given first one.

    Raises:
        AmbiguousDataError: there are negative ones, and nothing is said.
        DatasetError: there are smaller ones than the first, or they are no whole numbers.
    """
    first = answers.first_action
    if array.dtype.kind not in "iu":
        if first is not None:
            raise DatasetError(f"{path} has actions of {array.dtype}, to which first_action= does not apply")
        return
    smallest = int(np.asarray(array[:]).min(initial=first or 0))
    if first is None and smallest < 0:
        raise AmbiguousDataError(
            f"{path} has the action {smallest}; whole numbers are choices, and counted from 0: give the number of the "
            f"first one, first_action={smallest} (in commands --first-action), which is subtracted, or 0 to keep them"
        )
    if first and smallest < first:
        raise DatasetError(f"{path} has the action {smallest}, less than first_action={first}")


def _flat(array: Array) -> Array:
    return array.reshape(len(array), -1)


def labels_of(arrays: Any, name: str) -> list[str] | None:
    """Return the distinct texts of a table's column of text, sorted; None of other columns, and in other files."""
    labels: list[str] | None = arrays.labels(name) if name in getattr(arrays, "texts", ()) else None
    return labels
