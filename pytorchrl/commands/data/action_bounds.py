"""Bounds of continuous actions, which tables and flat arrays lack."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated, Any

import numpy as np
import tyro

from storages.datasets import About, Dataset
from storages.datasets.spaces import WrittenSpace, arrays_by_name
from storages.episode import Episode
from storages.errors import DatasetError
from storages.transition import ACT

Bound = Annotated[tuple[float, ...] | None, tyro.conf.arg(metavar="NUMBER ...", help_behavior_hint="")]


def with_action_bounds(
    dataset: Dataset, low: Sequence[float] | None, high: Sequence[float] | None
) -> tuple[About, Iterator[Episode]]:
    """Return the metadata with a Box of actions and the space of the observations, and the episodes.

    Args:
        dataset: whose actions are numbers of any value.
        low: the smallest action: one number, or one for each component.
        high: the largest.

    Raises:
        ValueError: one bound is missing, there are fewer or more numbers than components, or ``low`` is not below
            ``high``.
        DatasetError: actions are whole numbers, or there is no episode. The episodes raise it where an action lies
            outside.
    """
    if low is None or high is None:
        raise ValueError("--action-low and --action-high go together; give both")
    first = next(iter(dataset), None)
    if first is None:
        raise DatasetError(f"{dataset.path} has no episodes")
    actions = np.asarray(first.fields[ACT])
    if actions.dtype.kind != "f":
        raise DatasetError(
            f"{dataset.path} has whole numbers as actions, which are choices: --action-low does not apply; write them "
            f"with a decimal point if they are quantities"
        )
    shape = actions.shape[1:]
    bounds = {}
    for name, given in (("low", low), ("high", high)):
        if len(given) not in (1, int(np.prod(shape))):
            raise ValueError(f"--action-{name}: give one number, or one for each of {np.prod(shape)}, got {len(given)}")
        bounds[name] = np.broadcast_to(np.asarray(given, np.float64), (int(np.prod(shape)),)).reshape(shape)
    if not (bounds["low"] < bounds["high"]).all():
        raise ValueError(f"--action-low must be below --action-high, got {low} and {high}")
    seen = WrittenSpace(None, "observations")
    for episode in dataset:
        seen.add(arrays_by_name(episode.observations))
    box: dict[str, Any] = {"type": "Box", "dtype": "float32", "shape": list(shape)}
    about = replace(
        dataset.about,
        observation_space=dataset.about.observation_space or seen.space(),
        action_space=box | {name: bound.tolist() for name, bound in bounds.items()},
    )
    return about, _within(dataset, bounds["low"], bounds["high"])


def _within(dataset: Dataset, low: Any, high: Any) -> Iterator[Episode]:
    """Yield the episodes, whose actions must lie between the bounds; they become float32, as those of environments."""
    for number, episode in enumerate(dataset):
        actions = np.asarray(episode.fields[ACT])
        outside = ((actions < low) | (actions > high)).reshape(len(actions), -1).any(1)
        if outside.any():
            step = int(outside.argmax())
            raise DatasetError(
                f"{dataset.path}: the action is {actions[step].tolist()} in {dataset.place(number, step)}, outside of "
                f"--action-low and --action-high; widen them, or correct the data"
            )
        yield replace(episode, fields={**episode.fields, ACT: actions.astype(np.float32)})
