"""Replay shards as Ray actors, on this machine or on a cluster."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import ray
from ray.exceptions import ActorUnavailableError, GetTimeoutError, ObjectLostError, OutOfMemoryError, RayActorError

from pytorchrl.agent.global_generators import seed_process, seeds_of_processes
from pytorchrl.scheme.distributed.workers import why_not_made
from storages.component.factory import Factory
from storages.off_policy.replay_buffer import ReplayBuffer
from storages.sharded import Pending, ReplayShard, ShardGroup, ShardLostError, factory_of_shard
from storages.sharded.compact_steps import Compact
from storages.sharded.offered_pieces import OfferedPieces
from storages.sharded.replay_shard import ShardReply, Update

_OPTIONS = ("num_cpus", "num_gpus", "memory")
_SECONDS_TO_CLOSE = 60.0
_REPEATABLE = ("summary", "call")
"""Methods of a shard that may be retried."""


@dataclass(frozen=True)
class StorageMaker:
    """Makes a shard's storage in the process of the shard.

    Args:
        factory: of the storage.
        gamma: discount factor of one step.
        num_envs: number of environments in its slices; None takes that of the first slice.
        stacked_frames: see :class:`VecEnv`.
        seed: of the global random generators of the shard's process; None leaves them as they are.
    """

    factory: Factory[Any]
    gamma: float
    num_envs: int | None = None
    stacked_frames: Any = 0
    seed: np.random.SeedSequence | None = None

    def __call__(self) -> ReplayBuffer:
        """Make the storage; with a directory, open the one that is stored there."""
        if self.seed is not None:
            seed_process(self.seed)
        envs = SimpleNamespace(num_envs=self.num_envs, stacked_frames=self.stacked_frames)
        storage: ReplayBuffer = self.factory("cpu", None, SimpleNamespace(gamma=self.gamma), envs)
        return storage


class RayShards(ShardGroup):
    """A group of replay shards that are Ray actors; the object can be sent to other processes.

    Ray restarts a shard that died, on any machine with its resources, where its ``directory`` must be accessible.
    Batches of shards on this machine are written into shared memory; those of other machines, and slices, are
    transferred through Ray's object store.

    Args:
        maker: of the undivided storage; ``size``, ``max_bytes`` and ``directory`` are divided among shards.
        number: number of shards.
        resources: requirements of each: "num_cpus", "num_gpus", "memory" in bytes, or custom resources of the cluster
            by name.

    Raises:
        ValueError: the storage cannot be divided into shards.
    """

    def __init__(self, maker: StorageMaker, number: int, resources: Mapping[str, float] | None = None) -> None:
        makers = [
            replace(maker, factory=factory_of_shard(maker.factory, position, number), seed=seed)
            for position, seed in enumerate(seeds_of_processes(number))
        ]
        given = {"num_cpus": 1.0} | dict(resources or {})
        options = {name: amount for name, amount in given.items() if name in _OPTIONS}
        own = {name: amount for name, amount in given.items() if name not in _OPTIONS}
        actor = ray.remote(ReplayShard).options(
            resources=own, scheduling_strategy="SPREAD", max_restarts=-1, max_task_retries=0, **options
        )
        self._actors: list[Any] = [actor.remote(one) for one in makers]
        self._offered = self._no_pieces()

    def __len__(self) -> int:
        """Number of shards."""
        return len(self._actors)

    def __getstate__(self) -> dict[str, Any]:
        """Return what another process needs; shared memory stays with this one."""
        return {"_actors": self._actors}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`__getstate__` returned."""
        self._actors = state["_actors"]
        self._offered = self._no_pieces()

    def _no_pieces(self) -> list[OfferedPieces]:
        return [OfferedPieces() for _ in self._actors]

    def exchange(
        self,
        shard: int,
        updates: Sequence[Update],
        progress: tuple[int, int] | None,
        batches: int,
        batch_size: int,
    ) -> Pending[ShardReply]:
        """Call :meth:`ReplayShard.exchange` asynchronously, with shared memory for the batches."""
        offered = self._offered[shard]
        piece = offered.take() if batches else None
        arguments = (updates, progress, batches, batch_size, None if piece is None else piece.place)
        reference = self._actors[shard].exchange.remote(*arguments)
        return _Answer(reference, shard, lambda reply: offered.read(piece, reply))

    def begin(self, shard: int, method: str, *arguments: Any) -> Pending[Any]:
        """Start a method call of a :class:`ReplayShard`."""
        remote = getattr(self._actors[shard], method)
        if method in _REPEATABLE:
            # If the shard has died, the call is repeated in its replacement.
            remote = remote.options(max_task_retries=-1)
        return _Answer(remote.remote(*arguments), shard)

    def insert_data_slice(self, shard: int, data: Mapping[str, Any]) -> Pending[int]:
        """Call :meth:`ReplayShard.insert_data_slice` asynchronously, with each observation sent once."""
        return self.begin(shard, "insert_data_slice", Compact(data))

    def wait(self, pending: Sequence[Pending[Any]], timeout_seconds: float | None) -> Pending[Any] | None:
        """Return the first answer that is complete; None after the timeout."""
        by_reference = {one.reference: one for one in pending if isinstance(one, _Answer)}
        come, _ = ray.wait(list(by_reference), num_returns=1, timeout=timeout_seconds)
        return by_reference[come[0]] if come else None

    def process_ids(self) -> list[int]:
        """Return the process ids of the shards, each on its machine."""
        return [int(ray.get(actor.process_id.remote())) for actor in self._actors]

    def close(self) -> None:
        """Close the shards, which commits those with directories, and kill them; also those that do not answer."""
        answers = [actor.call.remote("close") for actor in self._actors]
        try:
            ray.get(answers, timeout=_SECONDS_TO_CLOSE)
        except (RayActorError, ActorUnavailableError, GetTimeoutError):
            pass
        finally:
            for actor in self._actors:
                ray.kill(actor)


class _Answer:
    """The pending result of a call, in the object store.

    Args:
        reference: to the result.
        shard: index of the shard.
        read: function of what the shard returned that returns the result.
    """

    def __init__(self, reference: Any, shard: int, read: Callable[[Any], Any] = lambda returned: returned) -> None:
        self.reference = reference
        self._shard, self._read = shard, read

    def result(self) -> Any:
        """Wait for the answer.

        Raises:
            ShardLostError: the shard died, or the machine that held the answer.
            RuntimeError: the shard cannot be made.
            Exception: any exception raised in the shard, with its traceback.
        """
        try:
            returned = ray.get(self.reference)
        except (RayActorError, ActorUnavailableError, ObjectLostError, OutOfMemoryError) as error:
            if isinstance(error, RayActorError) and error.actor_init_failed:
                raise RuntimeError(f"shard {self._shard} could not be made: {why_not_made(error)}") from error
            raise ShardLostError(f"shard {self._shard} died before it answered: {error}") from error
        return self._read(returned)
