"""What a checkpoint's storage holds, told without environments or networks, and without changing anything."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pytorchrl.experiments import checkpoint, places
from pytorchrl.experiments.checkpoint import CheckpointError
from pytorchrl.experiments.composition import class_named
from pytorchrl.experiments.run_folder import RunFolder
from pytorchrl.scheme.fitting import CompositionError
from storages import DatasetError, Episode
from storages.component.schedule import LinearSchedule
from storages.core.ring.ring import Ring
from storages.core.ring.summary import Episodes as EpisodesStored
from storages.core.ring.summary import Field, episodes_of, fields_of
from storages.core.sampling.episode_index import EpisodeIndex
from storages.core.sampling.episode_starts import EpisodeStarts
from storages.core.sampling.prioritized import Priorities
from storages.core.sampling.priority_trees import PrioritySettings
from storages.datasets import About, Dataset
from storages.datasets.fill import count_episodes_in, episodes_in
from storages.persistent import PersistenceError, read_state
from storages.windows import Episodes, Sequences

_WRONG = (ArithmeticError, AttributeError, LookupError, MemoryError, RuntimeError, TypeError, ValueError)
"""What comes of a state that was not saved here."""


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
    path = Path(path)
    file = RunFolder(path).checkpoint_file if path.is_dir() else path
    state = checkpoint.load(file)
    try:
        storage, config = state["scheme"]["storage"], places.as_found(state["config"], file.parent)["storage"]
        _refuse_data_set(storage, config)
        if "position" in storage:
            storage = read_state(config["hyper_parameters"]["directory"], storage["position"])
        ring = _ring(storage["ring"], config["name"])
        steps = state["scheme"]["collector"]["steps"]
        # Of a run that collects nothing, they are updates; the counter of a rollout's ring jumps where one begins.
        inserted = ring.steps if state["config"]["train_envs"] is None else steps // (ring.num_envs or 1)
        index, starts = _episodes(ring, storage.get("episodes_begun"), config["hyper_parameters"])
        errors = storage.get("priorities")
        alpha = _alpha(config["hyper_parameters"], steps, file) if errors is not None else None
        return Inspection(
            path=file,
            name=config["name"],
            hyper_parameters=config["hyper_parameters"],
            fields=fields_of(ring),
            num_envs=ring.num_envs or 0,
            steps=ring.live_steps,
            capacity_steps=ring.size,
            inserted_steps=inserted if ring.num_envs else 0,
            nbytes=ring.columns.nbytes,
            index_nbytes=sum(part.nbytes for part in (index, starts) if part is not None),
            episodes=episodes_of(ring) if ring.live_steps else None,
            priorities=_priorities(ring, starts, errors, config["hyper_parameters"], alpha)
            if alpha is not None
            else None,
            lacks_alpha=errors is not None and alpha is None,
        )
    except PersistenceError as error:
        raise CheckpointError(f"{file} refers to what its storage keeps elsewhere: {error}") from error
    except _WRONG as error:
        raise CheckpointError(
            f"{file} holds no storage that can be read ({type(error).__name__}: {error}); name a run folder, or the "
            f"{RunFolder(path).checkpoint_file.name} in one"
        ) from error


def directory_of_episodes(path: Path) -> Path | None:
    """Where a checkpoint's storage keeps whole episodes on disk, which are a data set; None where it does not.

    Args:
        path: a run folder, or a checkpoint.

    Raises:
        CheckpointError: there is no checkpoint, or it is damaged, or the directory may be another's.
    """
    path = Path(path)
    file = RunFolder(path).checkpoint_file if path.is_dir() else path
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


class CheckpointDataset(Dataset):
    """What a checkpoint's storage holds, as a data set.

    Args:
        path: a run folder, or a checkpoint.

    Raises:
        CheckpointError: there is none, or it is damaged.
        PersistenceError: it holds no storage, or refers to one on disk that is not there any more.
    """

    format: ClassVar[str] = "checkpoint"

    def __init__(self, path: Path) -> None:
        file = RunFolder(path).checkpoint_file if path.is_dir() else path
        state = checkpoint.load(file)
        super().__init__(file, About())
        try:
            storage, config = state["scheme"]["storage"], places.as_found(state["config"], file.parent)["storage"]
            _refuse_data_set(storage, config)
            if "position" in storage:
                storage = read_state(config["hyper_parameters"]["directory"], storage["position"])
            self._ring = _ring(storage["ring"], config["name"])
        except PersistenceError:
            raise
        except _WRONG as error:
            raise DatasetError(f"{file} holds no storage that can be read ({error!r})") from error

    def __len__(self) -> int:
        """Episodes, or what is stored of them."""
        return count_episodes_in(self._ring)

    @property
    def steps(self) -> int:
        """Transitions that are stored."""
        return self._ring.live_transitions

    def _episodes(self) -> Iterator[Episode]:
        return episodes_in(self._ring)


def _refuse_data_set(storage: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    """Refuse a state that refers to data which a data set holds.

    Raises:
        DatasetError: the message names the data set.
    """
    if "data" in storage:
        raise DatasetError(f"it was filled from the data set {config['dataset']}; python -m pytorchrl data show it")


def _ring(saved: Mapping[str, Any], name: str) -> Ring:
    ring = Ring(saved["size"], name, in_records=not _on_policy(name), stacked_frames=_stacked_frames(saved))
    ring.load_state_dict(saved)
    return ring


def _episodes(
    ring: Ring, begun: Any, hyper_parameters: Mapping[str, Any]
) -> tuple[EpisodeIndex | None, EpisodeStarts | None]:
    if begun is None:
        return None, None
    index, episodes = EpisodeIndex(ring, np.array(begun, np.int64)), _sequences(hyper_parameters)
    return index, EpisodeStarts(ring, index, episodes) if isinstance(episodes, Episodes) else None


def _priorities(
    ring: Ring,
    starts: EpisodeStarts | None,
    saved: Mapping[str, Any],
    hyper_parameters: Mapping[str, Any],
    alpha: float,
) -> PriorityList:
    sequences = _sequences(hyper_parameters)
    stride = sequences.stride if isinstance(sequences, Sequences) else 1
    error_max = hyper_parameters.get("error_max")
    settings = PrioritySettings(
        hyper_parameters.get("epsilon", 0.0),
        alpha,
        hyper_parameters.get("prioritization") == "rank",
        hyper_parameters.get("error_min", 0.0),
        math.inf if error_max is None else error_max,
    )
    priorities = Priorities(ring, settings, stride, starts)
    priorities.load_state_dict(saved)
    return PriorityList(
        values=priorities.values,
        ages=ring.steps - 1 - priorities.drawn // ring.envs,
        of="transition" if starts is None else "episode",
        nbytes=priorities.nbytes,
    )


def _sequences(hyper_parameters: Mapping[str, Any]) -> Sequences | Episodes | None:
    config = hyper_parameters.get("sequences")
    if config is None:
        return None
    kind = Episodes if config["name"] == Episodes.__name__ else Sequences
    sequences: Sequences | Episodes = kind(**config["hyper_parameters"])
    return sequences


def _alpha(hyper_parameters: Mapping[str, Any], transitions: int, file: Path) -> float | None:
    """What ``alpha`` was worth at the checkpoint; None where that cannot be told.

    How far along its schedule a run had come follows from its target, which is kept beside the checkpoint.
    """
    alpha = hyper_parameters.get("alpha")
    if isinstance(alpha, int | float):
        return float(alpha)
    folder = RunFolder(file.parent)
    if not isinstance(alpha, Mapping) or alpha["name"] != LinearSchedule.__name__ or not folder.config_file.is_file():
        return None
    return LinearSchedule(**alpha["hyper_parameters"]).at(transitions, folder.read_config()["target_steps"])


def _on_policy(name: str) -> bool:
    try:
        return bool(class_named(name).on_policy)  # type: ignore[attr-defined]
    except CompositionError:
        # A class of the user's script can be looked at without the script; how its columns lie is of no weight.
        return False


def _stacked_frames(saved: Mapping[str, Any]) -> int | dict[str, int]:
    depths = {tuple(leaf["path"]): leaf["depth"] for leaf in saved["leaves"] if leaf["depth"] > 1}
    if not depths:
        return 0
    named = {path[1]: depth for path, depth in depths.items() if len(path) > 1}
    return named or next(iter(depths.values()))
