"""What `train` can start or learn from beside its environments: another run, and a data set."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytorchrl.agent.algorithms import Algorithm
from pytorchrl.commands.composition.composing import Composed
from pytorchrl.commands.composition.parts import part_named
from pytorchrl.commands.composition.values import value_of
from pytorchrl.experiments.runs import checkpoint
from pytorchrl.experiments.runs.composition import as_checkpoint_error, envs_of, made_of
from pytorchrl.experiments.runs.run_folder import RunFolder
from pytorchrl.experiments.runs.user_modules import missing_modules_named
from pytorchrl.scheme import Scheme, from_dataset
from pytorchrl.scheme.compatibility import CompositionError
from storages.component.declared import hyper_parameters_of
from storages.component.factory import Factory, make_factory
from storages.datasets import SelectedDataset, SelectEpisodes, open_dataset, references_of
from storages.off_policy.mixed_storage import MixedSource
from storages.storage import Storage

OF_DATA = ("data", "select", "online", "data_share")
"""Names of the settings that describe the data."""
_SHARE = 0.5
_SOURCE = "data"


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

    @property
    def references(self) -> tuple[float, float] | None:
        """The returns whose normalised scores are 0 and 1; None where the data set has none."""
        return references_of(open_dataset(self.path).about)

    def scheme(self, parts: Composed, seed: int, device: str) -> Scheme:
        """Make a scheme that learns from the data alone, or from batches mixed with the environments' transitions."""
        if not self.online:
            storage = self._filled(parts.storage, self.has_size)
            return Scheme(parts.algorithm, parts.actor, storage, test_envs_factory=parts.envs, device=device, seed=seed)
        directory = parts.storage.hyper_parameters.get("directory")
        changed = {} if directory is None else {"directory": f"{directory}-{_SOURCE}"}
        beside = make_factory(parts.storage.cls, (), parts.storage.hyper_parameters | changed)
        return Scheme(
            parts.algorithm,
            parts.actor,
            parts.storage,
            parts.envs,
            sources={_SOURCE: self._filled(beside, has_size=False)},
            mixed={"main": MixedSource({_SOURCE: self.share, "main": 1 - self.share})},
            device=device,
            seed=seed,
        )

    def _filled(self, storage: Factory[Storage], has_size: bool) -> Factory[Storage]:
        hyper_parameters = storage.hyper_parameters
        if "size" in hyper_parameters and not has_size:
            dataset = open_dataset(self.path)
            steps = (dataset if self.select is None else SelectedDataset(dataset, self.select)).steps
            storage = make_factory(storage.cls, (), hyper_parameters | {"size": max(1, steps)})
        return from_dataset(storage, self.path, select=self.select)

    def __str__(self) -> str:
        select = "" if self.select is None else f", {self.select}"
        return f"Data: {self.path}{select}" + (
            f", {self.share:g} of each batch" if self.online else ", without collecting"
        )


def data_of(settings: Mapping[str, Any], has_size: bool) -> Data | None:
    """Return the data set that settings name; None where they name none.

    Raises:
        CompositionError: settings that need a data set are given without one, or do not fit together.
    """
    path, online = settings.get("data"), bool(settings.get("online"))
    select, share = value_of(settings.get("select")), value_of(settings.get("data_share"))
    if path is None:
        needless = [f"--{name.replace('_', '-')}" for name in OF_DATA[1:] if settings.get(name) is not None]
        if needless:
            raise CompositionError(f"no data set is given for {', '.join(needless)}; name one by --data")
        return None
    if select is not None and not isinstance(select, SelectEpisodes):
        raise CompositionError(f"--select must be a setting such as 'SelectEpisodes(best_share=0.1)', got {select!r}")
    if share is not None and not online:
        raise CompositionError("--data-share applies to batches mixed with the environments' transitions; add --online")
    share = _SHARE if share is None else share
    if not isinstance(share, int | float) or not 0 < share < 1:
        raise CompositionError(f"--data-share must lie between 0 and 1, got {share!r}")
    return Data(str(path), select, online, float(share), has_size)


def description_of(run: Path) -> dict[str, Any]:
    """Return the description of a run's algorithm, actor and environment, for `merged`.

    Raises:
        CheckpointError: there is no run, or it is damaged.
        CompositionError: a part is defined in a script, and cannot be made by a command.
    """
    folder = RunFolder(run)
    config = folder.read_config() if run.is_dir() else checkpoint.load(run)["config"]
    file = folder.config_file if run.is_dir() else run
    with missing_modules_named(config), as_checkpoint_error(file):
        parts: dict[str, Any] = {
            kind: {"name": config[kind]["name"]} | made_of(config[kind]).hyper_parameters
            for kind in ("algorithm", "actor")
        }
        envs = envs_of(config, run).hyper_parameters
    return parts | {"env": {"name" if name == "env" else name: value for name, value in envs.items()}}


def without_random_actions(algorithm: Mapping[str, Any], chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Set ``start_steps`` to 0 unless it was chosen: a run that begins with a policy needs no random actions."""
    if "start_steps" in chosen or "start_steps" not in hyper_parameters_of(part_named(Algorithm, algorithm["name"])):
        return dict(algorithm)
    return {**algorithm, "start_steps": 0}
