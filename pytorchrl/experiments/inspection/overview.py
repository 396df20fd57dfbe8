"""What a checkpoint's storage holds, told without environments or networks, and without changing anything."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pytorchrl.experiments.inspection.saved_storage import (
    WRONG,
    SavedStorage,
    checkpoint_of,
    refuse_data_set,
    ring_of,
    unreadable_named,
)
from pytorchrl.experiments.runs import checkpoint, places
from storages import DatasetError
from storages.core.ring.summary import Episodes as EpisodesStored
from storages.core.ring.summary import Field, episodes_of, fields_of
from storages.datasets import About
from storages.datasets.directories import RingDataset
from storages.persistent import PersistenceError, read_state


@dataclass(frozen=True)
class PriorityList:
    """The priorities of all transitions or episodes that may be drawn, oldest first; arrays (N,)."""

    values: NDArray[np.float64]
    """``(|error| + epsilon)**alpha``; where ``alpha`` follows a schedule, with what it was worth at the checkpoint."""
    ages: NDArray[np.int64]
    """Steps since, of an episode since its first one."""
    of: str
    """What they are of: "transition" or "episode"."""
    nbytes: int
    """Memory of the priorities of the whole storage, free room included."""


@dataclass(frozen=True)
class Inspection:
    """A storage as a checkpoint holds it."""

    path: Path
    """The checkpoint."""
    name: str
    """Of the storage's class."""
    hyper_parameters: Mapping[str, Any]
    fields: list[Field]
    num_envs: int
    steps: int
    """Steps that are stored."""
    capacity_steps: int
    inserted_steps: int
    """Steps that ever came in, those that are gone included."""
    nbytes: int
    """Memory of the transitions once loaded, free room included."""
    index_nbytes: int
    """Memory of where episodes begin and end, where the storage keeps that: for hindsight, and for whole episodes."""
    episodes: EpisodesStored | None
    """None where nothing is stored."""
    priorities: PriorityList | None
    """None where there are none, or, see :attr:`lacks_alpha`, they are not known."""
    lacks_alpha: bool
    """Whether there are priorities, and what ``alpha`` was worth at the checkpoint cannot be told."""

    @property
    def transitions(self) -> int:
        """How many are stored."""
        return self.steps * self.num_envs


def inspect_storage(path: Path) -> Inspection:
    """Read a run folder's checkpoint, or a checkpoint.

    Raises:
        CheckpointError: there is none, it is damaged, or holds no storage.
    """
    storage = SavedStorage.read(path)
    with unreadable_named(storage.file):
        ring = storage.ring
        # Of a run that collects nothing, they are updates; the counter of a rollout's ring jumps where one begins.
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
    """Where a checkpoint's storage keeps whole episodes on disk, which are a data set; None where it does not.

    Args:
        path: a run folder, or a checkpoint.

    Raises:
        CheckpointError: there is no checkpoint, or it is damaged, or the directory may be another's.
    """
    file = checkpoint_of(Path(path))
    state = checkpoint.load(file)
    try:
        if "archive" not in state["scheme"]["storage"]:
            return None
        config = places.as_found(state["config"] | {"sources": {}}, file.parent)
        places.refuse_storages_of_others(config, state["scheme"], file.parent)
        return Path(places.directories_of(config)["main"])
    except (KeyError, TypeError):
        # What it lacks is told by whoever reads the storage.
        return None


class CheckpointDataset(RingDataset):
    """What a checkpoint's storage holds, as a data set.

    Args:
        path: a run folder, or a checkpoint.

    Raises:
        CheckpointError: there is none, or it is damaged.
        PersistenceError: it holds no storage, or refers to one on disk that is not there any more.
    """

    format: ClassVar[str] = "checkpoint"

    def __init__(self, path: Path) -> None:
        file = checkpoint_of(path)
        state = checkpoint.load(file)
        super().__init__(file, About())
        try:
            storage, config = state["scheme"]["storage"], places.as_found(state["config"], file.parent)["storage"]
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
