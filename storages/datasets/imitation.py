"""The npz files of the package imitation: observations with one row more than actions in each episode.

``obs`` (N + episodes, ...), ``acts`` (N, ...) and ``rews`` (N,) are concatenated; ``indices`` are the numbers of steps
before each further episode, with or without N at the end, and ``terminal`` says which episodes terminated. The package
took it from environments that do not tell terminations from time limits; ``ends=`` is taken instead of it. ``infos``
are pickled objects, and never read.
"""

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from storages.datasets.answers import NONE, Answers
from storages.datasets.divided import DividedDataset, EpisodeArrays
from storages.datasets.known_names import NO_REWARDS, refuse_unknown_end
from storages.errors import AmbiguousDataError, DatasetError

_OBSERVATIONS, _ACTIONS, _REWARDS, _TERMINAL, _INDICES = "obs", "acts", "rews", "terminal", "indices"
_INFOS = "infos"
_ANSWERS = frozenset({"ends", "episode", "rewards", "first_action"})


class ImitationDataset(DividedDataset):
    """A file of the package imitation, which is read as a whole.

    Args:
        path: the file.
        arrays: its arrays by name.
        answers: what the user says; ``episode`` is the name of the indices.

    Raises:
        AmbiguousDataError: it is unknown where episodes end, or whether they terminated.
        DatasetError: an array has another length than the others.
    """

    format: ClassVar[str] = "npz of imitation"

    def __init__(self, path: Path, arrays: Mapping[str, Any], answers: Answers) -> None:
        answers.refuse_others(path, "a file of imitation, with one observation more than actions", _ANSWERS)
        observations, actions = arrays[_OBSERVATIONS], arrays[_ACTIONS]
        further = [name for name in arrays if name not in (_OBSERVATIONS, _ACTIONS, _REWARDS, _INFOS)]
        count = len(observations) - len(actions)
        starts = _starts(path, arrays, answers.episode or _INDICES, count, len(actions), further)
        if _TERMINAL not in arrays and answers.ends is None:
            refuse_unknown_end(path, [name for name in further if name != (answers.episode or _INDICES)])
        terminal = np.full(count, answers.ends == "terminated") if answers.ends else np.asarray(arrays[_TERMINAL])
        if terminal.shape != (count,):
            raise DatasetError(f"{path}: {_TERMINAL} has shape {terminal.shape}, and there are {count} episodes")
        rewards = _rewards(path, arrays, answers)
        # An episode that did not terminate was cut: by a time limit, or by the end of recording.
        truncated = np.full(count, answers.ends == "truncated") if answers.ends else np.zeros(count, np.bool_)
        episodes = [
            EpisodeArrays(
                f"{path}: episode {number}",
                {"": observations[begin + number : end + number + 1]},
                None,
                actions[begin:end],
                None if rewards is None else rewards[begin:end],
                bool(terminal[number]),
                bool(truncated[number]),
            )
            for number, (begin, end) in enumerate(pairwise(starts))
        ]
        super().__init__(path, episodes, answers)


def is_imitation(arrays: Mapping[str, Any]) -> bool:
    """Whether arrays are those of imitation: more observations than actions."""
    return _OBSERVATIONS in arrays and _ACTIONS in arrays and len(arrays[_OBSERVATIONS]) > len(arrays[_ACTIONS])


def _starts(path: Path, arrays: Mapping[str, Any], name: str, count: int, steps: int, further: list[str]) -> list[int]:
    """Return the number of the first step of each episode, and of the step after the last.

    Raises:
        AmbiguousDataError: there are no indices of that name.
        DatasetError: they do not increase, or are too few or too many.
    """
    if name not in arrays:
        raise AmbiguousDataError(
            f"{path} has {count} observations more than actions, and no {name}, which say where its {count} episodes "
            f"end; it has {', '.join(further) or 'no further arrays'}: name the array by episode= (in commands "
            f"--episode)"
        )
    indices = np.asarray(arrays[name]).reshape(-1)
    starts = [0, *indices[: count - 1].tolist(), steps]
    fits = len(indices) == count - 1 or (len(indices) == count and indices[-1] == steps)
    if not fits or any(end <= begin for begin, end in pairwise(starts)):
        raise DatasetError(
            f"{path}: {name} must be {count - 1} increasing numbers of steps below {steps}, with or without {steps} "
            f"behind them"
        )
    return starts


def _rewards(path: Path, arrays: Mapping[str, Any], answers: Answers) -> Any | None:
    if answers.rewards == NONE:
        return None
    name = answers.rewards or _REWARDS
    if name not in arrays:
        raise AmbiguousDataError(f"{path} has no array of a known name for {NO_REWARDS}")
    return arrays[name]
