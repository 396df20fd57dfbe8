"""The storage of a checkpoint, read-only and without environments or networks."""

import math
import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from pytorchrl.experiments.runs import checkpoint, storage_paths
from pytorchrl.experiments.runs.checkpoint import CheckpointError
from pytorchrl.experiments.runs.composition import class_named
from pytorchrl.experiments.runs.run_folder import RunFolder, file_of
from pytorchrl.scheme.compatibility import CompositionError
from storages import DatasetError, Storage
from storages.component.schedule import LinearSchedule
from storages.core.ring.ring import Ring
from storages.core.ring.state import load_state
from storages.core.sampling.episode_index import EpisodeIndex
from storages.core.sampling.episode_starts import EpisodeStarts
from storages.core.sampling.prioritized import Priorities
from storages.core.sampling.priority_trees import PrioritySettings
from storages.persistent import PersistenceError, read_state

WRONG = (ArithmeticError, AttributeError, LookupError, MemoryError, RuntimeError, TypeError, ValueError)
"""Exceptions raised by loading a state with unexpected contents."""


@dataclass(frozen=True)
class SavedStorage:
    """A storage in a checkpoint whose transitions are in a ring buffer."""

    file: Path
    """The checkpoint."""
    state: Mapping[str, Any]
    """The contents of the checkpoint."""
    name: str
    """Name of the storage's class."""
    hyper_parameters: Mapping[str, Any]
    saved: Mapping[str, Any]
    """State of the storage."""
    ring: Ring
    """The ring buffer of the transitions."""

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> "SavedStorage":
        """Read the storage of a run folder's newest checkpoint, or of a checkpoint file.

        Raises:
            CheckpointError: there is no checkpoint, it is damaged, or it contains no storage with a ring buffer.
        """
        path = Path(path)
        file = file_of(path)
        state = checkpoint.load(file, checkpoint.READING)
        with as_storage_error(file):
            saved, config = state["scheme"]["storage"], storage_paths.resolved(state["config"], file.parent)["storage"]
            refuse_data_set(saved, config)
            if "archive" in saved:
                raise CheckpointError(
                    f"{file}: {config['name']} keeps whole episodes on disk, which are a data set; inspect it by "
                    f"python -m pytorchrl data"
                )
            if "position" in saved:
                saved = {**saved, **read_state(config["hyper_parameters"]["directory"], saved["position"])}
            ring = ring_of(saved["ring"], config["name"])
            return cls(file, state, config["name"], config["hyper_parameters"], saved, ring)

    @property
    def steps_of_run(self) -> int:
        """Environment transitions collected by the run; update phases if it collects nothing."""
        steps: int = self.state["scheme"]["collector"]["steps"]
        return steps

    @cached_property
    def index(self) -> EpisodeIndex | None:
        """The index of episodes; None if the storage has none."""
        begun = self.saved.get("episodes_begun")
        return None if begun is None else EpisodeIndex(self.ring, np.array(begun, np.int64))

    @cached_property
    def starts(self) -> EpisodeStarts | None:
        """Starts of the episodes that may be drawn; None if batches do not consist of episodes."""
        return EpisodeStarts(self.ring, self.index, self.sequences) if self.index and self._of_episodes else None

    @property
    def sequences(self) -> Any:
        """The :class:`MultiStepRows` of which batches consist; None for single transitions."""
        config = self.hyper_parameters.get("sequences")
        if config is None:
            return None
        return class_named(config["name"])(**config["hyper_parameters"])

    @cached_property
    def priorities(self) -> Priorities | None:
        """Priorities of rows that may be drawn; None if there are none, or :attr:`lacks_alpha`."""
        saved = self.saved.get("priorities")
        if saved is None or self.lacks_alpha:
            return None
        stride = 1 if self.sequences is None else self.sequences.stride
        priorities = Priorities(self.ring, priority_settings(self.hyper_parameters, self._alpha), stride, self.starts)
        priorities.load_state_dict(saved)
        return priorities

    @property
    def lacks_alpha(self) -> bool:
        """Whether there are priorities, but the value of ``alpha`` at the checkpoint is not known."""
        return self.saved.get("priorities") is not None and self.value_of("alpha") is None

    def value_of(self, name: str) -> float | None:
        """Return the value of a hyper-parameter at the checkpoint; None if it is not known.

        The value of a schedule depends on the run's ``target_steps``, in ``config.json`` beside the checkpoint.
        """
        value, folder = self.hyper_parameters.get(name), RunFolder(self.file.parent)
        if isinstance(value, int | float):
            return float(value)
        is_line = isinstance(value, Mapping) and value["name"] == LinearSchedule.__name__
        if not is_line or not folder.config_file.is_file():
            return None
        assert isinstance(value, Mapping)
        target_steps = folder.read_config()["target_steps"]
        return LinearSchedule(**value["hyper_parameters"]).at(self.steps_of_run, target_steps)

    @property
    def _alpha(self) -> float:
        alpha = self.value_of("alpha")
        assert alpha is not None
        return alpha

    @property
    def _of_episodes(self) -> bool:
        return self.sequences is not None and self.sequences.is_of_episodes


@contextmanager
def as_storage_error(file: Path) -> Iterator[None]:
    """Turn exceptions of unexpected file contents into a :class:`CheckpointError` that names the file.

    Raises:
        CheckpointError: instead of a :class:`PersistenceError` and any exception in ``WRONG``.
    """
    try:
        yield
    except CheckpointError:
        raise
    except PersistenceError as error:
        raise CheckpointError(f"{file} refers to files of its storage, which cannot be read: {error}") from error
    except WRONG as error:
        raise CheckpointError(
            f"{file} holds no storage that can be read ({type(error).__name__}: {error}); name a run folder, or the "
            f"{RunFolder(file.parent).checkpoint_file.name} in one"
        ) from error


def refuse_data_set(saved: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    """Refuse the state of a storage filled from a data set, or divided into shards.

    Raises:
        DatasetError: the state is of such a storage.
    """
    if "shards" in saved:
        raise DatasetError(
            f"it is divided among {len(saved['shards'])} shards, whose transitions have no common order; with a "
            f"directory, each shard is a {config['name']} of its own"
        )
    if "data" in saved:
        path = config["dataset"]
        raise DatasetError(
            f"it was filled from the data set {path}; see that: python -m pytorchrl data show {shlex.quote(path)}"
        )


def ring_of(saved: Mapping[str, Any], name: str) -> Ring:
    """Restore the ring buffer of a storage of a class."""
    ring = Ring(saved["size"], name, in_records=not _on_policy(name), stacked_frames=_stacked_frames(saved))
    load_state(ring, saved)
    return ring


def priority_settings(hyper_parameters: Mapping[str, Any], alpha: float) -> PrioritySettings:
    """Return how a storage with these hyper-parameters computes priorities from errors."""
    error_max = hyper_parameters.get("error_max")
    return PrioritySettings(
        hyper_parameters.get("epsilon", 0.0),
        alpha,
        hyper_parameters.get("prioritization") == "rank",
        hyper_parameters.get("error_min", 0.0),
        math.inf if error_max is None else error_max,
    )


def _on_policy(name: str) -> bool:
    try:
        cls = class_named(name)
    except CompositionError:
        # The class is defined in a script that is not needed here; the memory layout of the columns does not matter.
        return False
    return issubclass(cls, Storage) and cls.on_policy


def _stacked_frames(saved: Mapping[str, Any]) -> int | dict[str, int]:
    depths = {tuple(leaf["path"]): leaf["depth"] for leaf in saved["leaves"] if leaf["depth"] > 1}
    if not depths:
        return 0
    named = {path[1]: depth for path, depth in depths.items() if len(path) > 1}
    return named or next(iter(depths.values()))
