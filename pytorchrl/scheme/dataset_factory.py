"""A storage that is filled from a data set when it is made."""

import hashlib
import os
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray

from pytorchrl.agent.actors.action_mask import ActionMask
from pytorchrl.agent.actors.view import Observations
from pytorchrl.agent.envs.spaces import choices_of, space_from_data
from pytorchrl.run_files import RunFiles
from storages.component.factory import Factory
from storages.core.ring.layout import as_array, leaves, text
from storages.datasets import Dataset, SelectedDataset, SelectEpisodes, fill, open_dataset, with_returns_to_go
from storages.datasets.dataset import action_names_of
from storages.datasets.values import refuse_nonfinite, step_of_episode
from storages.episode import Episode
from storages.errors import AmbiguousDataError, DatasetError
from storages.saving import load_state_without_contents, state_without_contents
from storages.storage import Storage
from storages.transition import ACT, RHS, RHS2

_STEPS_AT_ONCE = 1_000
"""Number of steps that are read at a time to compute the checksum."""


class DatasetFactory(Factory[Storage]):
    """Makes a storage and fills it from a data set; see :func:`from_dataset`."""

    def __init__(
        self,
        storage_factory: Factory[Storage],
        path: str,
        select: SelectEpisodes | None = None,
        returns_to_go: float | None = None,
    ) -> None:
        super().__init__(storage_factory.cls, storage_factory.hyper_parameters)
        self.path, self.select, self.returns_to_go = path, select, returns_to_go

    def __call__(self, *args: Any, **kwargs: Any) -> Storage:
        """Make and fill the storage; one whose directory already holds the data set is not filled again.

        Raises:
            DatasetError: the data set does not fit the environments, or has more transitions than the storage holds;
                or the storage's directory has fewer.
        """
        storage = super().__call__(*args, **kwargs)
        _, actor, _, envs = (*args, *(kwargs[name] for name in self.cls.context[len(args) :]))
        dataset = self.dataset()
        try:
            self._fill(storage, dataset, actor, envs)
        except BaseException:
            storage.close()
            raise
        return storage

    def dataset(self) -> Dataset:
        """Return the data set that fills the storage, without returns-to-go."""
        dataset = self._opened()
        return dataset if self.select is None else SelectedDataset(dataset, self.select)

    def _opened(self) -> Dataset:
        try:
            with converting_named(self.path):
                return open_dataset(self.path)
        except AmbiguousDataError:
            raise
        except DatasetError as error:
            if RunFiles(self.path).checkpoint_file.exists():
                raise DatasetError(
                    f"{self.path} is the folder of a run; write what its storage holds to a file, and read that: "
                    f"python -m pytorchrl data convert {shlex.quote(self.path)} replay.npz"
                ) from error
            raise

    def _fill(self, storage: Storage, dataset: Dataset, actor: Any, envs: Any) -> None:
        # A storage of several environments holds only complete steps of all of them.
        expected = dataset.steps - dataset.steps % (storage.num_envs or envs.num_envs or 1)
        if len(storage):
            if len(storage) < expected:
                raise DatasetError(
                    f"{self.name}: {self.hyper_parameters['directory']} holds {len(storage):,} transitions, fewer than "
                    f"the {expected:,} of {self.path}; its filling was interrupted, or it is of another data set. Name "
                    f"another directory, or delete this one to fill it again"
                )
            return
        capacity = storage.capacity or (storage.size or sys.maxsize) * (envs.num_envs or 1)
        if expected > capacity:
            raise DatasetError(
                f"{self.name}: {self.path} has {expected:,} transitions, the storage holds {capacity:,}; make it larger"
            )
        episodes: Iterable[Episode] = dataset
        if not storage.allow_nonfinite:
            episodes = _finite(episodes, self.path)
        choices = _choices_in(envs.action_space)
        if choices is not None:
            episodes = _within(choices, episodes, self.path, envs.action_space)
        mask = getattr(actor, "mask", None)
        if mask is not None:
            episodes = _obeying(mask, episodes, self.path)
        if self.returns_to_go is not None:
            episodes = with_returns_to_go(episodes, self.returns_to_go)
        memory = actor.initial_memory(1)
        if memory is not None:
            episodes = _without_memory(episodes, memory.shape[1])
        filled = fill(storage, episodes, envs=envs)
        if len(storage) < filled.transitions:
            # With `max_bytes`, the capacity is known only after the first insertion.
            raise DatasetError(
                f"{self.name}: {self.path} has {filled.transitions:,} transitions, the storage holds {len(storage):,} "
                f"of them in max_bytes={self.hyper_parameters.get('max_bytes')}; make it larger"
            )

    def action_names(self) -> list[str]:
        """Return the names of the data's discrete actions, in the order of their numbers; none without names."""
        return action_names_of(self._opened().about)

    def spaces(self) -> Any:
        """Return the spaces of one environment of the data set.

        Raises:
            DatasetError: the data set does not describe its spaces.
        """
        about = self._opened().about
        if about.observation_space is None or about.action_space is None:
            raise DatasetError(
                f"{self.path} does not contain the spaces of its observations and actions; give the scheme "
                f"test_envs_factory (in commands --env), or write them into the data, by the bounds of the actions or "
                f"from a run: python -m pytorchrl data convert {shlex.quote(self.path)} with-spaces.npz --action-low "
                f"-1 --action-high 1, or --spaces-of RUN in place of both"
            )
        observation, action = (space_from_data(space) for space in (about.observation_space, about.action_space))
        return SimpleNamespace(observation_space=observation, action_space=action, num_envs=1, stacked_frames=0)

    @property
    def config(self) -> dict[str, Any]:
        """The factory as plain data."""
        chosen = {
            **({} if self.select is None else {"select": self.select.config}),
            **({} if self.returns_to_go is None else {"returns_to_go": self.returns_to_go}),
        }
        return super().config | {"dataset": self.path} | chosen

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DatasetFactory) and self._given == other._given and super().__eq__(other)

    def __hash__(self) -> int:
        return hash((super().__hash__(), self._given))

    def __repr__(self) -> str:
        select = "" if self.select is None else f", select={self.select}"
        returns_to_go = "" if self.returns_to_go is None else f", returns_to_go={self.returns_to_go:g}"
        return f"from_dataset({super().__repr__()}, {self.path!r}{select}{returns_to_go})"

    @property
    def _given(self) -> tuple[Any, ...]:
        return self.path, self.select, self.returns_to_go


def from_dataset(
    storage_factory: Factory[Storage],
    path: str | os.PathLike[str],
    *,
    select: SelectEpisodes | None = None,
    returns_to_go: float | None = None,
) -> Factory[Storage]:
    """Return a factory of a storage that is filled from a data set when it is made.

    The data set is only read. Checkpoints of a scheme that inserts nothing into the storage contain a checksum instead
    of the data; when the run is resumed, the storage is filled again. The recurrent states of the data are zero: a
    recurrent actor needs batches of whole episodes, or sequences with a burn-in.

    Args:
        storage_factory: of the storage; its size must hold all transitions.
        path: of a data set that `open_dataset` reads without further arguments.
        select: which of its episodes; None for all.
        returns_to_go: discount factor in [0, 1] of the field RTG, the return from each transition to the end of its
            episode; None for no such field.

    Raises:
        TypeError: several data sets are given.
        ValueError: ``returns_to_go`` is not in [0, 1].
    """
    if isinstance(given := cast("Any", path), list | tuple):
        raise TypeError(
            f"from_dataset: path must be that of one data set, got {len(given)}; write them into one: python -m "
            f"pytorchrl data merge {shlex.join(map(str, given))} -o merged.npz"
        )
    if returns_to_go is not None and not 0 <= returns_to_go <= 1:
        raise ValueError(f"from_dataset: returns_to_go must lie in [0, 1], got {returns_to_go!r}")
    return DatasetFactory(storage_factory, os.fspath(path), select, returns_to_go)


@contextmanager
def converting_named(path: str | os.PathLike[str]) -> Iterator[None]:
    """Add to the error of a file that leaves something open the command that takes the answers.

    Raises:
        AmbiguousDataError: in place of the same error.
    """
    try:
        yield
    except AmbiguousDataError as error:
        name = os.fspath(path)
        raise AmbiguousDataError(
            f"{error}. Write it with the answers, and read that: python -m pytorchrl data convert {shlex.quote(name)} "
            f"{shlex.quote(Path(name).stem)}-converted.npz --OPTION ..."
        ) from error


class DatasetEnvs:
    """The environments as given to a storage that a data set fills, which defines ``num_envs`` itself.

    Args:
        envs: the training or test environments, or the spaces of a data set.
    """

    num_envs: ClassVar[None] = None

    def __init__(self, envs: Any) -> None:
        self._envs = envs
        self.observation_space, self.action_space = envs.observation_space, envs.action_space
        self.stacked_frames = envs.stacked_frames

    @property
    def compute_reward(self) -> Any:
        """The environments' reward function, for hindsight relabelling; None where they have no goals."""
        return getattr(self._envs, "compute_reward", None)


class LoadedData:
    """Checkpoint state of a storage that a data set filled and that nothing is inserted into.

    Args:
        name: of the source, for errors.
        storage: already filled.
        path: of the data set, for errors.
    """

    def __init__(self, name: str, storage: Storage, path: str) -> None:
        self._name, self._storage, self._path = name, storage, path
        self._checksum: str | None = None

    def state_dict(self) -> dict[str, Any]:
        """Return a checksum of the data, and the storage's state without its contents."""
        return {"data": self._sum()} | state_without_contents(self._storage)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state returned by `state_dict`.

        Raises:
            ValueError: the data differs from that of the run.
        """
        if state.get("data") != self._sum():
            raise ValueError(
                f"the source {self._name!r} is not what the run learnt from: {self._path} was changed, or is another "
                f"data set; resume with the one that the run began with, or begin a new run with its weights: train "
                f"--from RUN --data ... (prl.start_from in a script)"
            )
        load_state_without_contents(self._storage, state)

    def _sum(self) -> str:
        # Computed once, since the data never changes.
        if self._checksum is None:
            self._checksum = _checksum(self._storage)
        return self._checksum


def _checksum(storage: Storage) -> str:
    """Return the BLAKE2b hash of all fields of all steps, in hexadecimal."""
    digest = hashlib.blake2b(digest_size=16)
    steps = len(storage) // max(1, storage.num_envs)
    for start in range(0, steps, _STEPS_AT_ONCE):
        for path, leaf in leaves(storage.get_data_slice(start, min(start + _STEPS_AT_ONCE, steps))):
            array = np.ascontiguousarray(as_array(leaf, path, type(storage).__name__))
            digest.update(f"{text(path)} {array.dtype} {array.shape}".encode())
            digest.update(array.data)
    return digest.hexdigest()


def _choices_in(space: gym.Space[Any]) -> NDArray[np.int64] | None:
    """Return the number of choices of each component, in the shape of a stored action; None of continuous actions."""
    if isinstance(space, spaces.MultiBinary):
        return np.full(space.shape, 2)
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return np.array(choices_of(space)).reshape(space.shape or 1)
    return None


def _finite(episodes: Iterable[Episode], path: str) -> Iterator[Episode]:
    """Yield the episodes, whose observations, actions and rewards must be finite."""
    for number, episode in enumerate(episodes):
        try:
            refuse_nonfinite(episode, number, step_of_episode, "; correct it, or leave the episode out")
        except DatasetError as error:
            raise DatasetError(
                f"{path}: {error}. Networks make NaN of it; allow_nonfinite=True of the storage is for others"
            ) from error
        yield episode


def _within(
    choices: NDArray[np.int64], episodes: Iterable[Episode], path: str, space: gym.Space[Any]
) -> Iterator[Episode]:
    """Yield the episodes, whose actions must be among the choices, counted from 0."""
    for number, episode in enumerate(episodes):
        actions = np.asarray(episode.fields[ACT])
        # Actions of another shape are refused by the storage.
        has_shape = actions.shape[1:] == choices.shape
        outside = (actions < 0) | (actions >= choices) | (actions != np.floor(actions)) if has_shape else np.zeros(1)
        wrong = outside.reshape(len(outside), -1).any(1)
        if wrong.any():
            step = int(wrong.argmax())
            raise DatasetError(
                f"{path}: the action {actions[step].tolist()} in step {step} of episode {number} is not in {space}, "
                f"whose choices are counted from 0 in data sets; correct the data, or make the environments of the data"
            )
        yield episode


def _obeying(mask: ActionMask, episodes: Iterable[Episode], path: str) -> Iterator[Episode]:
    """Yield the episodes, whose actions the mask of their observations must allow.

    No policy that obeys the mask can be trained to take another action: its log-probability is minus infinity.
    """
    for number, episode in enumerate(episodes):
        seen = episode.observations
        if isinstance(seen, Mapping) and mask.name in seen:
            rows = torch.from_numpy(np.ascontiguousarray(seen[mask.name][:-1]))
            actions = np.asarray(episode.fields[ACT])
            allowed = mask.of(Observations({mask.name: rows}))
            obeyed = allowed.include(torch.from_numpy(actions.reshape(len(actions), -1).astype(np.int64)))
            if not obeyed.all():
                step = int(obeyed.int().argmin())
                raise DatasetError(
                    f"{path}: action_mask={mask.name!r} rules out the action {actions[step].tolist()} in step {step} "
                    f"of episode {number}; correct the data, or make the actor without the mask"
                )
        yield episode


def _without_memory(episodes: Iterable[Episode], size: int) -> Iterator[Episode]:
    """Yield the episodes with zero recurrent states."""
    for episode in episodes:
        zeros = np.zeros((len(episode), size), np.float32)
        yield replace(episode, fields={**episode.fields, RHS: zeros, RHS2: zeros})
