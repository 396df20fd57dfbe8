"""Functions that workers call to send steps again; in a module of their own, so that they are sent by name."""

from typing import Any

from pytorchrl.scheme.distributed.collection_worker import CollectionWorker
from pytorchrl.scheme.distributed.slices import arrays_of
from storages.sharded.compact_steps import Compact

SLICE = 1_000


def slice_of(worker: CollectionWorker) -> Any:
    """Copy the newest slice out of the collector's storage again, as it is sent."""
    return Compact(arrays_of(worker.storage, SLICE))


def keep_episodes(runner: Any) -> None:
    """Let RLlib's environment runner collect as many steps, and keep them."""
    runner.kept = runner.sample(num_timesteps=SLICE, random_actions=True)


def kept_episodes(runner: Any) -> Any:
    """Return what it kept."""
    return runner.kept
