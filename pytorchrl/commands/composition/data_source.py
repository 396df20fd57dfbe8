"""Sources that `train` starts from or learns from: another run, and a data set."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytorchrl.agent.algorithms import Algorithm
from pytorchrl.agent.algorithms.needs import Needs
from pytorchrl.commands.composition.parts import RunParts, part_named, value_of
from pytorchrl.experiments.runs import checkpoint
from pytorchrl.experiments.runs.composition import as_checkpoint_error, envs_of, made_of
from pytorchrl.experiments.runs.run_folder import RunFolder, file_of
from pytorchrl.experiments.runs.user_modules import missing_modules_named
from pytorchrl.scheme import from_dataset
from pytorchrl.scheme.compatibility import CompositionError
from pytorchrl.scheme.dataset_factory import converting_named
from storages.component.declared import hyper_parameters_of
from storages.component.factory import Factory, make_factory
from storages.datasets import Dataset, SelectedDataset, SelectEpisodes, open_dataset, references_of
from storages.off_policy.mixed_storage import MixedSource
from storages.off_policy.replay_buffer import ReplayBuffer
from storages.sequence_settings import Sequences
from storages.storage import Storage

DATA_SETTINGS = ("data", "select", "online", "data_share")
"""Names of the settings that describe the data."""
_SHARE = 0.5
_SOURCE = "data"
_SEQUENCES = Sequences(20, burn_in=10)
"""Of demonstrations for an actor with a memory, whose states are not in the data."""


@dataclass(frozen=True)
class Data:
    """A data set to learn from, and how it is used."""

    path: str
    select: SelectEpisodes | None
    online: bool
    """Whether transitions of the environments are learnt from, too."""
    share: float
    """Share of each batch that comes from the data, if ``online``."""
    has_size: bool
    """Whether the size of the storage was given; else it is that of the data."""
    source: str | None = None
    """Name of the algorithm's source that the data are; None for the main one."""

    @property
    def is_offline(self) -> bool:
        """Whether no transitions of the environments are learnt from."""
        return not self.online and self.source is None

    @property
    def references(self) -> tuple[float, float] | None:
        """The returns whose normalised scores are 0 and 1; None where the data set has none."""
        return references_of(self._opened().about)

    def scheme_arguments(self, parts: RunParts) -> dict[str, Any]:
        """Return the factories of a scheme that learns from the data, by the names of its arguments.

        The data are the source that the algorithm has beside its rollouts (such as "expert"), if there is one. Else
        they are a part of each batch, beside the environments' transitions, if ``online``, and its only source if not.
        """
        given = parts.scheme_arguments()
        if further := further_sources(parts.algorithm.cls):
            return given | {"sources": {name: self._further(parts, name, need) for name, need in further.items()}}
        if not self.online:
            storage = self._filled(parts.storage, self.has_size)
            offline = {"train_envs_factory": None, "test_envs_factory": parts.envs}
            return given | {"storage_factory": storage} | offline
        return given | {
            "sources": {_SOURCE: self._filled(_in_own_directory(parts.storage, _SOURCE), has_size=False)},
            "mixed": {"main": MixedSource({_SOURCE: self.share, "main": 1 - self.share})},
        }

    def _further(self, parts: RunParts, name: str, need: Needs) -> Factory[Storage]:
        """Return the storage of a further source: the data, or one of rollouts as the main one."""
        if need.kind == "rollout":
            return _in_own_directory(parts.storage, name)
        sequences = None if parts.actor.hyper_parameters.get("memory") is None else _SEQUENCES
        return self._filled(ReplayBuffer.create_factory(size=None, sequences=sequences), has_size=False)

    def _filled(self, storage: Factory[Storage], has_size: bool) -> Factory[Storage]:
        hyper_parameters = storage.hyper_parameters
        if "size" in hyper_parameters and not has_size:
            dataset = self._opened()
            steps = (dataset if self.select is None else SelectedDataset(dataset, self.select)).steps
            storage = make_factory(storage.cls, (), hyper_parameters | {"size": max(1, steps)})
        return from_dataset(storage, self.path, select=self.select)

    def _opened(self) -> Dataset:
        with converting_named(self.path):
            return open_dataset(self.path)

    def __str__(self) -> str:
        select = "" if self.select is None else f", {self.select}"
        use = "without collecting" if self.source is None else f"as the source {self.source!r}"
        if self.online:
            use = f"{self.share:g} of each batch"
        return f"Data: {self.path}{select}, {use}"


def further_sources(algorithm: type[Algorithm]) -> dict[str, Needs]:
    """Return the sources that an algorithm must be given beside its main one."""
    return {name: need for name, need in algorithm.sources.items() if name != "main" and not need.optional}


def in_directory(storage: Factory[Storage], directory: str) -> Factory[Storage]:
    """Return the factory of a storage that is kept in another directory."""
    return make_factory(storage.cls, (), storage.hyper_parameters | {"directory": directory})


def _in_own_directory(storage: Factory[Storage], source: str) -> Factory[Storage]:
    directory = storage.hyper_parameters.get("directory")
    return storage if directory is None else in_directory(storage, f"{directory}-{source}")


def data_of(settings: Mapping[str, Any], algorithm: type[Algorithm], has_size: bool) -> Data | None:
    """Return the data set that settings name for an algorithm; None where they name none.

    Raises:
        CompositionError: settings that need a data set are given without one, or do not fit together.
    """
    path, online = settings.get("data"), bool(settings.get("online"))
    source = next((key for key, need in further_sources(algorithm).items() if need.kind != "rollout"), None)
    select, share = value_of(settings.get("select")), value_of(settings.get("data_share"))
    if path is None:
        needless = [f"--{name.replace('_', '-')}" for name in DATA_SETTINGS[1:] if settings.get(name) is not None]
        if needless:
            raise CompositionError(f"no data set is given for {', '.join(needless)}; name one by --data")
        if source is not None or not algorithm.sources["main"].collected:
            raise CompositionError(f"{algorithm.__name__} learns from a data set; name one by --data")
        return None
    if RunFolder(path).checkpoint_file.is_file():
        raise CompositionError(
            f"--data {path} is a run; name the directory of its storage on disk, or write what its storage holds to a "
            f"file: python -m pytorchrl data convert {shlex.quote(str(path))} data.npz"
        )
    if online and not algorithm.sources["main"].collected:
        raise CompositionError(f"{algorithm.__name__} learns from the data set alone; leave out --online")
    if online and source is not None:
        raise CompositionError(
            f"{algorithm.__name__} always learns from the environments' transitions, too; leave out --online"
        )
    if select is not None and not isinstance(select, SelectEpisodes):
        raise CompositionError(f"--select must be a setting such as 'SelectEpisodes(best_share=0.1)', got {select!r}")
    if share is not None and not online:
        raise CompositionError("--data-share applies to batches mixed with the environments' transitions; add --online")
    share = _SHARE if share is None else share
    if not isinstance(share, int | float) or not 0 < share < 1:
        raise CompositionError(f"--data-share must lie between 0 and 1, got {share!r}")
    return Data(str(path), select, online, float(share), has_size, source)


def description_of(run: Path) -> dict[str, Any]:
    """Return the description of a run's algorithm, actor and environment, for `merged`.

    Raises:
        CheckpointError: there is no run, or it is damaged.
        CompositionError: a part is defined in a script, and cannot be made by a command.
    """
    folder, weights = RunFolder(run), file_of(run)
    config = folder.read_config() if run.is_dir() else checkpoint.load(weights, checkpoint.READING)["config"]
    file = folder.config_file if run.is_dir() else run
    with missing_modules_named(config), as_checkpoint_error(file):
        parts: dict[str, Any] = {
            kind: {"name": config[kind]["name"]} | made_of(config[kind]).hyper_parameters
            for kind in ("algorithm", "actor")
        }
        has_none = config.get("train_envs") is None and config.get("test_envs") is None
        # A run that learnt from data alone goes on with data alone, unless --env names an environment.
        envs: Mapping[str, Any] = {} if has_none else envs_of(config, run).hyper_parameters
    return parts | {"env": {"name" if name == "env" else name: value for name, value in envs.items()}}


def without_random_actions(algorithm: Mapping[str, Any], chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Set ``start_steps`` to 0 unless it was chosen: a run that begins with a policy needs no random actions."""
    if "start_steps" in chosen or "start_steps" not in hyper_parameters_of(part_named(Algorithm, algorithm["name"])):
        return dict(algorithm)
    return {**algorithm, "start_steps": 0}


def needs_environments(settings: Mapping[str, Any], description: Mapping[str, Any]) -> bool:
    """Whether a run needs environments: unless none are described, and it learns from a data set alone."""
    algorithm = description["algorithm"].get("name")
    if description["env"] or settings.get("data") is None or settings.get("online") or algorithm is None:
        return True
    return bool(further_sources(part_named(Algorithm, algorithm)))


def without_evaluations(algorithm: Mapping[str, Any]) -> dict[str, Any]:
    """Set ``test_every`` to 0 unless it was chosen, for a run without environments.

    Raises:
        CompositionError: another number was chosen.
    """
    if value_of(algorithm.get("test_every", 0)) != 0:
        raise CompositionError(
            f"evaluations every {algorithm['test_every']} updates need an environment; name one by --env, or leave out "
            f"--algorithm.test-every"
        )
    return {**algorithm, "test_every": 0}
