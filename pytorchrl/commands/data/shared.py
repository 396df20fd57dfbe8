"""Shared parts of the commands for data sets: arguments, opening and writing."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro
from gymnasium import spaces
from numpy.typing import NDArray

from pytorchrl.experiments import RunFolder
from pytorchrl.experiments.inspection.overview import CheckpointDataset, directory_of_episodes
from pytorchrl.logging.bars import watched
from pytorchrl.logging.formats import counted
from pytorchrl.scheme.dataset_factory import converting_named
from pytorchrl.terminal import tell
from storages.datasets import FORMATS, About, Dataset, Ends, FlatNames, Written, open_dataset, write_dataset
from storages.datasets.answers import Answers
from storages.datasets.values import Place, step_of_episode
from storages.episode import Episode
from storages.transition import ACT

Format = Annotated[
    str | None,
    tyro.conf.arg(metavar="{" + ",".join(FORMATS) + "}", help_behavior_hint=""),
]
Source = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="SOURCE")]
Output = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="OUTPUT")]
Count = Annotated[int | None, tyro.conf.arg(metavar="COUNT", help_behavior_hint="")]
Text = Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="")]
Share = Annotated[float | None, tyro.conf.arg(metavar="SHARE", help_behavior_hint="")]


@dataclass(frozen=True)
class AnswerOptions:
    """Options that answer what a file leaves open.

    Args:
        names: what flat arrays are called, in pairs: observations obs actions act rewards r terminals done;
            several columns are one array, joined by commas: observations x,v,angle. Further ones are timeouts,
            episode_starts, episode_ends, last_rows, next_observations, episode, step, log_probabilities, probabilities.
        ends: how episodes ended, in files that only mark where they ended. Without final observations, the last step
            of a terminated episode is read; that of any other is left out.
        timeouts: the array that is true where a time limit ended an episode; none, if none ever did.
        max_episode_steps: the time limit that ended episodes which did not terminate.
        episode: the array with a number or a text for each episode, the same at all of its steps.
        rewards: the array of rewards; none, for a file without any, whose rewards are read as 0.
        first_action: the number of the first choice of discrete actions, which is subtracted.
        leave_out: parts of the observations that are not read, such as texts.
        action_names: the names of all discrete actions in the order of their numbers, which are alphabetical otherwise.
    """

    names: Annotated[dict[str, str], tyro.conf.arg(metavar="WHAT NAME ...", help_behavior_hint="")] = field(
        default_factory=dict
    )
    ends: Annotated[Ends | None, tyro.conf.arg(help_behavior_hint="")] = None
    timeouts: Text = None
    max_episode_steps: Count = None
    episode: Text = None
    rewards: Text = None
    first_action: Annotated[int | None, tyro.conf.arg(metavar="NUMBER", help_behavior_hint="")] = None
    leave_out: Annotated[tuple[str, ...], tyro.conf.arg(metavar="PART ...", help_behavior_hint="")] = ()
    action_names: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME ...", help_behavior_hint="")] = ()

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of :func:`open_dataset`.

        Raises:
            ValueError: an array of an unknown kind is named.
        """
        known = set(FlatNames.__dataclass_fields__)
        unknown = set(self.names) - known
        if unknown:
            raise ValueError(f"--names: unknown {', '.join(sorted(unknown))}; choose from {', '.join(sorted(known))}")
        given = {one.name: getattr(self, one.name) for one in fields(self)}
        return given | {"names": FlatNames(**self.names) if self.names else None}


AsOptions = Annotated[AnswerOptions, tyro.conf.arg(name="")]
"""The fields are options of the command."""
NO_ANSWERS = AnswerOptions()


def opened(path: Path, answers: AnswerOptions) -> Dataset:
    """Open a data set, the directory of a storage, or the storage in a run's checkpoint."""
    arguments = answers.arguments()
    if path.suffix == RunFolder(path).checkpoint_file.suffix or RunFolder(path).checkpoint_file.is_file():
        Answers(**arguments).refuse_others(path, "a run, or a checkpoint", ())
        episodes = directory_of_episodes(path)
        return CheckpointDataset(path) if episodes is None else open_dataset(episodes)
    return open_dataset(path, **arguments)


def opened_as_it_is(path: Path) -> Dataset:
    """Open a data set by a command that takes no answers to what a file leaves open.

    Raises:
        AmbiguousDataError: it leaves something open; the text says that `data convert` takes the answers.
    """
    with converting_named(path):
        return open_dataset(path)


def in_spaces(
    episodes: Iterable[Episode], observation: Any, action: Any, source: str, place: Place = step_of_episode
) -> Iterator[Episode]:
    """Yield episodes whose arrays have the shapes and dtypes of spaces.

    Args:
        episodes: the episodes.
        observation: the space of observations.
        action: the space of actions, which are counted from 0 in episodes.
        source: of the episodes, for errors.
        place: names the place of a value in errors.

    Raises:
        ValueError: they have other sizes or parts, or values outside of their space.
    """
    for number, episode in enumerate(episodes):

        def fitting(
            values: NDArray[Any], space: Any, name: str, first: int | None = None, number: int = number
        ) -> NDArray[Any]:
            return _in_space(values, space, f"the {name} of {source}", first, lambda step: place(number, step))

        seen = episode.observations
        if isinstance(observation, spaces.Dict) != isinstance(seen, Mapping):
            raise ValueError(f"--spaces-of: the policy takes {observation}, and {source} has other observations")
        if isinstance(seen, Mapping):
            if seen.keys() != observation.spaces.keys():
                raise ValueError(
                    f"--spaces-of: the policy's observations have the parts {list(observation.spaces)}, and those of "
                    f"{source} {list(seen)}"
                )
            made: Any = {name: fitting(part, observation[name], name) for name, part in seen.items()}
        else:
            assert isinstance(seen, np.ndarray)
            made = fitting(seen, observation, "observations")
        actions = fitting(np.asarray(episode.fields[ACT]), action, "actions", 0)
        yield replace(episode, observations=made, fields={**episode.fields, ACT: actions})


def _in_space(
    values: NDArray[Any], space: Any, name: str, first: int | None, place: Callable[[int], str]
) -> NDArray[Any]:
    """Return the values (L, ...) of a part of an episode in the shape and dtype of a space.

    Args:
        values: the values.
        space: the space.
        name: of the values, for errors.
        first: the first choice of a Discrete space in the values; None for that of the space.
        place: names a step.
    """
    shape = space.shape or values.shape[1:]
    if math.prod(values.shape[1:]) != math.prod(space.shape):
        raise ValueError(
            f"--spaces-of: {name} are {math.prod(values.shape[1:])} numbers a step, and those of the policy "
            f"{math.prod(space.shape)}, {space}"
        )
    made = values.reshape(len(values), *shape)
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        begin = getattr(space, "start", 0) if first is None else first
        count: Any = 2
        if not isinstance(space, spaces.MultiBinary):
            count = space.n if isinstance(space, spaces.Discrete) else space.nvec
        outside = (made < begin) | (made >= begin + count) | (made != np.floor(made))
        if (wrong := outside.reshape(len(made), -1).any(1)).any():
            step = int(wrong.argmax())
            counted_from = "" if first is None else ", whose choices are counted from 0 in data sets"
            raise ValueError(
                f"--spaces-of: {name} are {made[step].reshape(-1).tolist()} in {place(step)}, outside of "
                f"{space}{counted_from}; take a run whose policy has such ones"
            )
    return made.astype(space.dtype)


def write(
    output: Path,
    episodes: Iterable[Episode],
    total: int,
    format_: str | None,
    about: About,
    allow_nonfinite: bool = True,
) -> None:
    """Write episodes and print what was written; those of a data set may hold what it was written with."""
    # The id follows from the output's path, as in Minari.
    of_output = replace(about, dataset_id=None)
    shown = watched(episodes, f"Writing {output}", total, "episodes")
    tell_written(write_dataset(output, shown, format=format_, about=of_output, allow_nonfinite=allow_nonfinite))


def tell_written(written: Written) -> None:
    """Print what was written."""
    size = f"{counted(written.episodes, 'episode')}, {counted(written.steps, 'transition')}"
    tell(f"{written.path}: {size} ({written.format})")
