"""Crafted inputs, and the intact inputs from which they are made."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import pytorchrl as prl
from pytorchrl.experiments.inspection.overview import directory_of_episodes, inspect_storage
from pytorchrl.experiments.runs import checkpoint
from pytorchrl.experiments.runs.composition import load_agent
from pytorchrl.logging.metrics_file import read_metrics
from storages.datasets import open_dataset, write_dataset
from storages.persistent import read_state, repair
from tests.support.compositions import dqn_scheme
from tests.support.directories import Pair, made
from tests.support.episodes import some
from tests.support.episodic import buffer
from tests.support.model import Stream, environments


class Base:
    """Intact data sets, storages and runs.

    Args:
        folder: where they are created.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.npz, self.ring, self.episodic = folder / "whole.npz", folder / "ring", folder / "episodic"
        self.minari = {layout: folder / layout for layout in ("hdf5", "arrow", "parquet")}
        self.run, self.mine, self.text = folder / "run", folder / "mine", folder / "mine.txt"
        write_dataset(self.npz, some())
        for layout, path in self.minari.items():
            write_dataset(path, some(), format=f"minari-{layout}")
        for directory in (self.ring, self.mine):
            pair = Pair("priority", directory)
            pair.insert(20)
            pair.update()
            pair.close()
        storage, stream = buffer(self.episodic), Stream(2, "vector", False, np.random.default_rng(0))
        for _ in range(40):
            storage.insert_transition(stream.step())
        storage.close()
        replay = prl.ReplayBuffer.create_factory(size=50, directory=self.run / "replay")
        learner = prl.Learner(dqn_scheme(storage=replay, algorithm={"test_every": 0}), 60, self.run)
        learner.run()
        learner.close()
        self.text.write_bytes(b"what matters to me\n" * 100)

    def outside(self) -> dict[str, tuple[bytes, int]]:
        """Files that no crafted input may change, with their content and modification time."""
        paths = [self.text, self.mine, *sorted(self.mine.rglob("*"))]
        return {str(path): (path.read_bytes() if path.is_file() else b"", path.stat().st_mtime_ns) for path in paths}


@dataclass(frozen=True)
class Case:
    """A crafted input.

    Args:
        name: description of the defect.
        make: makes the input in a folder; returns the path to open.
        how: how the path is opened, a key of :data:`OPENED`.
        named: word that the error has to contain; the name of the opened path if None.
    """

    name: str
    make: Callable[[Base, Path], Path]
    how: str
    named: str | None = None


def _resumed(path: Path) -> None:
    learner = prl.Learner.resume(path, target_steps=80)
    learner.close()


def _acting(path: Path) -> None:
    _, envs = load_agent(path)
    envs.close()


def _episodic(path: Path) -> None:
    storage: Any = buffer(path)
    try:
        for _ in storage.generate_batches(20, 8):
            pass
    finally:
        storage.close()


OPENED: dict[str, Callable[[Path], Any]] = {
    "data set": lambda path: list(open_dataset(path)),
    "ring": lambda path: made("priority", path, environments("vector", 2)).close(),
    "state": read_state,
    "episodic": _episodic,
    "checkpoint": checkpoint.load,
    "resumed": _resumed,
    "agent": _acting,
    "repaired": repair,
    "inspected": inspect_storage,
    "metrics": lambda path: read_metrics(path / "metrics.jsonl"),
    "run's episodes": directory_of_episodes,
}


def flipped(path: Path, place: int, count: int = 1) -> None:
    """Flip all bits of some bytes of a file, from a place on; a negative place is counted from the end."""
    data = bytearray(path.read_bytes())
    for offset in range(place % len(data), min(place % len(data) + count, len(data))):
        data[offset] ^= 0xFF
    path.write_bytes(data)


def halved(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def saved(path: Path, state: Any) -> Path:
    torch.save(state, path)
    return path
