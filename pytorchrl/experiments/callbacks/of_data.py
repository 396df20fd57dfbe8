"""What callbacks that judge a policy on data have in common: which data, and how often."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from pytorchrl.experiments.callbacks.callback import Callback, is_due
from pytorchrl.scheme.dataset_factory import DatasetFactory, EnvsOfData
from pytorchrl.scheme.fitting import CompositionError
from pytorchrl.scheme.seeds import seed_of
from storages import HERBuffer, PERBuffer, PersistentEpisodicBuffer, ReplayBuffer, Storage
from storages.component.declared import hyper_parameters_of
from storages.component.factory import Factory, make_factory
from storages.component.hyper_parameters import Count
from storages.datasets import Dataset, SelectedDataset, SelectEpisodes, open_dataset
from storages.episode import Episode

if TYPE_CHECKING:
    from pytorchrl.learner import Learner
    from pytorchrl.scheme.scheme import Scheme

_STREAM = 102
"""Of random numbers that follow from the run's seed."""


@dataclass(eq=False)
class EvaluateOnData(Callback):
    """Base of evaluations on data, without an environment; the run goes on as if there had been none.

    Args:
        every: steps of the run between evaluations.
        dataset: its path; None for the one that the run learns from.
        select: which of its episodes; None for those that the run holds out by ``SelectEpisodes(part="train")``, and
            for all where it holds out none.
    """

    every: Count = 5_000
    dataset: str | None = field(default=None, kw_only=True)
    select: SelectEpisodes | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._evaluated_at = 0
        self._storage: Storage | None = None

    def on_step(self, learner: "Learner") -> None:
        """Evaluate where it is due."""
        if is_due(self.every, self._evaluated_at, learner.scheme.steps):
            self._evaluated_at = learner.scheme.steps
            learner.log({f"offline/{name}": value for name, value in self.evaluate(learner.scheme).items()})

    @abstractmethod
    def evaluate(self, scheme: "Scheme") -> dict[str, float]:
        """The metrics of the scheme's present policy, without the group of their names."""

    def state_dict(self) -> dict[str, Any]:
        """After how many steps the last evaluation was."""
        return {"evaluated_at": self._evaluated_at}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state returned by `state_dict`."""
        self._evaluated_at = state["evaluated_at"]

    # For subclasses

    def data(self, scheme: "Scheme") -> Dataset:
        """The data set, without episodes that are not chosen.

        Raises:
            CompositionError: neither the callback nor the run names one.
        """
        path, select = self._place(scheme)
        dataset = open_dataset(path)
        return dataset if select is None else SelectedDataset(dataset, select)

    def storage(self, scheme: "Scheme", *, like_the_run: bool) -> Storage:
        """A storage of that data, which makes the same batches at each evaluation.

        Args:
            scheme: that is evaluated.
            like_the_run: whether batches are as those that the algorithm learns from: sequences, n steps, stacked
                frames; else they are of single transitions.
        """
        if self._storage is None:
            self._storage = self._made(scheme, like_the_run)
        self._storage.seed(self.seed(scheme))
        return self._storage

    def seed(self, scheme: "Scheme") -> np.random.SeedSequence:
        """Of all random numbers of an evaluation."""
        return seed_of(scheme.run_seed, _STREAM)

    def _made(self, scheme: "Scheme", like_the_run: bool) -> Storage:
        (path, select), steps = self._place(scheme), self.data(scheme).steps
        plain = ReplayBuffer.create_factory(size=steps)
        factory = DatasetFactory(_in_memory(_storage_of(scheme), steps) if like_the_run else plain, path, select)
        storage = factory(scheme.device, scheme.actor, scheme.algorithm, EnvsOfData(spaces_of(scheme)))
        if scheme.algorithm.sources["main"].next_actions:
            storage.include_next_actions()
        return storage

    def _place(self, scheme: "Scheme") -> tuple[str, SelectEpisodes | None]:
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
    """The episodes that have any."""
    return (episode for episode in dataset if len(episode))


def spaces_of(scheme: "Scheme") -> SimpleNamespace:
    """What actors and storages read of environments."""
    spaces = {name: getattr(scheme.actor, name) for name in ("observation_space", "action_space")}
    # Observations of data are whole, however many frames they are stacked of.
    return SimpleNamespace(**spaces, num_envs=1, stacked_frames=0)


def _storage_of(scheme: "Scheme") -> Factory[Storage]:
    return next(one for one in scheme.factories if issubclass(one.cls, Storage))


def _in_memory(storage: Factory[Storage], steps: int) -> Factory[Storage]:
    """A factory of the same batches, of data in memory."""
    # What they add is of the disk, and of goals that were not meant.
    cls = PERBuffer if issubclass(storage.cls, PersistentEpisodicBuffer | HERBuffer) else storage.cls
    known = hyper_parameters_of(cls)
    kept = {name: value for name, value in storage.hyper_parameters.items() if name in known}
    changed = {"size": steps, "directory": None, "max_bytes": None, "rate_limit": None, "prefetch": 0}
    return make_factory(cls, (), kept | {name: value for name, value in changed.items() if name in known})
