"""Shards of a replay as actors of Ray, on this machine or on those of a cluster."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, GetTimeoutError, ObjectLostError, OutOfMemoryError, RayActorError

from storages.component.factory import Factory
from storages.off_policy.replay_buffer import ReplayBuffer
from storages.sharded import Pending, ReplayShard, ShardGroup, ShardLostError, factory_of_shard

_OPTIONS = ("num_cpus", "num_gpus", "memory")
_SECONDS_TO_CLOSE = 60.0
_REPEATABLE = ("summary", "call")
"""Methods of a shard that may be called again."""


@dataclass(frozen=True)
class StorageMaker:
    """Makes a shard's storage in the process of the shard.

    Args:
        factory: of the storage.
        gamma: discount factor of one step.
        num_envs: transitions in a step of the slices that it gets; None takes that of the first slice.
        stacked_frames: of the environments, as storages read it.
    """

    factory: Factory[Any]
    gamma: float
    num_envs: int | None = None
    stacked_frames: Any = 0

    def __call__(self) -> ReplayBuffer:
        """Make it; with a directory it is the one that was kept there."""
        envs = SimpleNamespace(num_envs=self.num_envs, stacked_frames=self.stacked_frames)
        storage: ReplayBuffer = self.factory("cpu", None, SimpleNamespace(gamma=self.gamma), envs)
        return storage


class RayShards(ShardGroup):
    """Shards that are actors of Ray; collectors in other processes are given the object, too.

    Ray starts a shard that died anew, on any machine that has its resources, where its ``directory`` must be then.
    Batches and slices travel through Ray's object store, which the processes of a machine share.

    Args:
        maker: of one storage that would hold everything; ``size``, ``max_bytes`` and ``directory`` are divided.
        number: how many shards there are.
        resources: what each takes of the cluster: "num_cpus", "num_gpus", "memory" in bytes, or the cluster's own
            resources by name.

    Raises:
        ValueError: it is no storage that shards are made of.
    """

    def __init__(self, maker: StorageMaker, number: int, resources: Mapping[str, float] | None = None) -> None:
        makers = [
            StorageMaker(
                factory_of_shard(maker.factory, position, number), maker.gamma, maker.num_envs, maker.stacked_frames
            )
            for position in range(number)
        ]
        given = {"num_cpus": 1.0} | dict(resources or {})
        options = {name: amount for name, amount in given.items() if name in _OPTIONS}
        own = {name: amount for name, amount in given.items() if name not in _OPTIONS}
        actor = ray.remote(ReplayShard).options(
            resources=own, scheduling_strategy="SPREAD", max_restarts=-1, max_task_retries=0, **options
        )
        self._actors: list[Any] = [actor.remote(one) for one in makers]

    def __len__(self) -> int:
        """How many there are."""
        return len(self._actors)

    def begin(self, shard: int, method: str, *arguments: Any) -> Pending[Any]:
        """Begin a method of a :class:`ReplayShard`."""
        remote = getattr(self._actors[shard], method)
        if method in _REPEATABLE:
            # Where the shard has died, its replacement answers.
            remote = remote.options(max_task_retries=-1)
        return _Answer(remote.remote(*arguments), shard)

    def wait(self, pending: Sequence[Pending[Any]], timeout_seconds: float | None) -> Pending[Any] | None:
        """Wait for the first of some answers, or for so long; None where none has come."""
        by_reference = {one.reference: one for one in pending if isinstance(one, _Answer)}
        come, _ = ray.wait(list(by_reference), num_returns=1, timeout=timeout_seconds)
        return by_reference[come[0]] if come else None

    def process_ids(self) -> list[int]:
        """The processes of the shards, each on its machine."""
        return [int(ray.get(actor.process_id.remote())) for actor in self._actors]

    def close(self) -> None:
        """Commit what shards with directories hold, and end them; one that does not answer is ended as it is."""
        answers = [actor.call.remote("close") for actor in self._actors]
        try:
            ray.get(answers, timeout=_SECONDS_TO_CLOSE)
        except (RayActorError, ActorUnavailableError, GetTimeoutError):
            pass
        finally:
            for actor in self._actors:
                ray.kill(actor)


class _Answer:
    """An answer that comes through the object store.

    Args:
        reference: to it.
        shard: whose it is.
    """

    def __init__(self, reference: Any, shard: int) -> None:
        self.reference = reference
        self._shard = shard

    def result(self) -> Any:
        """Wait for the answer.

        Raises:
            ShardLostError: the shard died, or the machine that held the answer.
            RuntimeError: the shard cannot be made.
            Exception: what the shard raised, with its traceback there.
        """
        try:
            return ray.get(self.reference)
        except (RayActorError, ActorUnavailableError, ObjectLostError, OutOfMemoryError) as error:
            if isinstance(error, RayActorError) and error.actor_init_failed:
                raise RuntimeError(f"shard {self._shard} could not be made: {error}") from error
            raise ShardLostError(f"shard {self._shard} died before it answered: {error}") from error
