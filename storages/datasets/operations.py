"""Operations on data sets: returns, returns-to-go, normalised scores, selection by return, and merging."""

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from storages.datasets.dataset import ACTION_NAMES, About, Dataset, layout_of
from storages.datasets.spaces import union_of
from storages.episode import Episode
from storages.errors import DatasetError
from storages.transition import REW, RTG

LOW, HIGH = "ref_min_score", "ref_max_score"
"""Minari's metadata keys of the returns with normalised scores 0 and 1."""


def return_of(episode: Episode) -> float:
    """Return the undiscounted return of an episode."""
    return float(episode.fields[REW].sum(dtype=float))


def chosen(
    returns: Iterable[float], *, min_return: float | None = None, max_episodes: int | None = None
) -> frozenset[int]:
    """Choose episodes by their returns.

    Args:
        returns: returns of all episodes.
        min_return: drop episodes with a smaller return.
        max_episodes: keep at most this many episodes, those with the largest returns; among equal ones, the first.

    Returns:
        The numbers of the episodes to keep.
    """
    good = [(value, -number) for number, value in enumerate(returns) if min_return is None or value >= min_return]
    kept = good if max_episodes is None else heapq.nlargest(max_episodes, good)
    return frozenset(-number for _, number in kept)


def _said(names: Sequence[str] | None) -> str:
    return "without names" if names is None else ", ".join(names)


def about_merged(datasets: Sequence[Dataset]) -> About:
    """Merge the metadata of several data sets.

    Raises:
        DatasetError: their fields, spaces or names of actions differ; the text names two data sets for which they do.
    """
    first, *others = datasets
    names = first.about.further.get(ACTION_NAMES)
    further = {} if names is None else {ACTION_NAMES: names}
    about, layout = replace(first.about, dataset_id=None, further=further), _layout(first)
    for dataset in others:
        where = f"{first.path} and {dataset.path}"
        if (theirs := dataset.about.further.get(ACTION_NAMES)) != names:
            raise DatasetError(
                f"{where} number their actions differently, {_said(names)} and {_said(theirs)}; convert the table of "
                f"one again with the names of the other, in its order: --action-names {' '.join(names or theirs or ())}"
            )
        if (other := _layout(dataset)) != layout:
            differing = [
                f"{name} {layout.get(name, 'nothing')} beside {other.get(name, 'nothing')}"
                for name in dict.fromkeys([*layout, *other])
                if layout.get(name) != other.get(name)
            ]
            raise DatasetError(f"{where} are incompatible: {'; '.join(differing)}")
        about = replace(
            about,
            observation_space=union_of(about.observation_space, dataset.about.observation_space, where),
            action_space=union_of(about.action_space, dataset.about.action_space, where),
            env_spec=about.env_spec if about.env_spec == dataset.about.env_spec else None,
            algorithm_name=about.algorithm_name if about.algorithm_name == dataset.about.algorithm_name else None,
            author=tuple(dict.fromkeys([*about.author, *dataset.about.author])),
            author_email=tuple(dict.fromkeys([*about.author_email, *dataset.about.author_email])),
            description=about.description if about.description == dataset.about.description else None,
        )
    ids = [of.about.dataset_id or of.path.stem for of in datasets]
    return replace(about, combined_datasets=tuple(ids))


def merged(datasets: Iterable[Dataset]) -> Iterator[Episode]:
    """Iterate over the episodes of all data sets in turn, with the path of the data set as the fact "source"."""
    for dataset in datasets:
        for episode in dataset:
            yield replace(episode, facts={**episode.facts, "source": str(dataset.path)})


def first_transitions(episodes: Iterable[Episode], count: int) -> Iterator[Episode]:
    """Iterate over the first ``count`` transitions, as episodes.

    The last episode is cut to fit; if so, it is neither terminated nor truncated.

    Args:
        episodes: the episodes, in the order in which they were collected.
        count: number of transitions.
    """
    for episode in episodes:
        if count <= 0:
            return
        yield episode if len(episode) <= count else _shortened(episode, count)
        count -= len(episode)


def with_returns_to_go(episodes: Iterable[Episode], gamma: float = 1.0) -> Iterator[Episode]:
    """Add to each episode its returns-to-go, a field RTG (L, 1): ``REW[t] + gamma * RTG[t + 1]``.

    They end with the last step: nothing is bootstrapped, even if the episode was truncated.

    Args:
        episodes: the episodes, read one by one.
        gamma: discount factor; 1 as in Chen et al., "Decision Transformer" (arXiv 2106.01345), section 3.
    """
    for episode in episodes:
        rewards = episode.fields[REW].astype(np.float64)
        to_go = np.empty_like(rewards)
        following = np.zeros_like(rewards[0])
        for step in reversed(range(len(rewards))):
            following = rewards[step] + gamma * following
            to_go[step] = following
        yield replace(episode, fields={**episode.fields, RTG: to_go.astype(np.float32)})


def references_of(about: About) -> tuple[float, float] | None:
    """Return the reference returns with normalised scores 0 and 1 from the metadata; None if one is missing."""
    low, high = about.further.get(LOW), about.further.get(HIGH)
    is_told = all(isinstance(value, int | float) and np.isfinite(value) for value in (low, high))
    return (float(low), float(high)) if is_told and low < high else None  # type: ignore[arg-type,operator]


def normalised(returns: Sequence[float] | NDArray[np.float64], references: tuple[float, float]) -> NDArray[np.float64]:
    """Normalise returns to scores: Fu et al., "D4RL" (arXiv 2004.07219), section 5, without the factor of 100."""
    low, high = references
    scores: NDArray[np.float64] = (np.asarray(returns, np.float64) - low) / (high - low)
    return scores


def _shortened(episode: Episode, steps: int) -> Episode:
    seen = episode.observations
    observations = (
        {name: part[: steps + 1] for name, part in seen.items()} if isinstance(seen, Mapping) else seen[: steps + 1]
    )
    fields = {name: field[:steps] for name, field in episode.fields.items()}
    return replace(episode, observations=observations, fields=fields, terminated=False, truncated=False)


def _layout(dataset: Dataset) -> dict[str, str]:
    """Return shapes and dtypes of the fields, as text."""
    first = next(iter(dataset), None)
    if first is None:
        raise DatasetError(f"{dataset.path} is empty; leave it out")
    return {name: f"{leaf.dtype}{leaf.shape}" for name, leaf in layout_of(first).items()}
