"""The components of rewards that are stored with each transition."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytorchrl.agent.envs.vector import VecStep
from pytorchrl.scheme.stored_infos import reported_infos

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
            _column(infos[key], position, name)
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


def _column(values: NDArray[Any], position: int | None, name: str) -> NDArray[Any]:
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
