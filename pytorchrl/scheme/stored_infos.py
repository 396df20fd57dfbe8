"""The environments' infos that are stored with each transition."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytorchrl.agent.envs.vector import VecStep
from storages.transition import INFO


def stored_infos(step: VecStep, keys: Sequence[str]) -> dict[str, dict[str, NDArray[Any]]]:
    """Return the INFO field of a step: a dict of arrays, (E, 1) for numbers, else (E, *info).

    Where an episode ended, infos are from its last step, not from the reset that followed.

    Raises:
        ValueError: an environment did not report one, or not as a number or an array of numbers.
    """
    if not keys:
        return {}
    ended = (step.terminated | step.truncated)[:, 0]
    return {INFO: {key: _column(step.infos, key, ended) for key in keys}}


def _column(infos: Mapping[str, Any], key: str, ended: NDArray[np.bool_]) -> NDArray[Any]:
    column: NDArray[Any] | None = None
    for reported, where in ((infos, ~ended), (infos.get("final_info", {}), ended)):
        if not where.any():
            continue
        values = np.asarray(reported.get(key))
        if key not in reported or not np.asarray(reported[f"_{key}"])[where].all() or values.dtype.kind not in "biuf":
            known = ", ".join(sorted(name for name in reported if not name.startswith("_"))) or "none"
            raise ValueError(
                f"VecEnv: info_keys names {key!r}, but not every environment reported it as a number or an array of "
                f"numbers after a step; they reported {known}"
            )
        if column is None:
            column = np.zeros_like(values)
        column[where] = values[where]
    assert column is not None
    return column[:, None] if column.ndim == 1 else column
