"""Overview of a checkpoint's storage, read-only and without environments or networks."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pytorchrl.experiments.inspection.saved_storage import (
    WRONG,
    SavedStorage,
    as_storage_error,
    refuse_data_set,
    ring_of,
)
from pytorchrl.experiments.runs import checkpoint, storage_paths
from pytorchrl.experiments.runs.run_folder import file_of
from storages import DatasetError
from storages.core.ring.summary import EpisodeSummary as EpisodesStored
from storages.core.ring.summary import Field, episodes_of, fields_of
from storages.datasets.directories import RingDataset, about_spaces
from storages.persistent import PersistenceError, read_state


@dataclass(frozen=True)
class PriorityList:
    """The priorities of all transitions or episodes that may be drawn, oldest first; arrays (N,)."""

    values: NDArray[np.float64]
    """``(|error| + epsilon)**alpha``, with the value of ``alpha`` at the checkpoint if it has a schedule."""
    ages: NDArray[np.int64]
    """Age in steps; of an episode, since its first step."""
    of: str
    """The unit that has priorities: "transition" or "episode"."""
    nbytes: int
    """Memory of the priorities of the whole storage in bytes, including unused capacity."""


@dataclass(frozen=True)
class Inspection:
    """Overview of a storage in a checkpoint."""

    path: Path
    """The checkpoint."""
    name: str
    """Name of the storage's class."""
    hyper_parameters: Mapping[str, Any]
    fields: list[Field]
    num_envs: int
    steps: int
    """Number of stored steps."""
    capacity_steps: int
    inserted_steps: int
    """Number of steps inserted so far, including those overwritten."""
    nbytes: int
    """Memory of the transitions in bytes once loaded, including unused capacity."""
    index_nbytes: int
    """Memory in bytes of the index of episodes, which storages for hindsight and for whole episodes have."""
    episodes: EpisodesStored | None
    """None if nothing is stored."""
    priorities: PriorityList | None
    """None if there are none, or they are not known (:attr:`lacks_alpha`)."""
    lacks_alpha: bool
    """Whether there are priorities, but the value of ``alpha`` at the checkpoint is not known."""

    @property
    def transitions(self) -> int:
        """Number of stored transitions."""
        return self.steps * self.num_envs


def inspect_storage(path: Path) -> Inspection:
    """Return an overview of the storage in a run folder's newest checkpoint, or in a checkpoint file.

    Raises:
        CheckpointError: there is no checkpoint, it is damaged, or it contains no storage.
    """
    storage = SavedStorage.read(path)
    with as_storage_error(storage.file):
        ring = storage.ring
        # `steps_of_run` counts updates in a run that collects nothing; the step counter of a rollout's ring has gaps.
        collects = storage.state["config"]["train_envs"] is not None
        inserted = storage.steps_of_run // (ring.num_envs or 1) if collects else ring.steps
        return Inspection(
            path=storage.file,
            name=storage.name,
            hyper_parameters=storage.hyper_parameters,
            fields=fields_of(ring),
            num_envs=ring.num_envs or 0,
            steps=ring.live_steps,
            capacity_steps=ring.size,
            inserted_steps=inserted if ring.num_envs else 0,
            nbytes=ring.columns.nbytes,
            index_nbytes=sum(part.nbytes for part in (storage.index, storage.starts) if part is not None),
            episodes=episodes_of(ring) if ring.live_steps else None,
            priorities=_priorities(storage),
            lacks_alpha=storage.lacks_alpha,
        )


def directory_of_episodes(path: Path) -> Path | None:
    """Return the directory in which a checkpoint's storage keeps whole episodes on disk; None if it does not.

    Args:
        path: a run folder, or a checkpoint.

    Raises:
        CheckpointError: there is no checkpoint, it is damaged, or the directory may belong to another run.
    """
    file = file_of(path)
    state = checkpoint.load(file, checkpoint.READING, is_mapped=True)
    try:
        if "archive" not in state["scheme"]["storage"]:
            return None
        config = storage_paths.resolved(state["config"] | {"sources": {}}, file.parent)
        storage_paths.refuse_storages_of_others(config, state["scheme"], file.parent)
        return Path(storage_paths.directories_of(config)["main"])
    except (KeyError, TypeError):
        # Reading the storage reports what the checkpoint lacks.
        return None


class CheckpointDataset(RingDataset):
    """The contents of a checkpoint's storage, as a data set.

    Args:
        path: a run folder, or a checkpoint.

    Raises:
        CheckpointError: there is no checkpoint, or it is damaged.
        PersistenceError: it contains no storage, or refers to one on disk that does not exist any more.
    """

    format: ClassVar[str] = "checkpoint"

    def __init__(self, path: Path) -> None:
        file = file_of(path)
        state = checkpoint.load(file, checkpoint.READING)
        described = state["config"] if isinstance(state.get("config"), Mapping) else {}
        super().__init__(file, about_spaces(described.get("spaces")))
        try:
            storage = state["scheme"]["storage"]
            config = storage_paths.resolved(state["config"], file.parent)["storage"]
            refuse_data_set(storage, config)
            if "position" in storage:
                storage = read_state(config["hyper_parameters"]["directory"], storage["position"])
            self._ring = ring_of(storage["ring"], config["name"])
        except PersistenceError:
            raise
        except WRONG as error:
            raise DatasetError(f"{file} holds no storage that can be read ({error!r})") from error


def _priorities(storage: SavedStorage) -> PriorityList | None:
    priorities, ring = storage.priorities, storage.ring
    if priorities is None:
        return None
    return PriorityList(
        values=priorities.values,
        ages=ring.steps - 1 - priorities.drawn // ring.envs,
        of="transition" if storage.starts is None else "episode",
        nbytes=priorities.nbytes,
    )
