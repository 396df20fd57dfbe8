"""Commands that list, show, convert, merge, prune and split data sets."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import tyro

from pytorchrl.agent.envs.spaces import space_as_data
from pytorchrl.commands.data.action_bounds import Bound, with_action_bounds
from pytorchrl.commands.data.shared import (
    NO_ANSWERS,
    AsOptions,
    Count,
    Format,
    Output,
    Share,
    Source,
    in_spaces,
    opened,
    opened_as_it_is,
    write,
)
from pytorchrl.commands.shared import check_counts, check_seed
from pytorchrl.experiments.policies.trained_policy import spaces_of_policy
from pytorchrl.logging.bars import watched
from pytorchrl.logging.formats import counted
from pytorchrl.logging.pictures.dataset_plot import plot_dataset, refuse_other_suffix
from pytorchrl.logging.pictures.dataset_sample import data_warnings, sample_of
from pytorchrl.logging.tables.dataset_report import dataset_report, datasets_table, left_out_of, numbered_actions
from pytorchrl.terminal import TextConsole, tell
from storages.datasets import (
    Dataset,
    SelectedDataset,
    SelectEpisodes,
    about_merged,
    find_datasets,
    format_for,
    merged,
    return_of,
    succeeded,
)
from storages.datasets.dataset import action_names_of
from storages.datasets.values import with_possible_values
from storages.episode import Episode
from storages.errors import DatasetError

_MOST_NAMES = 12
"""Names of arrays that are not used, of which a line is printed."""
Run = Annotated[Path | None, tyro.conf.arg(metavar="RUN", help_behavior_hint="")]
Picture = Annotated[Path | None, tyro.conf.arg(aliases=["-o"], metavar="FILE", help_behavior_hint="")]


def ls(path: tyro.conf.Positional[Path] = Path()) -> None:
    """List the data sets and the storages on disk in a folder and all folders below it.

    Args:
        path: where to look.
    """
    found = list(find_datasets(path))
    if found:
        TextConsole().print(datasets_table(watched(found, "Reading", len(found), "data sets"), path))
    else:
        TextConsole().print(f"There is no data set in {path}.")


def show(
    path: tyro.conf.Positional[Path],
    output: Picture = None,
    answers: AsOptions = NO_ANSWERS,
) -> None:
    """Describe a data set: fields, episodes, returns, scores, how episodes ended, and what is suspicious.

    Args:
        path: a data set, the directory of a storage, or a run folder, whose checkpoint's storage is meant.
        output: a picture that ends in .png, or a page that ends in .html: returns, lengths, rewards, actions, coverage.
        answers: what the file leaves open.
    """
    if output is not None:
        refuse_other_suffix(output)
    dataset = opened(path, answers)
    report = dataset_report(dataset, watched(dataset, f"Reading {path}", len(dataset), "episodes"))
    console = TextConsole(record=output is not None)
    console.print(report)
    if not dataset.steps:
        return
    sample = sample_of(dataset, watched(dataset, f"Looking at {path}", len(dataset), "episodes"))
    for complaint in data_warnings(sample, dataset.about.action_space, action_names_of(dataset.about)):
        tell(f"Warning: {complaint}")
    if output is not None:
        tell(f"Picture: {plot_dataset(dataset, sample, output, console.export_text())}")


def convert(
    source: Source,
    output: Output,
    format: Format = None,  # noqa: A002
    spaces_of: Run = None,
    action_low: Bound = None,
    action_high: Bound = None,
    allow_nonfinite: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    answers: AsOptions = NO_ANSWERS,
) -> None:
    """Write a data set, a table of steps, or what a storage holds, in another format.

    Args:
        source: what is read: a data set, the directory of a storage, or a run folder, whose checkpoint's storage is
            meant.
        output: what is written: a folder for Minari's formats, or a file that ends in .npz; must not exist.
        format: of the output; npz where its name ends in .npz, else minari-hdf5.
        spaces_of: a run, or a file of its weights, whose spaces of observations and actions the output gets, so that
            it is trained from without an environment; the source's, unless given.
        action_low: the smallest continuous action, one number or one for each component, for a source without spaces:
            with it the output has some, of observations without bounds, and needs no environment either.
        action_high: the largest.
        allow_nonfinite: keep NaN and infinity, which are refused otherwise.
        answers: what the source leaves open.
    """
    format_for(output, format)
    dataset = opened(source, answers)
    for sentence in reading_of(dataset):
        tell(sentence)
    about, read, total = dataset.about, iter(dataset), len(dataset)
    if action_low is not None or action_high is not None:
        if spaces_of is not None:
            raise ValueError("--spaces-of gives the bounds of actions; leave out --action-low and --action-high")
        about, read = with_action_bounds(dataset, action_low, action_high)
    space = about.action_space if spaces_of is None else None
    episodes = with_possible_values(read, space, allow_nonfinite=allow_nonfinite, place=dataset.place)
    if spaces_of is not None:
        observations, actions = spaces_of_policy(spaces_of)
        about = replace(about, observation_space=space_as_data(observations), action_space=space_as_data(actions))
        episodes = in_spaces(episodes, observations, actions, str(source), dataset.place)
    ends = _Ends()
    write(output, ends.watched(episodes), total, format, about, allow_nonfinite)
    # The last episode of a file may simply go on after it.
    if ends.unknown > 1:
        tell(
            f"Warning: nothing says how {ends.unknown:,} of {counted(ends.all, 'episode')} ended, so that values go on "
            f"after their last steps. Where some ended for good, name the column that says so, by --names ... "
            f"terminals COLUMN; where only the recordings stopped, say so by --ends truncated"
        )


class _Ends:
    """Counts episodes whose ends are not known.

    Attributes:
        all: number of episodes that were seen.
        unknown: of those, how many neither terminated nor were truncated.
    """

    def __init__(self) -> None:
        self.all = self.unknown = 0

    def watched(self, episodes: Iterable[Episode]) -> Iterator[Episode]:
        """Yield the episodes as they are."""
        for episode in episodes:
            self.all += 1
            self.unknown += not (episode.terminated or episode.truncated)
            yield episode


def reading_of(dataset: Dataset) -> list[str]:
    """Return how the columns of a table or of flat arrays are read, as far as it is not said by their user."""
    said, actions = [], numbered_actions(dataset.about)
    if actions:
        said.append(f"The actions have the numbers {', '.join(actions)}")
    for rare in getattr(dataset, "rare_actions", ()):
        times = "once" if rare.count == 1 else f"{rare.count} times"
        said.append(
            f"Warning: the action {rare.name!r} occurs {times}, first in row {rare.row}, and counts as one of "
            f"{len(actions)}. If it is a typing error, correct it; --action-names refuses others than it names"
        )
    if gaps := getattr(dataset, "gaps", 0):
        said.append(f"Cut: {counted(gaps, 'episode')} where steps are missing, as the numbers of steps say")
    if unused := getattr(dataset, "unused", ()):
        more = f" and {len(unused) - _MOST_NAMES} more" if len(unused) > _MOST_NAMES else ""
        said.append(f"Not used: {', '.join(unused[:_MOST_NAMES])}{more}")
    if last_steps := left_out_of(dataset):
        said.append(
            f"Left out: {last_steps}. A column or an array of next observations (--names ... next_observations ...) "
            f"keeps every step"
        )
    return said


def merge(
    sources: Annotated[list[Path], tyro.conf.Positional, tyro.conf.arg(metavar="SOURCE ...", help_behavior_hint="")],
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="OUTPUT")],
    format: Format = None,  # noqa: A002
) -> None:
    """Concatenate several data sets into a new one.

    Args:
        sources: what is read; their fields and spaces must be alike.
        output: what is written: a folder for Minari's formats, or a file that ends in .npz; must not exist.
        format: of the output; npz where its name ends in .npz, else minari-hdf5.
    """
    format_for(output, format)
    if not sources:
        raise ValueError("merge: name the data sets to be merged")
    datasets = [opened_as_it_is(source) for source in sources]
    write(output, merged(datasets), sum(map(len, datasets)), format, about_merged(datasets))


Return = Annotated[float | None, tyro.conf.arg(metavar="RETURN", help_behavior_hint="")]
Split = Annotated[Path, tyro.conf.arg(metavar="OUTPUT", help_behavior_hint="")]


def prune(
    source: Source,
    output: Output,
    min_return: Return = None,
    max_episodes: Count = None,
    max_return: Return = None,
    best_share: Share = None,
    random_share: Share = None,
    successes: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    seed: int = 0,
    format: Format = None,  # noqa: A002
) -> None:
    """Write a selection of episodes of a data set as a new one, in their order.

    Args:
        source: what is read; it stays as it is.
        output: what is written: a folder for Minari's formats, or a file that ends in .npz; must not exist.
        min_return: leave out episodes with a lower return.
        max_episodes: keep so many at most, those with the highest returns.
        max_return: leave out episodes with a higher return.
        best_share: keep this share of them, those with the highest returns.
        random_share: keep this share of them, drawn at random.
        successes: leave out episodes that did not succeed.
        seed: of the draw.
        format: of the output; npz where its name ends in .npz, else minari-hdf5.
    """
    format_for(output, format)
    choices = (min_return, max_episodes, max_return, best_share, random_share)
    if all(choice is None for choice in choices) and not successes:
        raise ValueError(
            "prune: say what to leave out, by --min-return, --max-return, --max-episodes, --best-share, "
            "--random-share or --successes"
        )
    check_counts(max_episodes=max_episodes)
    check_seed(seed)
    selection = SelectEpisodes(
        min_return=min_return,
        max_episodes=max_episodes,
        max_return=max_return,
        best_share=best_share,
        random_share=random_share,
        successes=successes,
        seed=seed,
    )
    dataset = opened_as_it_is(source)
    read = list(watched(((return_of(one), succeeded(one)) for one in dataset), *_reading(dataset)))
    returns = [value for value, _ in read]
    try:
        kept = frozenset(selection.numbers(returns, [success for _, success in read]).tolist())
    except DatasetError as error:
        raise DatasetError(f"{source}: {error}") from error
    if not kept:
        best = max(returns, default=math.nan)
        raise ValueError(
            f"prune: the selection keeps none of the {len(returns)} episodes of {source}; the best return is {best:g}"
        )
    episodes = (one for number, one in enumerate(dataset) if number in kept)
    write(output, episodes, len(kept), format, dataset.about)


def split(
    source: Source,
    train: Split,
    validation: Split,
    validation_share: float = 0.1,
    seed: int = 0,
    format: Format = None,  # noqa: A002
) -> None:
    """Divide the episodes of a data set into one to train on and one to validate on.

    Args:
        source: what is read; it stays as it is.
        train: what is written: a folder for Minari's formats, or a file that ends in .npz; must not exist.
        validation: as train.
        validation_share: of the episodes, how many are for validation.
        seed: of the draw.
        format: of both; npz where their names end in .npz, else minari-hdf5.
    """
    check_seed(seed)
    if train == validation:
        raise ValueError(f"split: --train and --validation must be different, got {train} for both")
    for output in (train, validation):
        format_for(output, format)
    dataset = opened_as_it_is(source)
    parts = [
        SelectedDataset(dataset, SelectEpisodes(part="train", validation_share=validation_share, seed=seed)),
        SelectedDataset(dataset, SelectEpisodes(part="validation", validation_share=validation_share, seed=seed)),
    ]
    for output, part in zip((train, validation), parts, strict=True):
        write(output, part, len(part), format, dataset.about)


def _reading(dataset: Dataset) -> tuple[str, int, str]:
    return f"Reading {dataset.path}", len(dataset), "episodes"
