"""A distributed scheme: worker processes on one machine or many, with Ray."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from typing import Any, Literal, TypedDict, TypeVar, Unpack, cast

import torch

from pytorchrl.agent.actors.actor import Actor
from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.agent.algorithms.results import Metrics
from pytorchrl.agent.algorithms.update_plan import EveryTransitions, Wait
from pytorchrl.agent.envs.vec_env import VecEnv, one_copy
from pytorchrl.agent.explorers import Explorer
from pytorchrl.scheme.collector import Collecting, Episode
from pytorchrl.scheme.compatibility import CompositionError, check_roles
from pytorchrl.scheme.distributed.blueprint import CollectorBlueprint
from pytorchrl.scheme.distributed.collectors import CollectorEnvs, RemoteCollectors, make_collectors
from pytorchrl.scheme.distributed.gradient_worker import GradientBlueprint
from pytorchrl.scheme.distributed.gradients import RemoteGradients, make_gradient_workers
from pytorchrl.scheme.distributed.plan import Communication, WorkerLostError, WorkPlan, checked_resources
from pytorchrl.scheme.scheme import Scheme
from pytorchrl.version import install_command
from storages.component.factory import Factory
from storages.off_policy.mixed_storage import MixedSource
from storages.sharded import ShardedReplay
from storages.storage import Storage

T = TypeVar("T")


class SchemeSettings(TypedDict, total=False):
    """Arguments of :class:`Scheme` that :class:`RayScheme` passes on."""

    sources: Mapping[str, Factory[Storage]] | None
    mixed: Mapping[str, MixedSource] | None
    normalize_rewards: Literal["returns", "rewards"] | None
    device: torch.device | str
    seed: int
    max_test_episode_steps: int
    test_seed: int | None


def refuse_collection(owner: str, settings: Mapping[str, Any]) -> None:
    """Refuse a ``collection`` among the settings of a scheme that collects in its own way.

    Raises:
        CompositionError: there is one.
    """
    if settings.get("collection") is not None:
        raise CompositionError(
            f"{owner} collects in processes of its own; leave out collection={settings['collection']}, or take Scheme"
        )


class RayScheme(Scheme):
    """A scheme that collects in other processes, on this machine or on a Ray cluster.

    Each collector has its own environments of ``train_envs_factory``, explorer and random generators. The storage,
    updates and evaluations are in the learner's process. Weights are sent to collectors, and slices of steps are
    returned, through Ray's object store.

    Synchronous collectors act with the newest weights, and the learner waits for all of them: two runs with the same
    seed are identical, and so are a resumed and an uninterrupted run. Their environments are joined along the
    environment axis of the storage, as if one process stepped all of them. Asynchronous collectors never wait for each
    other; the lag of their weights is logged as "train/policy_lag", in update phases. A resumed run continues from the
    complete saved state, but asynchronous runs depend on the order in which slices arrive.

    A collector that dies, or whose machine does, is replaced, with new episodes; this is printed, and counted as
    "train/workers_replaced". An exception in a collector ends the run and shows its traceback.

    Args:
        algo_factory: of the algorithm.
        actor_factory: of the actor, the body of the networks.
        storage_factory: of the main storage, in the learner's process.
        train_envs_factory: of the environments of one collector.
        test_envs_factory: of the test environments, in the learner's process. None uses one copy of the training
            environments.
        num_collectors: number of collector processes; None for 1, or for none with gradient workers.
        num_gradient_workers: number of processes that compute gradients, each from experience that it collects in its
            own environments into its own storage; 0 computes gradients in the learner's process.
        communication: of collectors, or of gradient workers: "synchronous" or "asynchronous".
        slice_steps: steps that a collector makes at a time, with the same weights. None uses a whole rollout, or the
            steps between two update phases. Longer slices have less overhead per transition.
        preemption: share of the synchronous gradient workers that must finish collecting; the others are then stopped,
            with shorter rollouts (Wijmans et al., "DD-PPO", arXiv 1911.00357, section 3). 1 waits for all; with less,
            runs are not reproducible.
        slices_at_once: number of slices that asynchronous collectors insert together, along the environment axis of the
            storage: a rollout consists of the first slices to arrive.
        explorers: one for each collector or gradient worker; None uses the algorithm's explorer for all.
        resources: requirements of each "collector", "gradient_worker" and "replay_shard": "num_cpus", "num_gpus",
            "memory" in bytes, or custom resources of the cluster by name.
        address: of the cluster, "auto" for the one that this machine is part of. None uses the environment variable
            ``RAY_ADDRESS``, else starts Ray on this machine alone. An existing connection is used.
        worker_device: device of the networks of collectors and gradient workers.
        num_replay_shards: number of processes among which the main storage is divided, and that make batches for the
            learner (:class:`ShardedReplay`); 0 keeps it in the learner's process. With shards, runs are not
            reproducible, as updates depend on the speed of the shards.
        initial_priorities: collectors compute initial TD errors for a prioritised storage with their own networks
            (Horgan et al., "Ape-X", arXiv 1803.00933, section 3), instead of its ``default_error``.
        **settings: see :class:`Scheme`.

    Raises:
        CompositionError: the parts are incompatible with each other, or with the workers.
        ImportError: Ray is not installed.
        RuntimeError: the cluster has not enough resources.
        ValueError: a number is outside its range.
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
            num_collectors=num_collectors,
            num_gradient_workers=num_gradient_workers,
            communication=communication,
            slice_steps=slice_steps,
            slices_at_once=slices_at_once,
            preemption=preemption,
            explorers=None if explorers is None else tuple(explorers),
            worker_device=worker_device,
            num_replay_shards=num_replay_shards,
            initial_priorities=initial_priorities,
        )
        self._resources = checked_resources(resources)
        if find_spec("ray") is None:
            raise ImportError(f"RayScheme needs the package ray: {install_command('ray')}, or ray alone")
        self._plan, self._address = plan, address
        self._given = algo_factory, actor_factory, storage_factory, train_envs_factory
        refuse_collection("RayScheme", settings)
        self._given_sources = dict(settings.get("sources") or {})
        self._phases = 0
        """Number of update phases made."""
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
        # Without the address: a run folder may be from an untrusted source, and clusters run the code they are sent.
        self.config["resources"] = self._resources

    def make_envs(self, factory: Factory[VecEnv]) -> VecEnv:
        """Make one copy for its spaces; workers make their own environments."""
        one = one_copy(factory)()
        of_worker = int(factory.hyper_parameters.get("num_envs", one.num_envs))
        return cast("VecEnv", CollectorEnvs(one, of_worker * self._plan.num_side_by_side))

    def make_storage(self, name: str, factory: Factory[Storage], envs: Any) -> Storage:
        """Make a source's storage, or the shards of the main one."""
        plan = self._plan
        if name != "main" or not plan.num_replay_shards:
            return super().make_storage(name, factory, envs)
        from pytorchrl.scheme.distributed.ray_shards import RayShards, StorageMaker

        self._connect()
        maker = StorageMaker(factory, self.algorithm.gamma, envs.num_envs, envs.stacked_frames)
        shards = RayShards(maker, plan.num_replay_shards, self._resources["replay_shard"])
        # Shards have all methods that algorithms call on a source of replayed transitions.
        return cast("Storage", ShardedReplay(shards, self.device, self.algorithm))

    def make_collector(self, envs: VecEnv, normalize_rewards: Literal["returns", "rewards"] | None) -> Collecting:
        """Start the workers."""
        plan, of_worker = self._plan, self._resources[self._plan.kind]
        slice_steps = plan.slice_steps or self._default_slice_steps(envs.num_envs)
        self._check_slices(slice_steps)
        self._connect()
        algo_factory, actor_factory, storage_factory, envs_factory = self._given
        if plan.num_gradient_workers:
            gradient_blueprint = GradientBlueprint(
                algo_factory=algo_factory,
                actor_factory=actor_factory,
                storage_factory=storage_factory,
                envs_factory=envs_factory,
                sources=self._given_sources,
                plan=plan,
                normalize_rewards=normalize_rewards,
                run_seed=self.run_seed,
            )
            self._remote = RemoteGradients(
                make_gradient_workers(gradient_blueprint, of_worker),
                plan.communication,
                self.algorithm,
                self.storages,
                plan.preemption,
            )
            return self._remote
        blueprint = CollectorBlueprint(
            algo_factory=algo_factory,
            actor_factory=actor_factory,
            envs_factory=envs_factory,
            plan=plan,
            normalize_rewards=normalize_rewards,
            run_seed=self.run_seed,
            slice_steps=slice_steps,
            allow_nonfinite=storage_factory.hyper_parameters.get("allow_nonfinite", False),
            info_keys=getattr(self.storage, "info_keys", ()),
            priorities_of=storage_factory if plan.initial_priorities else None,
        )
        self._remote = RemoteCollectors(
            make_collectors(blueprint, of_worker),
            plan.communication,
            plan.slices_at_once,
            self.algorithm,
            self.storage,
            lambda: self._phases,
        )
        return self._remote

    @property
    def workers_replaced(self) -> int:
        """Number of workers that died and were replaced."""
        return 0 if self._remote is None else self._remote.workers.replaced

    def ask_worker(self, worker: int, question: Callable[[Any], T]) -> T:
        """Call a function with a collector or gradient worker in its process, for tests and measurements.

        Raises:
            RuntimeError: the scheme is closed.
        """
        if self._remote is None:
            raise RuntimeError("RayScheme: the scheme is closed, and its workers have ended; make a new one")
        return self._remote.workers.ask(worker, question)

    def collect(self, until: int, stopped: Callable[[], bool] = lambda: False) -> tuple[list[Episode], int]:
        """Collect as :meth:`Scheme.collect` does; where ``stopped`` returns true, no worker that dies is replaced."""
        if self._remote is not None:
            self._remote.workers.is_stopping = stopped
        try:
            return super().collect(until, stopped)
        except WorkerLostError:
            return [], 0

    def update(self, measured: bool = False) -> Iterator[Metrics]:
        """Run one update phase; yields the metrics of each update, from the algorithm, the storages and the workers.

        Args:
            measured: as of :meth:`Scheme.update`; gradient workers add nothing.
        """
        said: Metrics = {"train/workers_replaced": self.workers_replaced}
        if isinstance(self._remote, RemoteGradients):
            updates = self._remote.update()
        else:
            updates = super().update(measured)
            if self._remote is not None and (lags := self._remote.take_policy_lags()):
                said["train/policy_lag"] = sum(lags) / len(lags)
        # A phase of gradient workers ends early where the run is to stop, and one has died.
        with suppress(WorkerLostError):
            for info in updates:
                yield info | said
        self._phases += 1

    def state_dict(self) -> dict[str, Any]:
        """Return the state from which the run resumes, collectors' running episodes included."""
        return super().state_dict() | {"phases": self._phases}

    def load_state_dict(self, state: dict[str, Any]) -> list[int]:
        """Restore the state returned by `state_dict`; returns the environments whose running episodes are lost."""
        self._phases = state["phases"]
        return super().load_state_dict(state)

    def close(self) -> None:
        """Stop the workers, and Ray where it was started here; close environments and storages."""
        try:
            # Shards must be closed while the cluster is connected.
            super().close()
        finally:
            self._leave()

    def phases_due(self, before: int, episodes_before: int) -> int:
        """Return how many update phases are due: by the algorithm's plan, or one with gradient workers."""
        return 1 if self._plan.num_gradient_workers else super().phases_due(before, episodes_before)

    def explain_wait(self) -> Wait:
        """Return why no update phase is due; of gradient workers, only that they have sent no gradients."""
        plan = self._plan
        if plan.num_gradient_workers:
            return Wait(
                f"{plan.num_gradient_workers} gradient workers collect by {self.algorithm.plan} of their own steps; "
                f"why one of them has sent no gradients is not known here.",
                "the gradients of the next worker" if not plan.is_synchronous else "the gradients of all workers",
            )
        reason, waits_for = super().explain_wait()
        return Wait(reason, f"{waits_for}, which come in slices from {plan.num_workers} collectors")

    def _default_slice_steps(self, num_envs: int) -> int:
        update_plan = self.algorithm.plan
        if self.storage.on_policy:
            return self.storage.capacity // num_envs
        return max(1, update_plan.number // num_envs) if isinstance(update_plan, EveryTransitions) else 1

    def _check_slices(self, slice_steps: int) -> None:
        if self._plan.num_gradient_workers:
            return
        if self.storage.on_policy and self.storage.size is not None and self.storage.size % slice_steps:
            raise CompositionError(
                f"RayScheme: a rollout of {self.storage.size} steps does not divide into slices of {slice_steps}; "
                f"choose a slice_steps that divides it"
            )

    def _connect(self) -> None:
        """Connect to the cluster, or start one, unless already connected."""
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
