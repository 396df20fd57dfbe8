"""Stored entries of the environments' infos, and components of rewards."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytorchrl.agent.envs.vector import VecStep
from storages.transition import INFO


def stored_infos(step: VecStep, keys: Sequence[str]) -> dict[str, dict[str, NDArray[Any]]]:
    """Return the INFO field of a step: a dict of arrays, (E, 1) for numbers, else (E, *info).

    Where an episode ended, infos are from its last step, not from the reset that followed; where an environment made no
    step, they are 0 if it reported none.

    Raises:
        ValueError: an environment did not report one, or not as a number or an array of numbers.
    """
    return {INFO: reported_infos(step, keys, "info_keys")} if keys else {}


def reported_infos(step: VecStep, keys: Sequence[str], asked_by: str) -> dict[str, NDArray[Any]]:
    """Return entries of the infos of a step by key, as :func:`stored_infos`.

    Args:
        step: of all environments.
        keys: of the infos.
        asked_by: name of the hyper-parameter that names them.

    Raises:
        ValueError: an environment did not report one, or not as a number or an array of numbers.
    """
    made = np.ones(len(step.reward), np.bool_) if step.made is None else step.made[:, 0]
    ended = (step.terminated | step.truncated)[:, 0] & made
    # An environment that resets in the step after an end reports its last infos as those of any step.
    last = step.infos.get("final_info", step.infos)
    columns = {}
    for key in keys:
        # Some vector environments report all infos of a step in which any episode ended as its final ones.
        running = step.infos if key in step.infos else last
        columns[key] = _column([(running, made & ~ended), (last, ended)], key, asked_by)
    return columns


def _column(parts: Sequence[tuple[Mapping[str, Any], NDArray[np.bool_]]], key: str, asked_by: str) -> NDArray[Any]:
    column: NDArray[Any] | None = None
    for reported, where in parts:
        if not where.any():
            continue
        values = np.asarray(reported.get(key))
        # Vector environments need not say which of them have reported an info.
        are_there = key in reported and np.asarray(reported.get(f"_{key}", True) | ~where).all()
        if not are_there or values.dtype.kind not in "biuf":
            known = ", ".join(sorted(name for name in reported if not name.startswith("_"))) or "none"
            raise ValueError(
                f"VecEnv: {asked_by} names {key!r}, but not every environment reported it as a number or an array of "
                f"numbers after a step; they reported {known}"
            )
        if column is None:
            column = np.zeros_like(values)
        # A number may be an integer while episodes run, and a fraction at their end.
        column = column.astype(np.result_type(column.dtype, values.dtype), copy=False)
        column[where] = values[where]
    if column is None:
        return np.zeros((len(parts[0][1]), 1))
    return column[:, None] if column.ndim == 1 else column


_COMPARED_STEPS = 100
"""Steps in which the sums of components are compared with the rewards that were paid."""


class RewardComponents:
    """Reads the components of rewards from the environments' infos.

    Args:
        names: entries of infos, or "name[2]" for an element of an array.
        weights: of the components, by name; 1 where there is none.
    """

    def __init__(self, names: Sequence[str], weights: Mapping[str, float] | None) -> None:
        self._names = names
        self._entries = [_entry_of(name) for name in names]
        self._keys = tuple(dict.fromkeys(key for key, _ in self._entries))
        self._weights = np.array([(weights or {}).get(name, 1.0) for name in names])
        self._uncompared = _COMPARED_STEPS

    def __call__(self, step: VecStep) -> NDArray[np.float32]:
        """Return the components of a step, (E, m); 0 where an environment made no step and reported none.

        Raises:
            ValueError: an environment did not report one, or not as a number.
        """
        infos = reported_infos(step, self._keys, "reward_components")
        columns = [
            _component(infos[key], position, name)
            for name, (key, position) in zip(self._names, self._entries, strict=True)
        ]
        components = np.stack(columns, axis=1)
        if self._uncompared:
            self._uncompared -= 1
            self._compare(step, components)
        return components.astype(np.float32)

    def _compare(self, step: VecStep, components: NDArray[Any]) -> None:
        """Warn if rewards differ from the components' sum, and from their weighted sum."""
        made = np.ones(len(components), np.bool_) if step.made is None else step.made[:, 0]
        paid = step.reward[:, 0].astype(np.float64)
        near = [
            np.isclose(paid, components @ each, rtol=1e-3, atol=1e-4)
            for each in (np.ones(len(self._names)), self._weights)
        ]
        differ = made & ~near[0] & ~near[1]
        if differ.any():
            self._uncompared, env = 0, int(differ.argmax())
            warnings.warn(
                f"the environments paid {paid[env]:g} for a step whose reward_components "
                f"({', '.join(self._names)}) sum to {components[env].sum():g}, and weighted to "
                f"{components[env] @ self._weights:g}: the policy maximises the weighted sum, and not the reward. Name "
                f"all components, and weight those that the reward has with factors; a wrapper that changes rewards "
                f"does not change their components",
                stacklevel=3,
            )


def _entry_of(name: str) -> tuple[str, int | None]:
    """Return the key of an info, and the index of an element: "forces[2]" is ("forces", 2)."""
    key, bracket, rest = name.partition("[")
    if bracket and rest.endswith("]") and rest[:-1].isdigit():
        return key, int(rest[:-1])
    return name, None


def _component(values: NDArray[Any], position: int | None, name: str) -> NDArray[Any]:
    """Return the numbers (E,) of a component, from the reported values (E, ...) of its info."""
    flat = values.reshape(len(values), -1)
    if position is None and flat.shape[1] == 1:
        return flat[:, 0]
    if position is None or position >= flat.shape[1]:
        raise ValueError(
            f"VecEnv: reward_components names {name!r}, of which the environments reported {flat.shape[1]} numbers; "
            f'name one of them, such as "{name.partition("[")[0]}[0]"'
        )
    return flat[:, position]
