"""Contents of the storages of runs, as tables and histograms."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytorchrl.experiments.inspection.overview import Inspection, directory_of_episodes, inspect_storage
from pytorchrl.experiments.inspection.transitions import TransitionDescription, most_surprising
from pytorchrl.logging.formats import as_written, counted, format_bytes
from pytorchrl.report.charts import histogram
from pytorchrl.report.runs import UNREADABLE, RunRead
from storages.core.ring.summary import ENDINGS, Field

NO_CHECKPOINT = "The run has no checkpoint yet."
_MEGABYTE = 1_000_000


@dataclass(frozen=True)
class StorageRead:
    """A storage as the newest checkpoint of a run holds it."""

    facts: Sequence[tuple[str, str]]
    fields: Sequence[Field]
    histograms: Sequence[dict[str, Any]]


def read_storage(run: RunRead, largest_checkpoint: float) -> StorageRead | str:
    """Read the storage in the newest checkpoint of a run; return a text with the reason where that fails.

    Args:
        run: the run.
        largest_checkpoint: in megabytes; reading one takes about as much memory.
    """
    try:
        if not run.checkpoint.is_file():
            return NO_CHECKPOINT
        if is_too_large(run, largest_checkpoint):
            return (
                f"The checkpoint has {format_bytes(run.checkpoint.stat().st_size)}, more than the limit of "
                f"{largest_checkpoint:,.0f} MB; --largest-checkpoint changes it."
            )
        if (episodes := directory_of_episodes(run.folder)) is not None:
            return f"The storage keeps whole episodes in {episodes}; python -m pytorchrl data show describes them."
        return _described(inspect_storage(run.folder))
    except UNREADABLE as error:
        return f"It cannot be read: {' '.join(str(error).split())}"


def is_too_large(run: RunRead, largest_checkpoint: float) -> bool:
    """Whether a run's checkpoint is larger than a limit in megabytes."""
    return run.checkpoint.stat().st_size > largest_checkpoint * _MEGABYTE


def _described(inspection: Inspection) -> StorageRead:
    capacity = inspection.capacity_steps * inspection.num_envs
    hyper_parameters = {"name": inspection.name, "hyper_parameters": inspection.hyper_parameters}
    facts = [
        ("Storage", as_written(hyper_parameters)),
        ("Transitions", f"{inspection.transitions:,} of {capacity:,}"),
        ("Steps", f"{inspection.steps:,} of {counted(inspection.num_envs, 'environment')}"),
        ("Inserted so far", counted(inspection.inserted_steps, "step")),
        ("Memory", f"{format_bytes(inspection.nbytes)} for transitions, unused capacity included"),
    ]
    if inspection.priorities is not None:
        facts.append(("Memory of priorities", format_bytes(inspection.priorities.nbytes)))
    if inspection.episodes is not None:
        endings = ", ".join(f"{inspection.episodes.ended(ending):,} {ending}" for ending in ENDINGS)
        whole = int(np.count_nonzero(inspection.episodes.whole))
        facts.append(("Episodes", f"{len(inspection.episodes.returns):,}, {whole:,} of them whole: {endings}"))
    if inspection.lacks_alpha:
        facts.append(("Priorities", "unknown: alpha is neither a number nor a schedule whose value is known"))
    return StorageRead(facts, inspection.fields, _histograms(inspection))


def _histograms(inspection: Inspection) -> list[dict[str, Any]]:
    if inspection.episodes is None:
        return []
    episodes, priorities = inspection.episodes, inspection.priorities
    returns, lengths = episodes.returns[episodes.whole], episodes.lengths[episodes.whole]
    found = []
    if len(returns):
        count = counted(len(returns), "whole episode")
        found = [
            histogram(returns, f"Returns of {count}", "return"),
            histogram(lengths, f"Lengths of {count}", "environment steps"),
        ]
    if priorities is None:
        ages = inspection.steps - 1 - np.repeat(np.arange(inspection.steps), inspection.num_envs)
        return [*found, histogram(ages, "Age of stored transitions", "environment steps ago")]
    if not len(priorities.values):
        return found
    positive = priorities.values[priorities.values > 0]
    what = counted(len(positive), priorities.of)
    weights = priorities.values if len(positive) else np.ones(len(priorities.values))
    return [
        *found,
        histogram(np.log10(positive), f"Positive priorities of {what}", "priority (log10)"),
        histogram(
            priorities.ages,
            "Age of prioritised samples",
            "environment steps ago",
            weights / weights.sum(),
        ),
    ]


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
        return [_describe_transition(one) for one in most_surprising(run.folder, COUNT)]
    except UNREADABLE:
        # The section of storages says why.
        return []


def _describe_transition(one: TransitionDescription) -> Surprise:
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
