"""Base class of callbacks that evaluate the policy on a data set."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from pytorchrl.experiments.callbacks.callback import Callback, TrainingRun, is_due
from pytorchrl.scheme.compatibility import CompositionError
from pytorchrl.scheme.dataset_factory import DatasetEnvs, DatasetFactory
from pytorchrl.scheme.scheme import Scheme
from pytorchrl.scheme.seeds import seed_of
from storages import HERBuffer, PERBuffer, PersistentEpisodicBuffer, ReplayBuffer, Storage
from storages.component.declared import hyper_parameters_of
from storages.component.factory import Factory, make_factory
from storages.component.hyper_parameters import Count
from storages.datasets import Dataset, SelectedDataset, SelectEpisodes, open_dataset
from storages.episode import Episode

_STREAM = 102
"""Spawn key of the seed of evaluations on data."""


@dataclass(eq=False)
class EvaluateOnData(Callback):
    """Base class of evaluations on data, without an environment, which do not affect training.

    Args:
        every: steps of the run between evaluations.
        dataset: path of the data set; None for the one that the run learns from.
        select: which of its episodes; None for the validation episodes of a run with ``SelectEpisodes(part="train")``,
            else for all.
    """

    every: Count = 5_000
    dataset: str | None = field(default=None, kw_only=True)
    select: SelectEpisodes | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._evaluated_at = 0
        self._storage: Storage | None = None

    def on_run_begin(self, learner: TrainingRun) -> None:
        """Open the data set, so that a missing one is reported before training.

        Raises:
            CompositionError: neither the callback nor the run names one.
        """
        self.data(learner.scheme)

    def on_step(self, learner: TrainingRun) -> None:
        """Evaluate if it is due."""
        if is_due(self.every, self._evaluated_at, learner.scheme.steps):
            self._evaluated_at = learner.scheme.steps
            learner.log({f"offline/{name}": value for name, value in self.evaluate(learner.scheme).items()})

    @abstractmethod
    def evaluate(self, scheme: Scheme) -> dict[str, float]:
        """Return the metrics of the scheme's current policy, by names without the prefix "offline/"."""

    def state_dict(self) -> dict[str, Any]:
        """Return the steps at the last evaluation."""
        return {"evaluated_at": self._evaluated_at}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state returned by `state_dict`."""
        self._evaluated_at = state["evaluated_at"]

    # For subclasses

    def data(self, scheme: Scheme) -> Dataset:
        """Return the data set of the selected episodes.

        Raises:
            CompositionError: neither the callback nor the run names one.
        """
        path, select = self._place(scheme)
        dataset = open_dataset(path)
        return dataset if select is None else SelectedDataset(dataset, select)

    def storage(self, scheme: Scheme, *, like_the_run: bool) -> Storage:
        """Return a storage of the selected episodes, which makes the same batches in each evaluation.

        Args:
            scheme: the scheme that is evaluated.
            like_the_run: make batches in the form that the algorithm learns from: sequences, n-step, stacked frames;
                otherwise of single transitions.
        """
        if self._storage is None:
            self._storage = self._made(scheme, like_the_run)
        self._storage.seed(self.seed(scheme))
        return self._storage

    def seed(self, scheme: Scheme) -> np.random.SeedSequence:
        """Return the seed of all random numbers of an evaluation."""
        return seed_of(scheme.run_seed, _STREAM)

    def _made(self, scheme: Scheme, like_the_run: bool) -> Storage:
        (path, select), steps = self._place(scheme), self.data(scheme).steps
        plain = ReplayBuffer.create_factory(size=steps)
        factory = DatasetFactory(_in_memory(_storage_of(scheme), steps) if like_the_run else plain, path, select)
        storage = factory(scheme.device, scheme.actor, scheme.algorithm, DatasetEnvs(spaces_of(scheme)))
        scheme.algorithm.request_fields("main", storage)
        return storage

    def _place(self, scheme: Scheme) -> tuple[str, SelectEpisodes | None]:
        of_run = next((one for one in scheme.factories if isinstance(one, DatasetFactory)), None)
        if self.dataset is not None:
            return self.dataset, self.select
        if of_run is None:
            raise CompositionError(
                f"{type(self).__name__}: the run learns from no data set; name one: {type(self).__name__}(dataset=...)"
            )
        select = self.select
        if select is None and of_run.select is not None and of_run.select.part == "train":
            select = replace(of_run.select, part="validation")
        return of_run.path, select


def episodes_with_steps(dataset: Dataset) -> Iterator[Episode]:
    """Return the episodes of at least one step."""
    return (episode for episode in dataset if len(episode))


def spaces_of(scheme: Scheme) -> SimpleNamespace:
    """Return the attributes of environments that actors and storages read."""
    spaces = {name: getattr(scheme.actor, name) for name in ("observation_space", "action_space")}
    # Observations in data sets already contain all stacked frames.
    return SimpleNamespace(**spaces, num_envs=1, stacked_frames=0)


def _storage_of(scheme: Scheme) -> Factory[Storage]:
    return next(one for one in scheme.factories if issubclass(one.cls, Storage))


def _in_memory(storage: Factory[Storage], steps: int) -> Factory[Storage]:
    """Return a factory of an in-memory storage that makes the same batches."""
    # Evaluation needs neither storage on disk nor relabelled goals.
    cls = PERBuffer if issubclass(storage.cls, PersistentEpisodicBuffer | HERBuffer) else storage.cls
    known = hyper_parameters_of(cls)
    kept = {name: value for name, value in storage.hyper_parameters.items() if name in known}
    changed = {"size": steps, "directory": None, "max_bytes": None, "rate_limit": None, "prefetch": 0}
    return make_factory(cls, (), kept | {name: value for name, value in changed.items() if name in known})
