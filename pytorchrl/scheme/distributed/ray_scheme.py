"""A scheme whose work is done by several processes, on one machine or many, with Ray."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, Literal, TypedDict, TypeVar, Unpack, cast

import torch

from pytorchrl.agent.actors.actor import Actor
from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.agent.algorithms.results import Metrics
from pytorchrl.agent.algorithms.update_plan import EveryTransitions
from pytorchrl.agent.envs.vec_env import VecEnv, one_copy
from pytorchrl.agent.explorers import Explorer
from pytorchrl.scheme.collector import Collecting
from pytorchrl.scheme.distributed.blueprint import Blueprint
from pytorchrl.scheme.distributed.collectors import EnvsOfCollectors, RemoteCollectors, make_workers
from pytorchrl.scheme.distributed.gradient_worker import GradientBlueprint
from pytorchrl.scheme.distributed.gradients import RemoteGradients, make_gradient_workers
from pytorchrl.scheme.distributed.plan import Communication, WorkPlan, checked_resources
from pytorchrl.scheme.fitting import CompositionError, check_roles
from pytorchrl.scheme.scheme import Scheme
from storages.component.factory import Factory
from storages.off_policy.mixed_storage import MixedSource
from storages.sharded import ShardedReplay
from storages.storage import Storage

T = TypeVar("T")


class SchemeSettings(TypedDict, total=False):
    """Arguments of :class:`Scheme` that hold here too."""

    sources: Mapping[str, Factory[Storage]] | None
    mixed: Mapping[str, MixedSource] | None
    normalize_rewards: Literal["returns", "rewards"] | None
    device: torch.device | str
    seed: int
    max_test_episode_steps: int


class RayScheme(Scheme):
    """A scheme that collects in other processes, on this machine or on those of a cluster of Ray.

    Each collector makes the environments of ``train_envs_factory``, an explorer and random numbers for itself. The
    storage, the updates and evaluations are in the learner's process. Weights go to collectors, and slices of their
    steps come back, through Ray's object store.

    Synchronous collectors act with the newest weights, and the learner waits for all of them: two runs with the same
    seed are equal, and a run that was resumed is the run that was not stopped. Their environments lie side by side in
    the storage, as those of one process with as many would. Asynchronous collectors never wait for each other; how old
    their weights are is logged as "train/policy_lag", in update phases. A resumed run goes on from everything that was
    saved, and then depends, as it did before, on which slice comes first.

    A collector that dies, or whose machine does, is replaced, with new episodes; this is printed, and counted as
    "train/workers_replaced". An error that a collector raises ends the run and shows its traceback.

    Args:
        algo_factory: how to learn.
        actor_factory: the networks' body.
        storage_factory: how experience is kept, in the learner's process.
        train_envs_factory: the environments of one collector.
        test_envs_factory: where to be evaluated, in the learner's process. None takes one copy of the training
            environments.
        num_collectors: processes that collect; None for 1, or where gradient workers do it.
        num_gradient_workers: processes that compute gradients, each of experience that it collects for itself with
            environments and a storage of its own; 0 lets the learner's process compute them.
        communication: of collectors, or of gradient workers: "synchronous" or "asynchronous".
        slice_steps: steps that a collector makes at a time, with the same weights. None takes a whole rollout, or the
            steps between two update phases. More of them cost less for each transition.
        preemption: share of the synchronous gradient workers whose collecting is waited for; the others then stop, and
            their rollouts are shorter (Wijmans et al., "DD-PPO", arXiv 1911.00357, section 3). 1 waits for all; with
            less, runs are not equal.
        slices_at_once: slices of asynchronous collectors that lie side by side in the storage: a rollout is made of so
            many, of whichever collectors come first.
        explorers: one for each collector or gradient worker; None leaves all that of the algorithm.
        resources: what each "collector", "gradient_worker" and "replay_shard" takes of the cluster: "num_cpus",
            "num_gpus", "memory" in bytes, or the cluster's own resources by name.
        address: of the cluster, "auto" for the one that this machine is part of. None takes the environment's
            ``RAY_ADDRESS``, else starts Ray on this machine alone. A connection that is there already is used.
        worker_device: where the networks of collectors and gradient workers live.
        num_replay_shards: processes that the main storage is divided among, and that make batches for the learner
            (:class:`ShardedReplay`); 0 keeps it in the learner's process. With shards, updates depend on how fast they
            answer, so that runs are not equal.
        initial_priorities: collectors give a prioritised storage the errors of what they collect, by their own networks
            (Horgan et al., "Ape-X", arXiv 1803.00933, section 3), instead of its ``default_error``.
        **settings: as of :class:`Scheme`.

    Raises:
        CompositionError: the parts do not go together, or not with such collectors.
        ImportError: Ray is not installed.
        RuntimeError: the cluster has not got the resources.
        ValueError: a number is not positive.
    """

    def __init__(
        self,
        algo_factory: Factory[Algorithm],
        actor_factory: Factory[Actor],
        storage_factory: Factory[Storage],
        train_envs_factory: Factory[VecEnv],
        test_envs_factory: Factory[VecEnv] | None = None,
        *,
        num_collectors: int | None = None,
        num_gradient_workers: int = 0,
        communication: Communication = "synchronous",
        slice_steps: int | None = None,
        slices_at_once: int = 1,
        preemption: float = 1.0,
        explorers: Sequence[Explorer] | None = None,
        resources: Mapping[str, Mapping[str, float]] | None = None,
        address: str | None = None,
        worker_device: str = "cpu",
        num_replay_shards: int = 0,
        initial_priorities: bool = False,
        **settings: Unpack[SchemeSettings],
    ) -> None:
        plan = WorkPlan(
            num_collectors,
            num_gradient_workers,
            communication,
            slice_steps,
            slices_at_once,
            preemption,
            None if explorers is None else tuple(explorers),
            worker_device,
            num_replay_shards,
            initial_priorities,
        )
        self._resources = checked_resources(resources)
        if find_spec("ray") is None:
            raise ImportError('RayScheme needs the package ray: pip install ".[ray]", or ray alone')
        self._plan, self._address = plan, address
        self._given = algo_factory, actor_factory, storage_factory, train_envs_factory
        self._given_sources = dict(settings.get("sources") or {})
        self._phases = 0
        """Update phases made."""
        self._is_connected = self._was_connected_here = False
        self._remote: RemoteCollectors | RemoteGradients | None = None
        check_roles(algo_factory, actor_factory, {"main": storage_factory}, train_envs_factory, test_envs_factory)
        plan.check_parts(algo_factory, actor_factory, storage_factory)
        try:
            super().__init__(
                algo_factory, actor_factory, storage_factory, train_envs_factory, test_envs_factory, **settings
            )
        except BaseException:
            self._leave()
            raise
        self.config["distributed"] = plan.config
        # Not the address: a run folder may come from somebody else, and a cluster runs what it is sent.
        self.config["resources"] = self._resources

    def make_envs(self, factory: Factory[VecEnv]) -> VecEnv:
        """Make one copy, which tells the spaces; the workers make theirs."""
        one = one_copy(factory)()
        of_worker = int(factory.hyper_parameters.get("num_envs", one.num_envs))
        return cast("VecEnv", EnvsOfCollectors(one, of_worker * self._plan.num_side_by_side))

    def make_storage(self, name: str, factory: Factory[Storage], envs: Any) -> Storage:
        """Make a source's storage, or the shards of the main one."""
        plan = self._plan
        if name != "main" or not plan.num_replay_shards:
            return super().make_storage(name, factory, envs)
        from pytorchrl.scheme.distributed.ray_shards import RayShards, StorageMaker

        self._connect()
        maker = StorageMaker(factory, self.algorithm.gamma, envs.num_envs, envs.stacked_frames)
        shards = RayShards(maker, plan.num_replay_shards, self._resources["replay_shard"])
        # Of a source of replayed transitions an algorithm asks what shards have.
        return cast("Storage", ShardedReplay(shards, self.device))

    def make_collector(self, envs: VecEnv, normalize_rewards: Literal["returns", "rewards"] | None) -> Collecting:
        """Start the workers."""
        plan, of_worker = self._plan, self._resources[self._plan.kind]
        slice_steps = plan.slice_steps or self._default_slice_steps(envs.num_envs)
        self._check_slices(slice_steps)
        self._connect()
        algo_factory, actor_factory, storage_factory, envs_factory = self._given
        if plan.num_gradient_workers:
            self._remote = RemoteGradients(
                make_gradient_workers(
                    GradientBlueprint(
                        algo_factory,
                        actor_factory,
                        storage_factory,
                        envs_factory,
                        self._given_sources,
                        plan.explorers,
                        normalize_rewards,
                        plan.worker_device,
                        self.run_seed,
                    ),
                    plan.num_workers,
                    of_worker,
                    plan.preemption < 1,
                ),
                plan.communication,
                self.algorithm,
                plan.preemption,
            )
            return self._remote
        self._remote = RemoteCollectors(
            make_workers(
                Blueprint(
                    algo_factory,
                    actor_factory,
                    envs_factory,
                    plan.explorers,
                    normalize_rewards,
                    plan.worker_device,
                    self.run_seed,
                    plan.num_workers,
                    slice_steps,
                    storage_factory.hyper_parameters.get("allow_nonfinite", False),
                    getattr(self.storage, "info_keys", ()),
                    storage_factory if plan.initial_priorities else None,
                ),
                of_worker,
            ),
            plan.communication,
            plan.slices_at_once,
            self.algorithm,
            self.storage,
            lambda: self._phases,
        )
        return self._remote

    @property
    def workers_replaced(self) -> int:
        """How many workers died and were replaced."""
        return 0 if self._remote is None else self._remote.workers.replaced

    def ask_worker(self, worker: int, question: Callable[[Any], T]) -> T:
        """Call a function with a collector or gradient worker in its process, for tests and measurements.

        Raises:
            RuntimeError: the scheme is closed.
        """
        if self._remote is None:
            raise RuntimeError("RayScheme: it is closed, and has no workers any more")
        return self._remote.workers.ask(worker, question)

    def update(self) -> Iterator[Metrics]:
        """Go through one update phase; yields what each update, the storages and the workers say of it."""
        said: Metrics = {"train/workers_replaced": self.workers_replaced}
        if isinstance(self._remote, RemoteGradients):
            updates = self._remote.update()
        else:
            updates = super().update()
            if self._remote is not None and (lags := self._remote.take_policy_lags()):
                said["train/policy_lag"] = sum(lags) / len(lags)
        for info in updates:
            yield info | said
        self._phases += 1

    def state_dict(self) -> dict[str, Any]:
        """Everything that the run goes on from, the running episodes of collectors too, as tensors and plain data."""
        return super().state_dict() | {"phases": self._phases}

    def load_state_dict(self, state: dict[str, Any]) -> list[int]:
        """Restore the state returned by `state_dict`; returns the environments whose running episodes are lost."""
        self._phases = state["phases"]
        return super().load_state_dict(state)

    def close(self) -> None:
        """End the workers, and Ray where it was started here; close environments and storages."""
        try:
            # Shards are ended while there is a cluster.
            super().close()
        finally:
            self._leave()

    def phases_due(self, before: int, episodes_before: int) -> int:
        """How many update phases are due by the algorithm's plan, or one because there are gradients."""
        return 1 if self._plan.num_gradient_workers else super().phases_due(before, episodes_before)

    def _default_slice_steps(self, num_envs: int) -> int:
        plan = self.algorithm.plan
        if self.storage.on_policy:
            return self.storage.capacity // num_envs
        return max(1, plan.number // num_envs) if isinstance(plan, EveryTransitions) else 1

    def _check_slices(self, slice_steps: int) -> None:
        if self._plan.num_gradient_workers:
            return
        if self.storage.on_policy and self.storage.size is not None and self.storage.size % slice_steps:
            raise CompositionError(
                f"RayScheme: a rollout of {self.storage.size} steps is not made of slices of {slice_steps}; choose a "
                f"slice_steps that divides it"
            )

    def _connect(self) -> None:
        """Connect to the cluster, or start one, if that was not done."""
        from pytorchrl.scheme.distributed.workers import connect

        if not self._is_connected:
            plan = self._plan
            needed: Counter[str] = Counter()
            for kind, number in ((plan.kind, plan.num_workers), ("replay_shard", plan.num_replay_shards)):
                needed.update({name: amount * number for name, amount in self._resources[kind].items()})
            self._was_connected_here = connect(self._address, needed)
            self._is_connected = True

    def _leave(self) -> None:
        if self._remote is not None:
            self._remote.workers.close()
            self._remote = None
        if self._was_connected_here:
            from pytorchrl.scheme.distributed.workers import disconnect

            disconnect()
        self._is_connected = self._was_connected_here = False
