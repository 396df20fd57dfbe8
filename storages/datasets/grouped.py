"""HDF5 files with a group for each episode, such as robomimic's (``data/demo_0``) and ManiSkill's (``traj_0``).

The groups have names that end in a number. Their arrays have known names (see :mod:`storages.datasets.known_names`)
or those that the user gives. Observations may be groups of parts, and have one row more than there are actions.
``dones`` in the last row means what it means in robomimic: the episode terminated. ``ends=`` is taken instead of all
flags.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from storages.datasets.answers import Answers, FlatNames
from storages.datasets.columns import find_array, parts_of
from storages.datasets.divided import DividedDataset, EpisodeArrays
from storages.datasets.hdf5_arrays import Nodes
from storages.datasets.known_names import DONES, KNOWN, PROBABILITIES, flags_in, names_in, refuse_unknown_end
from storages.errors import AmbiguousDataError, DatasetError

_ANSWERS = frozenset({"names", "ends", "rewards", "first_action", "leave_out"})
_NUMBERED = re.compile(r"^(.*?)(\d+)$")
_FOLDER = "data"
_FLAGS = ("terminals", "timeouts")


class GroupedDataset(DividedDataset):
    """An HDF5 file with a group for each episode.

    Args:
        path: the file.
        file: the open file.
        answers: what the user says about it.

    Raises:
        AmbiguousDataError: it is unknown what the arrays mean, or whether episodes terminated.
        DatasetError: an array is missing, or has another length than the others.
    """

    format: ClassVar[str] = "hdf5 of episodes"

    def __init__(self, path: Path, file: Any, answers: Answers) -> None:
        answers.refuse_others(path, "a file with a group for each episode", _ANSWERS)
        self._file = file
        nodes = Nodes(path, file)
        groups = groups_in(nodes)
        first = next(iter(groups.values()))
        names = names_in(first, answers, path)
        if answers.ends is not None:
            names = replace(names, terminals=None, timeouts=None)
        elif names.terminals is None:
            done = next((name for name in DONES if name in first and answers.names is None), None)
            names = replace(names, terminals=done)
            rows = len(find_array(first, names.actions, path))
            if done is None and (unknown := flags_in(first, names.named().values(), rows)):
                refuse_unknown_end(path, unknown)
        episodes = [_episode(f"{path}: {name}", path, group, names, answers) for name, group in groups.items()]
        super().__init__(path, episodes, answers)


def is_grouped(path: Path, file: Any, names: FlatNames | None) -> bool:
    """Whether an open HDF5 file has a group for each episode, and no actions of all of them."""
    nodes = Nodes(path, file)
    actions = KNOWN["actions"] if names is None else names.actions.split(",")
    return not any(name in nodes for name in actions) and bool(groups_in(nodes))


def groups_in(nodes: Mapping[str, Any]) -> dict[str, Nodes]:
    """Return the groups of episodes at the root of a file, or in its group ``data``, in the order of their numbers."""
    for place in (nodes, nodes.get(_FOLDER)):
        if not isinstance(place, Nodes):
            continue
        numbered = [match for name in place.groups() if (match := _NUMBERED.match(name)) is not None]
        # In order of numbers, as demo_10 comes before demo_2 in that of names.
        numbered.sort(key=lambda match: (match[1], int(match[2])))
        if numbered:
            return {match.string: place[match.string] for match in numbered}
    return {}


def _episode(where: str, path: Path, group: Nodes, names: FlatNames, answers: Answers) -> EpisodeArrays:
    named = names.named()
    found = {key: find_array(group, name, Path(where)) for key, name in named.items()}
    following = found.get("next_observations")
    steps = len(found["actions"])
    ended = {key: _at_end(find, steps, where, named[key]) for key, find in found.items() if key in _FLAGS}
    return EpisodeArrays(
        where,
        parts_of(found["observations"], answers.leave_out, path),
        None if following is None else parts_of(following, answers.leave_out, path),
        found["actions"],
        found.get("rewards"),
        ended.get("terminals", answers.ends == "terminated"),
        ended.get("timeouts", answers.ends == "truncated"),
        fields={field: found[key] for key, field in PROBABILITIES.items() if key in found},
    )


def _at_end(array: Any, steps: int, where: str, name: str) -> bool:
    """Return a flag at the last of the steps.

    Raises:
        AmbiguousDataError: it is true before, too.
        DatasetError: it is neither 0 nor 1, or of other steps.
    """
    flags = np.asarray(array[:]).reshape(-1)
    if len(flags) != steps or not np.isin(flags, (0, 1)).all():
        raise DatasetError(f"{where}: {name} must be 0 or 1 at each of the {steps} steps")
    if flags[:-1].any():
        raise AmbiguousDataError(
            f"{where}: {name} is true at step {int(flags.argmax())} of {steps}, before the last one; say how episodes "
            f"ended by ends= (terminated, truncated, unknown), in commands --ends"
        )
    return bool(flags[-1:].any())
