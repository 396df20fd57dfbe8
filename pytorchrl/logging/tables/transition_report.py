"""Tables of stored transitions, for a terminal."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from pytorchrl.experiments.inspection.transitions import TransitionDescription

_MOST_NUMBERS = 8
"""Size of an array up to which its numbers are shown."""


def transitions_table(transitions: Sequence["TransitionDescription"]) -> Table:
    """Return a row for each transition; columns without any value are left out."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    several = len({one.environment for one in transitions}) > 1
    columns: dict[str, list[str]] = {
        "row": [str(one.row) for one in transitions],
        "env": [str(one.environment) if several else "" for one in transitions],
        "episode": [str(one.episode) for one in transitions],
        "step": [_step(one) for one in transitions],
        "age": [f"{one.age_steps:,}" for one in transitions],
        "priority": [_number(one.priority) for one in transitions],
        "draws": ["" if one.draws is None else f"{one.draws:,}" for one in transitions],
        "weight": [_number(one.weight) for one in transitions],
        "reward": [f"{one.reward:.4g}" for one in transitions],
        "end": [_end(one) for one in transitions],
        "action": [format_values(one.action) for one in transitions],
    }
    shown = {heading: cells for heading, cells in columns.items() if any(cells)}
    for heading in shown:
        table.add_column(
            heading, justify="left" if heading in ("end", "action") else "right", no_wrap=heading != "action"
        )
    for cells in zip(*shown.values(), strict=True):
        table.add_row(*cells)
    return table


def transition_report(transition: "TransitionDescription", around: Sequence["TransitionDescription"]) -> Group:
    """Return all that is known of a transition, and the steps around it.

    Args:
        transition: the transition.
        around: those before and after it, and itself, in the order of time.
    """
    table = Table.grid(padding=(0, 2))
    for name, value in _lines(transition).items():
        table.add_row(Text(name, style="bold"), value)
    return Group(table, _steps_table(transition, around))


def format_values(value: Any) -> str:
    """Format a small array by its numbers, ``0.12 -1.5``, and a large one by dtype and shape."""
    numbers = np.asarray(value)
    if numbers.size > _MOST_NUMBERS:
        return f"{numbers.dtype} {numbers.shape}"
    return " ".join(f"{number:.4g}" for number in numbers.ravel().tolist())


def _lines(transition: "TransitionDescription") -> dict[str, str]:
    episode = f"{transition.episode} of the stored ones, return {transition.episode_return:.4g}"
    if transition.step_in_episode is None:
        step = f"unknown: only the last {transition.episode_length:,} steps of the episode are stored"
    else:
        step = f"{transition.step_in_episode:,} of {transition.episode_length:,}, counted from 0"
    lines = {
        "Row": str(transition.row),
        "Environment": str(transition.environment),
        "Episode": episode,
        "Step": step,
        "Age": f"{transition.age_steps:,} steps",
        "Priority": _number(transition.priority) or "none",
        "Draws": "not counted; make the storage with count_draws=True"
        if transition.draws is None
        else f"{transition.draws:,}",
        "Weight": _number(transition.weight) or "none",
        "Reward": f"{transition.reward:.6g}",
        "End": _end(transition) or "no",
        "Action": format_values(transition.action),
    }
    if transition.mean_weight is not None:
        lines["Weight"] += f" now, {transition.mean_weight:.4g} on average when it was drawn"
    return lines


def _steps_table(transition: "TransitionDescription", around: Sequence["TransitionDescription"]) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    parts = _parts(transition.observation)
    for heading in ("step", "row", *parts, "action", "reward", "end"):
        table.add_column(heading, justify="right" if heading in ("step", "row", "reward") else "left")
    for one in around:
        values = [format_values(part) for part in _parts(one.observation).values()]
        cells = [_step(one), str(one.row), *values, format_values(one.action), f"{one.reward:.4g}", _end(one)]
        table.add_row(*cells, style="bold red" if one.row == transition.row else "")
    return table


def _parts(observation: Any) -> dict[str, Any]:
    if isinstance(observation, Mapping):
        return {f"observation {name}": part for name, part in observation.items()}
    return {"observation": observation}


def _step(one: "TransitionDescription") -> str:
    return "?" if one.step_in_episode is None else f"{one.step_in_episode:,}"


def _end(one: "TransitionDescription") -> str:
    return "terminated" if one.terminated else "truncated" if one.truncated else ""


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
