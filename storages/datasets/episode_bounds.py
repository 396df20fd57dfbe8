"""Bounds of the episodes in flat arrays, from flags, numbers of episodes, a time limit and next observations."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from storages.datasets.answers import Answers, FlatNames
from storages.datasets.columns import labels_of
from storages.datasets.known_names import (
    DONES,
    HOW_TO_ANSWER,
    flags_in,
    knows_limits,
    refuse_unclear,
    refuse_unknown_end,
)
from storages.errors import DatasetError
from storages.transition import Array

FLAGS = ("terminals", "timeouts", "episode_starts", "episode_ends", "last_rows")
"""Arguments of :class:`FlatNames` that are flags (N,)."""


class EpisodeBounds:
    """Bounds of the episodes, arrays (episodes,).

    Args:
        path: the file.
        roles: flags and numbers of episodes (N,), by argument name of :class:`FlatNames`.
        observations: arrays (N, ...) by the name of their part.
        following: the same after each step; None if they are not recorded.
        names: what the arrays are called.
        answers: what the user says.
        arrays: all arrays of the file by name, for errors and for the texts of episodes.

    Raises:
        AmbiguousDataError: it is unknown where episodes end.
        DatasetError: a flag is neither 0 nor 1, or the answers contradict the file.
    """

    def __init__(
        self,
        path: Path,
        roles: Mapping[str, Any],
        observations: Mapping[str, Any],
        following: Mapping[str, Any] | None,
        names: FlatNames,
        answers: Answers,
        arrays: Mapping[str, Any],
    ) -> None:
        named = names.named()
        count = len(next(iter(observations.values())))
        flags = {key: _flags(roles[key], f"{path}: {named[key]}") for key in FLAGS if key in roles}
        none = np.zeros(count, np.bool_)
        terminals, timeouts, ends, last_rows = (
            flags.get(key, none) for key in ("terminals", "timeouts", "episode_ends", "last_rows")
        )
        if "terminals" in flags and answers.ends is not None:
            raise DatasetError(f"{path} says by {named['terminals']} how episodes ended, so ends= does not apply")
        if (terminals & ~ends).any() and "episode_ends" in flags:
            raise DatasetError(
                f"{path}: {named['terminals']} is true where {named['episode_ends']} is not; name the right one: "
                f"names=FlatNames(..., terminals=..., timeouts=...), or --names in commands"
            )
        bounds = timeouts | ends | last_rows
        if "episode_starts" in flags:
            bounds[:-1] |= flags["episode_starts"][1:]
        if "episode" in roles:
            texts = labels_of(arrays, named["episode"])
            bounds[:-1] |= _changes(np.asarray(roles["episode"][:]), f"{path}: {named['episode']}", texts)
        self.gaps = 0
        """Number of episodes that are cut, as the numbers of their steps leave some out."""
        if "step" in roles:
            gaps = _gaps(np.asarray(roles["step"][:]), bounds | terminals, f"{path}: {named['step']}")
            self.gaps = int(gaps.sum())
            bounds[:-1] |= gaps
        truncated = bounds.copy()
        last = bounds | terminals
        last[-1:] = True
        if answers.max_episode_steps is not None:
            limits = _steps_in(last) % answers.max_episode_steps == 0
            timeouts = timeouts | (limits & ~terminals)
            truncated |= limits
            last |= limits
        is_known = _are_ends_known(flags, roles, answers, names)
        says_what = "terminals" in flags or answers.ends is not None
        if not is_known and (following is None or not says_what):
            refuse_unclear(path, _lacking(flags, named, answers), flags_in(arrays, named.values(), count))
        if following is not None:
            breaks = breaks_in(observations, following) & ~last
            if breaks.sum() <= (~last).sum() / 2:
                last |= breaks
            elif not is_known:
                refuse_unclear(
                    path,
                    f"and in {breaks.sum():,} of {count:,} steps the next observation is not the following one"
                    f"{HOW_TO_ANSWER}",
                    flags_in(arrays, named.values(), count),
                )
        if "terminals" not in flags:
            if "episode_ends" in flags and knows_limits(names, answers):
                terminals, truncated = ends & ~timeouts, timeouts
            else:
                unknown = flags_in(arrays, named.values(), count)
                if answers.ends is None and unknown:
                    refuse_unknown_end(path, unknown)
                terminals, truncated = (last if answers.ends == way else none for way in ("terminated", "truncated"))
        ending = np.flatnonzero(last)
        first = np.concatenate([[0], ending[:-1] + 1]).astype(np.int64)[: len(ending)]
        terminated = terminals[ending]
        lacks_final = ~last_rows[ending] if following is None else np.zeros(len(ending), np.bool_)
        self.left_out = last_steps_left_out(ending + 1 - first, terminated, lacks_final)
        """The last steps that are not read, as no next observation is recorded."""
        cut = self.left_out.of_terminated
        terminated = terminated & ~cut
        # A step without its next observation is of no use, unless it is terminal.
        shortened = last_rows[ending] | self.left_out.of_others | cut
        kept = ending + 1 - shortened - first > 0
        self.first: NDArray[np.int64] = first[kept]
        self.end: NDArray[np.int64] = (ending + 1 - shortened)[kept]
        self.terminated = terminated[kept]
        # A flag of a time limit stays true beside a termination; another bound says nothing then.
        self.truncated: NDArray[np.bool_] = ((timeouts | (truncated & ~terminals))[ending] | cut)[kept]
        self.recorded_further: NDArray[np.bool_] = shortened[kept]
        """Whether the last row is no step, and its observation is the final one."""


@dataclass(frozen=True)
class LastSteps:
    """Last steps of episodes that are not read, by episode: arrays (episodes,)."""

    of_others: NDArray[np.bool_]
    """Of episodes that did not terminate, and whose final observation is not recorded."""
    of_terminated: NDArray[np.bool_]
    """Of episodes that terminated, which are read as truncated before it."""
    kept: int
    """Number of last steps that are read although their next observation is not recorded: they terminated."""


def last_steps_left_out(
    lengths: NDArray[np.int64], terminated: NDArray[np.bool_], lacks_final: NDArray[np.bool_]
) -> LastSteps:
    """Return the last steps to leave out, where final observations are not recorded.

    The last step of an episode that did not terminate is of no use. If all terminal ones were read, terminations would
    be more frequent in what is read than they were: at the end of a recording of fixed length, all steps would be
    terminal. So of the terminal steps with number t of their episodes, the same share is left out as of the others
    with number t; the share of terminations at each t is then as it was. Fewer than ten others tell no share.

    Args:
        lengths: of the episodes, (episodes,).
        terminated: whether each terminated.
        lacks_final: whether its final observation is not recorded.
    """
    others, candidates = lacks_final & ~terminated, lacks_final & terminated
    size = int(lengths.max(initial=0)) + 1
    dropped = np.bincount(lengths[others], minlength=size)
    # Episodes that are longer than t have a step t with a next observation.
    longer = len(lengths) - np.cumsum(np.bincount(lengths, minlength=size))
    read = longer + np.bincount(lengths[~others & ~terminated], minlength=size)
    share = np.where(dropped >= _FEWEST, dropped / np.maximum(dropped + read, 1), 0.0)
    # At equal distances in the order of the file, so that the same steps are left out every time.
    due = np.cumsum(np.where(candidates, share[lengths], 0.0))
    rounded = np.ceil(due - 0.5 - _ROUNDING)
    of_terminated: NDArray[np.bool_] = candidates & (np.diff(rounded, prepend=0.0) > 0)
    return LastSteps(others, of_terminated, int((candidates & ~of_terminated).sum()))


_FEWEST = 10
"""Number of others whose last step has a number, from which the share is taken."""
_ROUNDING = 1e-9


def _are_ends_known(flags: Mapping[str, Any], roles: Mapping[str, Any], answers: Answers, names: FlatNames) -> bool:
    """Whether flags, or what the user says, mark all ends of episodes."""
    if "episode" in roles or "episode_starts" in flags or "last_rows" in flags:
        return True
    if "episode_ends" in flags:
        is_told = answers.names is not None or names.episode_ends not in DONES
        # Flags called `dones` that repeat the terminals say nothing of time limits.
        further = "terminals" not in flags or bool((np.asarray(flags["episode_ends"]) & ~flags["terminals"]).any())
        if is_told or further:
            return True
    limits = "timeouts" in flags or answers.are_ends_given
    return limits and ("terminals" in flags or answers.ends == "truncated")


def _lacking(flags: Mapping[str, Any], named: Mapping[str, str], answers: Answers) -> str:
    """Return what a file lacks, and what answers."""
    if "terminals" in flags:
        return (
            f"but by terminating: it has {named['terminals']}, and neither time limits nor next observations"
            f"{HOW_TO_ANSWER}"
        )
    how = "" if "timeouts" in flags or answers.are_ends_given else HOW_TO_ANSWER
    return (
        f"as no array is known to mark terminations: name it by names=FlatNames(..., terminals=...), or say "
        f"ends='truncated' if no episode terminated (in commands --names or --ends){how}"
    )


def _flags(array: Any, where: str) -> NDArray[np.bool_]:
    if math.prod(array.shape) != len(array):
        raise DatasetError(f"{where} has shape {tuple(array.shape)}, not one number per step")
    values = np.asarray(array[:]).reshape(-1)
    flags: NDArray[np.bool_] = values == 1
    wrong = ~flags & (values != 0)
    if wrong.any():
        step = int(wrong.argmax())
        raise DatasetError(f"{where} is {values[step]} in row {step}, where a flag must be 0 or 1")
    return flags


def _changes(numbers: Any, where: str, texts: Sequence[str] | None) -> NDArray[np.bool_]:
    """Return whether the next row (N - 1,) is of another episode.

    Args:
        numbers: of the episodes (N,).
        where: the file and the column.
        texts: those of the numbers, where the column is text.

    Raises:
        DatasetError: the rows of an episode are not next to each other, a row has none, or there is not one number
            per row.
    """
    if numbers.size != len(numbers):
        raise DatasetError(f"{where} has shape {numbers.shape}, not one number per step")
    numbers = numbers.reshape(-1)
    if numbers.dtype.kind == "f" and not np.isfinite(numbers).all():
        row = int((~np.isfinite(numbers)).argmax())
        raise DatasetError(f"{where} is {numbers[row]} in row {row}, which numbers no episode")
    if texts is not None and "" in texts:
        row = int((numbers == texts.index("")).argmax())
        raise DatasetError(f"{where} is empty in row {row}; fill in of which episode the row is, or leave the row out")
    changes: NDArray[np.bool_] = numbers[1:] != numbers[:-1]
    begins = np.concatenate([np.zeros(1, np.int64), np.flatnonzero(changes) + 1])[: len(numbers)]
    _, first = np.unique(numbers[begins], return_index=True)
    if len(first) < len(begins):
        again = int(np.setdiff1d(np.arange(len(begins)), first)[0])
        number = numbers[begins[again]]
        shown = number if texts is None else repr(texts[int(number)])
        raise DatasetError(
            f"{where} is {shown} again in row {begins[again]}, after rows of other episodes; sort the rows by episode "
            f"and then by time, and give each episode a number of its own"
        )
    return changes


def _gaps(steps: Any, last: NDArray[np.bool_], where: str) -> NDArray[np.bool_]:
    """Return where the number of a step and that of the next row (N - 1,) are not those of successive steps.

    Args:
        steps: the numbers (N,).
        last: whether a row is the last one of its episode (N,).
        where: the file and the column.

    Raises:
        DatasetError: the numbers decrease or stay in an episode, or there is not one per row.
    """
    if steps.size != len(steps):
        raise DatasetError(f"{where} has shape {steps.shape}, not one number per step")
    steps = steps.reshape(-1)
    # Unsigned numbers have no negative differences.
    growth = np.diff(steps.astype(np.float64 if steps.dtype.kind == "f" else np.int64))
    inside = ~last[:-1]
    if (wrong := inside & ~(growth > 0)).any():
        row = int(wrong.argmax())
        raise DatasetError(
            f"{where} is {steps[row + 1]} in row {row + 1}, after {steps[row]} in the same episode; sort the rows of "
            f"each episode by it, and leave out repeated ones"
        )
    usual = np.median(growth[inside]) if inside.any() else 1
    gaps: NDArray[np.bool_] = inside & ~np.isclose(growth, usual)
    return gaps


def _steps_in(last: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the number of each step (N,) in its episode, counted from 1."""
    rows = np.arange(len(last))
    first = np.zeros(len(last), np.int64)
    first[1:] = np.where(last[:-1], rows[1:], 0)
    steps: NDArray[np.int64] = rows - np.maximum.accumulate(first) + 1
    return steps


_ROWS_AT_ONCE = 100_000
_OF_SPREAD = 1e-6
"""Rounding of a difference of larger numbers, as a fraction of the spread of a component."""


def breaks_in(observations: Mapping[str, Any], following: Mapping[str, Any]) -> NDArray[np.bool_]:
    """Return whether the next observation of each step (N,) differs from the observation of the following step.

    Numbers are compared in the coarser of the two precisions in which they are kept: next observations that were
    rounded, or cast to float16 and back, differ from nothing. Whole numbers are compared exactly. NaN equals NaN.

    Args:
        observations: arrays (N, ...) by the name of their part.
        following: as observations, after each step.
    """
    breaks = np.zeros(len(next(iter(observations.values()))), np.bool_)
    for name, part in observations.items():
        for begin in range(0, len(breaks) - 1, _ROWS_AT_ONCE):
            end = min(begin + _ROWS_AT_ONCE, len(breaks) - 1)
            here, there = np.asarray(following[name][begin:end]), np.asarray(part[begin + 1 : end + 1])
            rows = (end - begin, -1)
            breaks[begin:end] |= _differ(here.reshape(rows), there.reshape(rows)).any(axis=1)
    return breaks


def _differ(one: Array, two: Array) -> NDArray[np.bool_]:
    """Return which numbers (rows, components) differ by more than rounding."""
    unequal: NDArray[np.bool_] = (one != two) & ~((one != one) & (two != two))
    if not unequal.any() or (one.dtype.kind != "f" and two.dtype.kind != "f"):
        return unequal
    with np.errstate(invalid="ignore", over="ignore"):
        left, right = one.astype(np.float64), two.astype(np.float64)
        if _whole(left) and _whole(right):
            return unequal
        finite = np.isfinite(left) & np.isfinite(right)
        spread = np.ptp(np.where(finite, left, 0), axis=0)
        precision = max(_precision(one), _precision(two))
        allowed = precision * np.maximum(np.abs(left), np.abs(right)) + _OF_SPREAD * spread
        differs: NDArray[np.bool_] = unequal & ~(finite & (np.abs(left - right) <= allowed))
    return differs


def _precision(array: Array) -> float:
    """Return the largest relative error of a cast to the coarsest floats that hold an array."""
    if array.dtype.kind != "f":
        return 0.0
    finite = array[np.isfinite(array)]
    if finite.dtype.itemsize >= np.dtype(np.float32).itemsize:
        single = finite.astype(np.float32)
        if np.array_equal(single, finite):
            # bfloat16 is the upper half of float32.
            if not (single.view(np.uint32) & 0xFFFF).any():
                return 2.0**-7
            if np.array_equal(finite.astype(np.float16).astype(finite.dtype), finite):
                return 2.0**-10
            return 2.0**-22
        return 2.0**-48
    return 2.0**-10


def _whole(array: NDArray[np.float64]) -> bool:
    return bool(np.all((array == np.rint(array)) | ~np.isfinite(array)))
