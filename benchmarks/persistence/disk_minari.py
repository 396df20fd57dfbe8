"""Minari's data sets, which are written an episode at a time: HDF5, and Arrow.

Episodes are passed to it as arrays: gathering steps, which its collector does in memory, is not timed.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import gymnasium as gym
import minari
import numpy as np
from minari import MinariDataset
from minari.data_collector import EpisodeBuffer
from minari.dataset.minari_storage import MinariStorage

from benchmarks.persistence.disk_ours import Close, Keeper, Opened
from benchmarks.storages.replay_content import Array, Content


class _Peer:
    share_of_storing = 1
    opens = "metadata: no episode was read, or checked"
    opens_lazily = True

    def __init__(self, name: str, data_format: str, promise: str, share_of_filling: int) -> None:
        self.name, self.promise = name, promise
        self.share_of_filling = share_of_filling
        self._format = data_format

    def storing(self, content: Content, folder: Path) -> Callable[[], Close]:
        storage, episodes = self._made(content, folder), list(_episodes(content))

        def call() -> Close:
            for episode in episodes:
                storage.update_episodes([episode])
            return lambda: None

        return call

    def fill(self, content: Content, folder: Path) -> None:
        """Write all episodes in one call."""
        self._made(content, folder).update_episodes(_episodes(content))

    def opening(self, content: Content, folder: Path) -> Callable[[], Opened]:
        def call() -> Opened:
            dataset = MinariDataset(folder)
            return Opened(dataset.total_steps, lambda: list(dataset.iterate_episodes()), lambda: None)

        return call

    def _made(self, content: Content, folder: Path) -> MinariStorage:
        spaces = _space(content.observation), _space(content.action)
        storage = MinariStorage.new(folder, *spaces, data_format=self._format, jpeg_encoding=False)
        storage.update_metadata({"dataset_id": "benchmark/numbers-v0", "minari_version": minari.__version__})
        return storage


def _space(array: Array) -> gym.Space[Array]:
    if array.dtype == np.int64:
        return gym.spaces.Discrete(int(array.max()) + 1)  # type: ignore[return-value]
    low, high = (0, 255) if array.dtype == np.uint8 else (-np.inf, np.inf)
    return gym.spaces.Box(low, high, array.shape[2:], array.dtype.type)


def _episodes(content: Content) -> Iterator[EpisodeBuffer]:
    """Yield the episodes of one environment after the other; the last may be incomplete."""
    circle = len(content.observation)
    for env in range(content.environments):
        ends = np.flatnonzero(content.done[:, env, 0]) + 1
        ends = np.concatenate([ends + first for first in range(0, content.steps, circle)])
        first = 0
        for end in [*ends[ends < content.steps].tolist(), content.steps]:
            steps = np.arange(first, end) % circle
            observations = content.observation[steps, env], content.next_observation[steps[-1:], env]
            actions = content.action[steps, env]
            yield EpisodeBuffer(
                observations=np.concatenate(observations),
                actions=actions[:, 0] if actions.dtype == np.int64 else actions,
                rewards=content.reward[steps, env, 0],
                terminations=content.terminated[steps, env, 0],
                truncations=content.truncated[steps, env, 0],
                infos={},
            )
            first = end


PEERS: list[Keeper] = [
    _Peer("Minari, HDF5", "hdf5", "episodes, unless it breaks the file", 1),
    # With each episode it asks how long the files of all others are.
    _Peer("Minari, Arrow", "arrow", "episodes, a file for each", 10),
]
