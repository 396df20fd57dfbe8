"""The environments' infos that are stored with each transition."""

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
