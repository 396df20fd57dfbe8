"""The kind and number of a run's workers, and how they communicate."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.agent.algorithms.policy_gradient.ppo import PPO
from pytorchrl.agent.explorers import Explorer
from pytorchrl.scheme.compatibility import CompositionError
from storages.component.factory import Factory
from storages.component.setting import plain
from storages.sharded import factory_of_shard
from storages.storage import Storage

Communication: TypeAlias = Literal["synchronous", "asynchronous"]


@dataclass(frozen=True)
class WorkPlan:
    """The arguments of :class:`RayScheme` that define the workers.

    Raises:
        CompositionError: two arguments exclude each other.
        ValueError: an argument is outside its range.
    """

    num_collectors: int | None
    num_gradient_workers: int
    communication: Communication
    slice_steps: int | None
    slices_at_once: int
    preemption: float
    explorers: tuple[Explorer, ...] | None
    worker_device: str
    num_replay_shards: int
    initial_priorities: bool

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            count = getattr(self, name)
            if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < least):
                raise ValueError(f"RayScheme: {name} must be an int from {least}, got {count!r}")
        if self.communication not in ("synchronous", "asynchronous"):
            raise ValueError(
                f'RayScheme: communication must be "synchronous" or "asynchronous", got {self.communication!r}'
            )
        if not 0 < self.preemption <= 1:
            raise ValueError(f"RayScheme: preemption must lie in (0, 1], got {self.preemption!r}")
        if self.num_gradient_workers and (self.num_collectors or self.slice_steps):
            raise CompositionError(
                "RayScheme: gradient workers collect for themselves, a phase at a time; leave out num_collectors and "
                "slice_steps"
            )
        if self.preemption < 1 and not (self.num_gradient_workers and self.is_synchronous):
            raise CompositionError(
                "RayScheme: preemption interrupts synchronous gradient workers, and there are none; give it "
                "num_gradient_workers, or leave out preemption"
            )
        if self.num_gradient_workers and (self.num_replay_shards or self.initial_priorities):
            raise CompositionError(
                "RayScheme: gradient workers have storages of their own; leave out num_replay_shards and "
                "initial_priorities, or take collectors"
            )
        if self.explorers is not None and len(self.explorers) != self.num_workers:
            raise CompositionError(
                f"RayScheme: {self.num_workers} processes collect, and there are {len(self.explorers)} explorers; give "
                f"one for each"
            )

    @property
    def is_synchronous(self) -> bool:
        """Whether workers are synchronous."""
        return self.communication == "synchronous"

    @property
    def num_workers(self) -> int:
        """Number of worker processes."""
        return self.num_gradient_workers or self.num_collectors or 1

    @property
    def kind(self) -> str:
        """The kind of the workers: a key of ``resources``."""
        return "gradient_worker" if self.num_gradient_workers else "collector"

    @property
    def num_side_by_side(self) -> int:
        """Number of workers whose environments are joined along the environment axis of the learner's storage."""
        if self.num_gradient_workers:
            return 1
        return self.num_workers if self.is_synchronous else self.slices_at_once

    @property
    def config(self) -> dict[str, Any]:
        """The arguments as plain data."""
        return {name: plain(value) for name, value in (asdict(self) | {"explorers": self.explorers}).items()}

    def check_parts(self, algorithm: Factory[Algorithm], actor: Factory[Any], storage: Factory[Storage]) -> None:
        """Check that the parts support such workers.

        Raises:
            CompositionError: the message names the part and a way out.
        """
        if self.explorers is not None and "explorer" not in algorithm.hyper_parameters:
            raise CompositionError(f"RayScheme: {algorithm.name} takes no explorer; leave out explorers")
        if self.preemption < 1 and storage.hyper_parameters.get("sequence_length") is not None:
            raise CompositionError(
                f"RayScheme: a rollout that preemption interrupts does not divide into the sequences of "
                f"{storage.name}; give it sequence_length=None, or leave out preemption"
            )
        if self.num_gradient_workers:
            _check_gradients(algorithm, storage)
            return
        _check_slices(storage, self.is_synchronous)
        if self.num_replay_shards:
            _check_shards(algorithm, storage, self.num_replay_shards)
        if self.initial_priorities and storage.hyper_parameters.get("alpha", 0) == 0:
            raise CompositionError(
                f"RayScheme: initial_priorities needs a prioritized storage, which {storage.name} is not; take "
                f"PERBuffer with alpha above 0, or leave it out"
            )


_LEAST = {
    "num_collectors": 1,
    "num_gradient_workers": 0,
    "slice_steps": 1,
    "slices_at_once": 1,
    "num_replay_shards": 0,
}


def checked_resources(given: Mapping[str, Mapping[str, float]] | None) -> dict[str, dict[str, float]]:
    """Return the cluster resources that a worker of each kind requires.

    Raises:
        ValueError: a kind is unknown.
    """
    resources = {kind: {"num_cpus": 1.0} for kind in ("collector", "gradient_worker", "replay_shard")}
    for kind, amounts in (given or {}).items():
        if kind not in resources:
            raise ValueError(f"RayScheme: keys of resources are {', '.join(map(repr, resources))}, got {kind!r}")
        resources[kind] = {name: float(amount) for name, amount in amounts.items()}
    return resources


def _check_slices(storage: Factory[Storage], is_synchronous: bool) -> None:
    if storage.hyper_parameters.get("rate_limit") is not None:
        raise CompositionError(
            f"RayScheme: {storage.name} applies its rate_limit step by step, but collectors insert slices of many; "
            f"leave it out, and set the update frequency by the algorithm's hyper-parameters"
        )
    if not is_synchronous and storage.cls.on_policy and not storage.cls.needs_log_probs:
        raise CompositionError(
            f"RayScheme: asynchronous collectors deliver steps of older policies, for which {storage.name} does not "
            f'correct; VTraceBuffer does, or communication="synchronous"'
        )


def _check_shards(algorithm: Factory[Algorithm], storage: Factory[Storage], number: int) -> None:
    if any(needs.segments for needs in algorithm.cls.sources.values()):
        raise CompositionError(
            f"RayScheme: {algorithm.name} learns from the newest steps, which no replay shard has; leave out "
            f"num_replay_shards"
        )
    try:
        factory_of_shard(storage, 0, number)
    except ValueError as error:
        raise CompositionError(f"RayScheme: num_replay_shards={number}: {error}") from error


def _check_gradients(algorithm: Factory[Algorithm], storage: Factory[Storage]) -> None:
    cls = algorithm.cls
    is_plain = cls.update is Algorithm.update and cls.update_phase in (Algorithm.update_phase, PPO.update_phase)
    if not is_plain or algorithm.hyper_parameters.get("desired_kl") is not None:
        what = "adapts its learning rate to desired_kl" if is_plain else "does more in an update than apply gradients"
        raise CompositionError(
            f"RayScheme: {algorithm.name} {what}, which gradient workers do not support; let the learner's process "
            f"compute the gradients: num_gradient_workers=0"
        )
    if storage.hyper_parameters.get("directory") is not None:
        raise CompositionError(
            f"RayScheme: each gradient worker has a storage of its own, and they cannot share the directory of "
            f"{storage.name}; leave it out, or take collectors"
        )


class WorkerDiedError(RuntimeError):
    """Raised when a worker cannot be made, or dies repeatedly without a result."""


class WorkerLostError(WorkerDiedError):
    """Raised when a worker dies while the run is to stop, and is not replaced before it continues."""
