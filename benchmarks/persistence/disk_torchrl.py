"""torchrl's memory-mapped storage: tensors in files, whose number of transitions only a dump records."""

import logging
import warnings
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

import torch

from benchmarks.persistence.disk_ours import Close, Keeper, Opened
from benchmarks.storages.replay_content import Content

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from tensordict import TensorDict
    from torchrl.data import LazyMemmapStorage, TensorDictReplayBuffer
logging.getLogger("torchrl").setLevel(logging.WARNING)


class _Peer:
    name = "torchrl"
    promise = "nothing before dumps(), not timed"
    opens = "memory maps: nothing was read, or checked"
    opens_lazily = True
    share_of_storing = 10
    share_of_filling = 1

    def storing(self, content: Content, folder: Path) -> Callable[[], Close]:
        buffer = self._made(content, folder)
        steps = range(min(content.steps, len(content.observation)))
        circle = [_transitions(content, slice(step, step + 1)) for step in steps]
        buffer.extend(circle[0])
        following = cycle(circle[1:] + circle[:1])

        def call() -> Close:
            for _ in range(content.steps - 1):
                buffer.extend(next(following))
            return lambda: buffer.dumps(folder)

        return call

    def fill(self, content: Content, folder: Path) -> None:
        """Insert many steps at once, and dump."""
        buffer = self._made(content, folder)
        for first in range(0, content.steps, len(content.observation)):
            count = min(len(content.observation), content.steps - first)
            buffer.extend(_transitions(content, slice(count)))
        buffer.dumps(folder)

    def opening(self, content: Content, folder: Path) -> Callable[[], Opened]:
        def call() -> Opened:
            buffer = self._made(content, folder)
            buffer.loads(folder)
            return Opened(len(buffer), lambda: buffer[:].clone(), lambda: None)

        return call

    def _made(self, content: Content, folder: Path) -> Any:
        # Where dumps() puts it, so that nothing is copied.
        storage = LazyMemmapStorage(content.transitions, scratch_dir=folder / "storage")
        return TensorDictReplayBuffer(storage=storage, batch_size=1)


def _transitions(content: Content, steps: slice) -> Any:
    """Return the transitions of some steps."""
    fields = {
        "observation": content.observation,
        "action": content.action,
        "reward": content.reward,
        "next_observation": content.next_observation,
        "terminated": content.terminated,
        "truncated": content.truncated,
    }
    tensors = {
        name: torch.from_numpy(array[steps].reshape(-1, *array.shape[2:]).copy()) for name, array in fields.items()
    }
    return TensorDict(tensors, [len(tensors["observation"])])


PEERS: list[Keeper] = [_Peer()]
