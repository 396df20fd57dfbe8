"""The infos of copies of an environment, in the layout of gymnasium's vector environments."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Infos(Mapping[str, Any]):
    """The infos of the copies, converted to the layout of gymnasium's vector environments at first use.

    Unlike gymnasium's own conversion, which takes dtype and shape from the first copy, it keeps every value: copies may
    report integers and fractions, arrays of different shapes, or a number and None under one key.

    Args:
        reported: infos of the copies.
        last: index and last info of each copy whose episode ended.
    """

    def __init__(self, reported: Sequence[Mapping[str, Any]], last: Sequence[tuple[int, Mapping[str, Any]]]) -> None:
        self._reported, self._last = reported, last
        self._made: dict[str, Any] | None = None

    def __getitem__(self, name: str) -> Any:
        return self._all[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    @property
    def _all(self) -> dict[str, Any]:
        if self._made is None:
            last = [(env, {"final_info": info}) for env, info in self._last]
            self._made = _joined([*last, *enumerate(self._reported)], len(self._reported))
        return self._made


def _joined(infos: Sequence[tuple[int, Mapping[str, Any]]], num_envs: int) -> dict[str, Any]:
    """Return for each key the values of all copies, (E, ...), and which copies reported it, (E,)."""
    values_of: dict[str, dict[int, Any]] = {}
    for env, info in infos:
        for key, value in info.items():
            values_of.setdefault(key, {})[env] = value
    joined: dict[str, Any] = {}
    for key, values in values_of.items():
        mask = np.zeros(num_envs, np.bool_)
        mask[list(values)] = True
        joined |= {key: _column(values, num_envs), f"_{key}": mask}
    return joined


def _column(values: Mapping[int, Any], num_envs: int) -> dict[str, Any] | NDArray[Any]:
    """Return a dict of columns where all values are dicts, numbers where all are numbers, and else objects."""
    if all(isinstance(value, dict) for value in values.values()):
        return _joined(list(values.items()), num_envs)
    arrays = [np.asarray(value) for value in values.values() if isinstance(value, _NUMBERS)]
    shape = arrays[0].shape if arrays else ()
    fit = len(arrays) == len(values) and all(array.dtype.kind in "biufc" and array.shape == shape for array in arrays)
    column: NDArray[Any] = np.full(num_envs, None)
    if fit:
        column = np.zeros((num_envs, *shape), np.result_type(*(array.dtype for array in arrays)))
    for env, value in values.items():
        column[env] = value
    return column


_NUMBERS = bool | int | float | np.generic | np.ndarray


def copied_info(info: Mapping[str, Any]) -> dict[str, Any]:
    """Copy an info with its arrays, which the next reset may write over; other objects in it are not copied."""
    return {key: _copied(value) for key, value in info.items()}


def _copied(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.copy()
    return copied_info(value) if isinstance(value, dict) else value
