"""Flat arrays: the concatenated steps of all episodes, as in the files of D4RL and stable-baselines3.

Such data sets mark the ends of episodes, but may lack their final observations. The last step of an episode without a
final observation is left out, unless it is terminal: then nothing is bootstrapped from the final observation, so that
the one before it takes its place, and ``facts`` have "last_observation": "not recorded". Of terminal steps, the same
share is left out as of others at the same place (:func:`~storages.datasets.episode_bounds.last_steps_left_out`).
"""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from storages.datasets.action_names import named_actions, refuse_beyond
from storages.datasets.answers import Answers
from storages.datasets.columns import as_columns, check_actions, find_array, labels_of, parts_of, read_actions
from storages.datasets.dataset import ACTION_NAMES, About, Dataset
from storages.datasets.episode_bounds import FLAGS, EpisodeBounds
from storages.datasets.known_names import PROBABILITIES, names_in, unused_in, with_dones
from storages.datasets.spaces import WrittenSpace
from storages.episode import Episode, Observations
from storages.errors import DatasetError
from storages.transition import ACT, ACTPROBS, REW, Array

FLAT_ANSWERS = frozenset(
    {
        "names",
        "ends",
        "timeouts",
        "max_episode_steps",
        "episode",
        "rewards",
        "first_action",
        "leave_out",
        "action_names",
    }
)


_MOST_TEXTS = 6
"""Texts of a column that an error shows."""
_MOST_FROM_ONE = 0.01
"""How far a sum of rounded probabilities may be from 1."""


class FlatDataset(Dataset):
    """A data set of flat arrays.

    If the actions are whole numbers, or the texts of a column, which are numbered in their order, the spaces are
    inferred from the values.

    Args:
        path: the file.
        arrays: its arrays by name, whose first axis can be sliced like that of a NumPy array; groups are mappings.
        answers: what the user says about them.

    Raises:
        AmbiguousDataError: it is unknown what the arrays mean, or where episodes end.
        DatasetError: an array is missing, or has another length or shape than the others.
    """

    def __init__(self, path: Path, arrays: Mapping[str, Any], answers: Answers) -> None:
        super().__init__(path, About())
        names = with_dones(names_in(arrays, answers, path), arrays, answers)
        _refuse_texts(path, names.named(), arrays)
        acting, names = named_actions(arrays, names, answers, path)
        named = names.named()
        found = {key: find_array(arrays, name, path) for key, name in named.items()}
        self._observations = parts_of(found.pop("observations"), answers.leave_out, path)
        following = found.pop("next_observations", None)
        self._following = None if following is None else parts_of(following, answers.leave_out, path)
        self._actions, self._rewards = found["actions"], found.get("rewards")
        self._probabilities = {field: found[key] for key, field in PROBABILITIES.items() if key in found}
        self._answers = answers
        self._check_lengths(found, named)
        self.action_names = list(acting.names)
        """The names of the actions, in the order of their numbers; empty where they have none."""
        self.rare_actions = acting.rare
        """Texts of actions that few rows have."""
        if acting.numbers is not None:
            self._actions = acting.numbers
        check_actions(self._actions, answers, path)
        self.about = self._described()
        self._check_probabilities(named)
        flags = {key: array for key, array in found.items() if key in (*FLAGS, "episode", "step")}
        self._bounds = EpisodeBounds(path, flags, self._observations, self._following, names, answers, arrays)
        self._lengths = (self._bounds.end - self._bounds.first).tolist()
        self.left_out, self.gaps = self._bounds.left_out, self._bounds.gaps
        self.unused = unused_in(arrays, named.values())
        """Names of arrays that are not read."""

    def place(self, number: int, step: int) -> str:
        """Return the row of a step, counted from 0."""
        return f"row {int(self._bounds.first[number]) + step}"

    def _check_lengths(self, found: Mapping[str, Any], named: Mapping[str, str]) -> None:
        parts = {named["observations"]: self._observations, named.get("next_observations", ""): self._following or {}}
        lengths = {
            "/".join(filter(None, (name, part))): len(array) for name, of in parts.items() for part, array in of.items()
        }
        lengths |= {named[key]: len(array) for key, array in found.items()}
        if len(set(lengths.values())) > 1:
            raise DatasetError(f"{self.path} holds arrays of different lengths: {lengths}")
        if self._following is not None and self._following.keys() != self._observations.keys():
            raise DatasetError(
                f"{self.path}: next observations have the parts {sorted(self._following)}, observations "
                f"{sorted(self._observations)}"
            )
        rewards = self._rewards
        if rewards is not None and math.prod(rewards.shape) != len(rewards):
            raise DatasetError(
                f"{self.path}: {named['rewards']} has shape {tuple(rewards.shape)}, not one number per step"
            )

    def _check_probabilities(self, named: Mapping[str, str]) -> None:
        """Refuse probabilities of another shape than one for each step, or for each of its actions.

        Raises:
            DatasetError: they have, or those of all actions do not sum to 1.
        """
        actions = self.about.action_space
        for key, field in PROBABILITIES.items():
            if field not in self._probabilities:
                continue
            shape = tuple(self._probabilities[field].shape)
            numbers = math.prod(shape[1:])
            of_all = actions["n"] if key == "probabilities" and actions is not None else 1
            if actions is not None and key == "probabilities" and 1 < numbers < of_all:
                first = self._answers.first_action or 0
                refuse_beyond(self._actions, numbers, f"{self.path}: {named['actions']}", first)
            if numbers not in (1, of_all):
                beside = f", or {of_all} for the probabilities of all actions" if of_all > 1 else ""
                raise DatasetError(
                    f"{self.path}: {named[key]} has shape {shape}, not one number for each step{beside}; in the names, "
                    f"log_probabilities are of the actions taken, and probabilities of these, or of all actions"
                )
            values = np.asarray(self._probabilities[field][:])
            sums = values.reshape(len(values), -1).sum(1)
            # Logarithms, which are negative, have no such sum.
            if numbers > 1 and (values >= 0).all() and (wrong := np.abs(sums - 1) > _MOST_FROM_ONE).any():
                raise DatasetError(
                    f"{self.path}: the probabilities {named[key]} sum to {sums[wrong][0]:g} in row "
                    f"{int(wrong.argmax())}; name those of all actions, in the order of their numbers"
                )

    def _described(self) -> About:
        """Return the spaces of discrete actions and their observations, inferred from the values."""
        actions = self._actions
        if actions.dtype.kind not in "iu" or math.prod(actions.shape) != len(actions) or not len(actions):
            if self.action_names:
                raise DatasetError(f"{self.path} has no discrete actions, to which action_names= applies; leave it out")
            return About()
        seen, taken = WrittenSpace(None, "observations"), WrittenSpace(None, "actions")
        taken.add({"": read_actions(actions[:], self._answers)})
        # Only the values of whole numbers tell their space.
        is_counted = {
            name: part.dtype.kind in "iu" and math.prod(part.shape) == len(part)
            for name, part in self._observations.items()
        }
        seen.add(
            {name: as_columns(part[:] if is_counted[name] else part[:1]) for name, part in self._observations.items()}
        )
        further = {ACTION_NAMES: self.action_names} if self.action_names else {}
        space, probabilities = dict(taken.space()), self._probabilities.get(ACTPROBS)
        if self.action_names:
            if space["n"] > len(self.action_names):
                raise DatasetError(
                    f"{self.path} has the action {space['n'] - 1}, counted from 0, and action_names= are "
                    f"{len(self.action_names)} names, {', '.join(self.action_names)}; name all actions"
                )
            space["n"] = len(self.action_names)
        if probabilities is not None and not self.action_names:
            # The last actions may never have been taken.
            space["n"] = max(space["n"], math.prod(probabilities.shape[1:]))
        return About(observation_space=seen.space(), action_space=space, further=further)

    def _episodes(self) -> Iterator[Episode]:
        bounds = self._bounds
        for number, (first, end) in enumerate(zip(bounds.first.tolist(), bounds.end.tolist(), strict=True)):
            facts: dict[str, Any] = {"number": number}
            observations: dict[str, Array] = {}
            for name, part in self._observations.items():
                before = as_columns(part[first:end])
                if bounds.recorded_further[number]:
                    after = as_columns(part[end : end + 1])
                elif self._following is not None:
                    after = as_columns(self._following[name][end - 1 : end])
                else:
                    after = before[-1:]
                    facts["last_observation"] = "not recorded"
                observations[name] = np.concatenate([before, after])
            rewards = np.zeros(end - first, np.float32) if self._rewards is None else self._rewards[first:end]
            yield Episode(
                as_observations(observations),
                {
                    ACT: read_actions(self._actions[first:end], self._answers),
                    REW: np.asarray(rewards).reshape(-1, 1),
                    **{
                        name: np.asarray(array[first:end], np.float64).reshape(end - first, -1)
                        for name, array in self._probabilities.items()
                    },
                },
                terminated=bool(bounds.terminated[number]),
                truncated=bool(bounds.truncated[number]),
                facts=facts,
            )


def _refuse_texts(path: Path, named: Mapping[str, str], arrays: Any) -> None:
    """Refuse columns of text in places of numbers, and say how they become numbers.

    Raises:
        DatasetError: there is one.
    """
    for key, name in named.items():
        if key == "episode" or (key == "actions" and labels_of(arrays, name) is not None):
            continue
        for column in (part.strip() for part in name.split(",")):
            if (labels := labels_of(arrays, column)) is None:
                continue
            values = [label for label in labels if label]
            example = values[0] if values else ""
            shown = ", ".join(map(repr, values[:_MOST_TEXTS])) + (" and others" if len(values) > _MOST_TEXTS else "")
            as_numbers = (
                f"a column of 0 and 1, as by pandas: table[{key!r}] = "
                f"table[{column!r}].isin([{example!r}, ...]).astype(int)"
                if key in FLAGS
                else f"a column of numbers, as by pandas: table['number'] = "
                f"table[{column!r}].map({{{example!r}: 0, ...}})"
            )
            raise DatasetError(
                f"{path}: {column} is text ({shown}), and {key} must be numbers; only episodes, and discrete actions "
                f"in one column, may be texts. Write {as_numbers}, and name that one"
            )


def as_observations(parts: dict[str, Array]) -> Observations:
    """Return one array, or a dict of the parts."""
    return parts[""] if list(parts) == [""] else parts
