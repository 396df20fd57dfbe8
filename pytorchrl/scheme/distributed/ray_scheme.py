"""A scheme whose work is done by several processes, on one machine or many, with Ray."""

from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, Literal, TypedDict, Unpack, cast

import torch

from pytorchrl.agent.actors.actor import Actor
from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.agent.algorithms.results import Metrics
from pytorchrl.agent.algorithms.update_plan import EveryTransitions
from pytorchrl.agent.envs.vec_env import VecEnv, one_copy
from pytorchrl.agent.explorers import Explorer
from pytorchrl.scheme.collector import Collecting
from pytorchrl.scheme.distributed.blueprint import Blueprint
from pytorchrl.scheme.distributed.collectors import Communication, EnvsOfCollectors, RemoteCollectors, make_workers
from pytorchrl.scheme.fitting import CompositionError
from pytorchrl.scheme.scheme import Scheme
from storages.component.factory import Factory
from storages.component.setting import plain
from storages.off_policy.mixed_storage import MixedSource
from storages.storage import Storage


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

    Each collector has the environments of ``train_envs_factory``, an explorer and random numbers of its own. The
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
        num_collectors: processes that collect.
        communication: "synchronous" or "asynchronous" collectors.
        slice_steps: steps that a collector makes at a time, with the same weights. None takes a whole rollout, or the
            steps between two update phases. More of them cost less for each transition.
        slices_at_once: slices of asynchronous collectors that lie side by side in the storage: a rollout is made of so
            many, of whichever collectors come first.
        explorers: one for each collector; None leaves all that of the algorithm.
        resources: what each "collector" takes of the cluster: "num_cpus", "num_gpus", "memory" in bytes, or the
            cluster's own resources by name.
        address: of the cluster, "auto" for the one that this machine is part of. None takes the environment's
            ``RAY_ADDRESS``, else starts Ray on this machine alone. A connection that is there already is used.
        collector_device: where the networks of collectors live.
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
        num_collectors: int = 1,
        communication: Communication = "synchronous",
        slice_steps: int | None = None,
        slices_at_once: int = 1,
        explorers: Sequence[Explorer] | None = None,
        resources: Mapping[str, Mapping[str, float]] | None = None,
        address: str | None = None,
        collector_device: str = "cpu",
        **settings: Unpack[SchemeSettings],
    ) -> None:
        counts = {"num_collectors": num_collectors, "slice_steps": slice_steps, "slices_at_once": slices_at_once}
        for name, count in counts.items():
            if count is not None and (not isinstance(count, int) or count < 1):
                raise ValueError(f"RayScheme: {name} must be an int from 1, got {count!r}")
        if communication not in ("synchronous", "asynchronous"):
            raise ValueError(f'RayScheme: communication must be "synchronous" or "asynchronous", got {communication!r}')
        _check_explorers(explorers, num_collectors, algo_factory)
        _check_storage(storage_factory, communication)
        if find_spec("ray") is None:
            raise ImportError('RayScheme needs the package ray: pip install ".[ray]", or ray alone')
        self._resources = {"collector": {"num_cpus": 1.0}} | {
            kind: dict(given) for kind, given in (resources or {}).items()
        }
        if unknown := self._resources.keys() - {"collector"}:
            raise ValueError(f'RayScheme: resources are of "collector", got {", ".join(sorted(unknown))}')
        self._num_collectors, self._communication = num_collectors, communication
        self._slice_steps, self._slices_at_once = slice_steps, slices_at_once
        self._explorers, self._address, self._collector_device = explorers, address, collector_device
        self._phases = 0
        """Update phases made."""
        self._was_connected_here = False
        self._remote: RemoteCollectors | None = None
        self._algo_factory, self._actor_factory = algo_factory, actor_factory
        self._train_envs_factory = train_envs_factory
        try:
            super().__init__(
                algo_factory, actor_factory, storage_factory, train_envs_factory, test_envs_factory, **settings
            )
        except BaseException:
            self._leave()
            raise
        self.config["distributed"] = {
            "num_collectors": num_collectors,
            "communication": communication,
            "slice_steps": slice_steps,
            "slices_at_once": slices_at_once,
            "explorers": plain(explorers),
            "collector_device": collector_device,
        }
        # Not the address: a run folder may come from somebody else, and a cluster runs what it is sent.
        self.config["resources"] = self._resources

    def make_envs(self, factory: Factory[VecEnv]) -> VecEnv:
        """Make one copy, which tells the spaces; the collectors make theirs."""
        one = one_copy(factory)()
        of_collector = int(factory.hyper_parameters.get("num_envs", one.num_envs))
        return cast("VecEnv", EnvsOfCollectors(one, of_collector * self._num_side_by_side))

    def make_collector(self, envs: VecEnv, normalize_rewards: Literal["returns", "rewards"] | None) -> Collecting:
        """Start the collectors."""
        from pytorchrl.scheme.distributed.workers import connect

        blueprint = Blueprint(
            self._algo_factory,
            self._actor_factory,
            self._train_envs_factory,
            self._explorers,
            normalize_rewards,
            self._collector_device,
            self.run_seed,
            self._num_collectors,
            self._slice_steps or self._default_slice_steps(envs.num_envs),
            self.storage.allow_nonfinite,
            getattr(self.storage, "info_keys", ()),
        )
        self._check_slices(blueprint.slice_steps)
        of_collector = self._resources["collector"]
        needed = {name: amount * self._num_collectors for name, amount in of_collector.items()}
        self._was_connected_here = connect(self._address, needed)
        self._remote = RemoteCollectors(
            make_workers(blueprint, of_collector),
            self._communication,
            self._slices_at_once,
            self.algorithm,
            self.storage,
            lambda: self._phases,
        )
        return self._remote

    @property
    def workers_replaced(self) -> int:
        """How many collectors died and were replaced."""
        return 0 if self._remote is None else self._remote.workers.replaced

    def update(self) -> Iterator[Metrics]:
        """Go through one update phase; yields what each update, the storages and the collectors say of it."""
        of_collectors: Metrics = {"train/workers_replaced": self.workers_replaced}
        if self._remote is not None and (lags := self._remote.take_policy_lags()):
            of_collectors["train/policy_lag"] = sum(lags) / len(lags)
        for info in super().update():
            yield info | of_collectors
        self._phases += 1

    def state_dict(self) -> dict[str, Any]:
        """Everything that the run goes on from, the running episodes of collectors too, as tensors and plain data."""
        return super().state_dict() | {"phases": self._phases}

    def load_state_dict(self, state: dict[str, Any]) -> list[int]:
        """Restore the state returned by `state_dict`; returns the environments whose running episodes are lost."""
        self._phases = state["phases"]
        return super().load_state_dict(state)

    def close(self) -> None:
        """End the collectors, and Ray where it was started here; close environments and storages."""
        self._leave()
        super().close()

    @property
    def _num_side_by_side(self) -> int:
        return self._num_collectors if self._communication == "synchronous" else self._slices_at_once

    def _default_slice_steps(self, num_envs: int) -> int:
        plan = self.algorithm.plan
        if self.storage.on_policy:
            return self.storage.capacity // num_envs
        return max(1, plan.number // num_envs) if isinstance(plan, EveryTransitions) else 1

    def _check_slices(self, slice_steps: int) -> None:
        if self.storage.on_policy and self.storage.size is not None and self.storage.size % slice_steps:
            raise CompositionError(
                f"RayScheme: a rollout of {self.storage.size} steps is not made of slices of {slice_steps}; choose a "
                f"slice_steps that divides it"
            )

    def _leave(self) -> None:
        if self._remote is not None:
            self._remote.workers.close()
            self._remote = None
        if self._was_connected_here:
            from pytorchrl.scheme.distributed.workers import disconnect

            disconnect()
            self._was_connected_here = False


def _check_explorers(explorers: Sequence[Explorer] | None, num_collectors: int, algorithm: Factory[Algorithm]) -> None:
    if explorers is None:
        return
    if len(explorers) != num_collectors:
        raise CompositionError(
            f"RayScheme: there are {num_collectors} collectors, and {len(explorers)} explorers; give one for each"
        )
    if "explorer" not in algorithm.hyper_parameters:
        raise CompositionError(f"RayScheme: {algorithm.name} takes no explorer; leave out explorers")


def _check_storage(storage: Factory[Storage], communication: Communication) -> None:
    if storage.hyper_parameters.get("rate_limit") is not None:
        raise CompositionError(
            f"RayScheme: {storage.name} counts insertions step by step for its rate_limit, and slices have many; leave "
            f"it out, and say how often to update by the algorithm's hyper-parameters"
        )
    if communication == "asynchronous" and storage.cls.on_policy and not storage.cls.needs_log_probs:
        raise CompositionError(
            f"RayScheme: asynchronous collectors deliver what older policies did, for which {storage.name} does not "
            f'correct; VTraceBuffer does, or communication="synchronous"'
        )
