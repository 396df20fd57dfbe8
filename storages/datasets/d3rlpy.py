"""Dumps of the second version of d3rlpy: an HDF5 file with arrays of each episode, ``observations_0`` and so on.

The layout is that of ``ReplayBuffer.dump``: ``columns`` holds the names, ``num_episodes`` their number. Final
observations are not recorded. An episode that is not ``terminated`` was truncated.
"""

from itertools import count, takewhile
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from storages.datasets.answers import NONE, Answers
from storages.datasets.columns import parts_of
from storages.datasets.divided import DividedDataset, EpisodeArrays
from storages.datasets.hdf5_arrays import Nodes
from storages.datasets.known_names import refuse_unknown_end
from storages.errors import DatasetError

_ANSWERS = frozenset({"ends", "rewards", "first_action", "leave_out"})


class D3rlpyDataset(DividedDataset):
    """A dump of d3rlpy 2.

    Args:
        path: the file.
        file: the open file.
        answers: what the user says about it.

    Raises:
        AmbiguousDataError: it does not say whether episodes terminated.
        DatasetError: an array is missing.
    """

    format: ClassVar[str] = "d3rlpy"

    def __init__(self, path: Path, file: Any, answers: Answers) -> None:
        answers.refuse_others(path, "a dump of d3rlpy", _ANSWERS)
        self._file = file
        nodes = Nodes(path, file, scalars=True)
        episodes = int(np.asarray(nodes["num_episodes"][()]))
        if not 0 <= episodes <= len(nodes):
            raise DatasetError(f"{path} claims {episodes:,} episodes, and has {len(nodes):,} arrays")
        says_end = "terminated_0" in nodes
        if says_end and answers.ends is not None:
            raise DatasetError(f"{path} says by terminated_0 how episodes ended, so ends= does not apply")
        if not says_end and answers.ends is None and episodes:
            refuse_unknown_end(path, [name for name in nodes if name.endswith("_0") and nodes.is_scalar(name)])
        super().__init__(path, [_episode(path, nodes, number, answers) for number in range(episodes)], answers)


def is_d3rlpy(file: Any) -> bool:
    """Whether an open HDF5 file is a dump of d3rlpy 2."""
    return "num_episodes" in file and "columns" in file


def _episode(path: Path, nodes: Nodes, number: int, answers: Answers) -> EpisodeArrays:
    observations = f"observations_{number}"
    parts: Any = nodes.get(observations)
    if parts is None:
        # A tuple of observations.
        named = ((str(part), f"{observations}_{part}") for part in count())
        parts = {part: nodes[name] for part, name in takewhile(lambda named: named[1] in nodes, named)}
    needed = [f"actions_{number}", *([] if answers.rewards == NONE else [f"rewards_{number}"])]
    if answers.ends is None:
        needed.append(f"terminated_{number}")
    if missing := [name for name in needed if name not in nodes] + ([] if len(parts) else [observations]):
        raise DatasetError(f"{path} lacks {', '.join(missing)} of its episode {number}")
    terminated = answers.ends == "terminated" if answers.ends else bool(nodes[f"terminated_{number}"][()])
    return EpisodeArrays(
        f"{path}: episode {number}",
        parts_of(parts, answers.leave_out, path),
        None,
        nodes[f"actions_{number}"],
        None if answers.rewards == NONE else nodes[f"rewards_{number}"],
        terminated,
        answers.ends == "truncated" if answers.ends else not terminated,
    )
