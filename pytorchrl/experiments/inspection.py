"""What a checkpoint's storage holds, told without environments or networks, and without changing anything."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytorchrl.experiments import checkpoint
from pytorchrl.experiments.checkpoint import CheckpointError
from pytorchrl.experiments.run_folder import RunFolder
from storages.core.ring import Ring
from storages.core.summary import Episodes, Field, episodes_of, fields_of


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
    """Steps that ever came in."""
    nbytes: int
    """Memory of the transitions, free room included."""
    episodes: Episodes | None
    """None where nothing is stored."""
    errors: NDArray[np.float32] | None
    """(transitions,), oldest first: what priorities follow from; None where there are none."""

    @property
    def transitions(self) -> int:
        """How many are stored."""
        return self.steps * self.num_envs

    @property
    def priorities(self) -> NDArray[np.float64] | None:
        """(transitions,), oldest first; None where there are none, or ``alpha`` follows a schedule."""
        alpha, epsilon = self.hyper_parameters.get("alpha"), self.hyper_parameters.get("epsilon", 0.0)
        if self.errors is None or not isinstance(alpha, int | float):
            return None
        priorities: NDArray[np.float64] = (np.abs(self.errors.astype(np.float64)) + epsilon) ** alpha
        return priorities


def inspect_storage(path: Path) -> Inspection:
    """Read a run folder's checkpoint, or a checkpoint.

    Raises:
        CheckpointError: there is none, it is damaged, or holds no storage.
    """
    path = Path(path)
    file = RunFolder(path).checkpoint_file if path.is_dir() else path
    state = checkpoint.load(file)
    try:
        storage, config = state["scheme"]["storage"], state["config"]["storage"]
        saved = storage["ring"]
        ring = Ring(saved["size"], config["name"], stacked_frames=_stacked_frames(saved))
        ring.load_state_dict(saved)
        priorities = storage.get("priorities")
        return Inspection(
            path=file,
            name=config["name"],
            hyper_parameters=config["hyper_parameters"],
            fields=fields_of(ring),
            num_envs=ring.num_envs or 0,
            steps=ring.live_steps,
            capacity_steps=ring.size,
            inserted_steps=ring.steps,
            nbytes=ring.nbytes,
            episodes=episodes_of(ring) if ring.live_steps else None,
            errors=None if priorities is None else priorities["errors"].numpy(),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{file} holds no storage that can be read ({type(error).__name__}: {error})") from error


def _stacked_frames(saved: Mapping[str, Any]) -> int | dict[str, int]:
    depths = {tuple(leaf["path"]): leaf["depth"] for leaf in saved["leaves"] if leaf["depth"] > 1}
    if not depths:
        return 0
    named = {path[1]: depth for path, depth in depths.items() if len(path) > 1}
    return named or next(iter(depths.values()))
