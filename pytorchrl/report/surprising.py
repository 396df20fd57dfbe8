"""The most surprising transitions, those with the largest errors, as rows of a table."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytorchrl.experiments.inspection.transitions import TransitionDescription, most_surprising
from pytorchrl.report.runs import UNREADABLE, RunRead
from pytorchrl.report.storage import is_too_large

COUNT = 10
_MOST_NUMBERS = 24
"""Size of an array up to which all its numbers are shown."""


@dataclass(frozen=True)
class Surprise:
    """A stored transition, formatted for the page."""

    row: int
    priority: str
    draws: str
    weight: str
    age: str
    where: str
    """Its episode and step."""
    reward: str
    end: str
    """How the episode ended with it; empty where it went on."""
    action: str
    observation: str
    next_observation: str


def surprising_of(run: RunRead, largest_checkpoint: float) -> list[Surprise]:
    """Return the most surprising transitions of a run; none where it has no priorities, or cannot be read.

    Args:
        run: the run.
        largest_checkpoint: in megabytes.
    """
    if not run.checkpoint.is_file() or is_too_large(run, largest_checkpoint):
        return []
    try:
        return [_told(one) for one in most_surprising(run.folder, COUNT)]
    except UNREADABLE:
        # The section of storages says why.
        return []


def _told(one: TransitionDescription) -> Surprise:
    step = "" if one.step_in_episode is None else f"step {one.step_in_episode + 1:,} of {one.episode_length:,} in "
    return Surprise(
        row=one.row,
        priority=_number(one.priority),
        draws=_number(one.draws),
        weight=_number(one.weight),
        age=_number(one.age_steps),
        where=f"{step}episode {one.episode:,}, return {one.episode_return:,.4g}",
        reward=_number(one.reward),
        end="terminated" if one.terminated else "truncated" if one.truncated else "",
        action=_array(one.action),
        observation=_array(one.observation),
        next_observation=_array(one.next_observation),
    )


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


def _array(value: Mapping[str, Any] | NDArray[Any]) -> str:
    if isinstance(value, Mapping):
        return "; ".join(f"{name}: {_array(part)}" for name, part in value.items())
    array = np.asarray(value)
    if array.size > _MOST_NUMBERS:
        return f"{array.dtype.name} {array.shape}, from {array.min():.4g} to {array.max():.4g}"
    return ", ".join(f"{number:.4g}" for number in array.ravel().tolist())
