"""The learner's side of the collector workers."""

from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.agent.envs.vec_env import VecEnv
from pytorchrl.scheme.collector import Episode, to_device
from pytorchrl.scheme.distributed.blueprint import CollectorBlueprint
from pytorchrl.scheme.distributed.collection_worker import CollectionWorker, RunState, weights_to_send
from pytorchrl.scheme.distributed.plan import Communication
from pytorchrl.scheme.distributed.slices import Arrays, Slice, side_by_side, slice_from
from storages.storage import Storage
from storages.transition import OBS, SKIPPED

if TYPE_CHECKING:
    from pytorchrl.scheme.distributed.workers import Workers


class RemoteCollectors:
    """Receives slices from collectors in other processes and inserts them into the storage.

    Synchronous collectors act with the newest weights, all at the same time, and their slices are inserted along the
    environment axis in the order of the collectors: runs are reproducible. Asynchronous collectors run independently,
    and slices are inserted in the order in which they arrive.

    Args:
        workers: the collectors.
        communication: whether collectors are synchronous.
        slices_at_once: number of slices that asynchronous collectors insert together, along the environment axis.
        algorithm: its weights are sent to the collectors.
        storage: gets the transitions.
        version: returns the number of update phases made.
    """

    def __init__(
        self,
        workers: "Workers",
        communication: Communication,
        slices_at_once: int,
        algorithm: Algorithm,
        storage: Storage,
        version: Callable[[], int],
    ) -> None:
        self.steps, self.episodes = 0, 0
        self.workers = workers
        self._is_synchronous = communication == "synchronous"
        self._slices_at_once = len(workers) if self._is_synchronous else slices_at_once
        self._algorithm, self._storage, self._version = algorithm, storage, version
        self._target_steps = 1
        self._ready: deque[Slice] = deque()
        """Slices received and not inserted yet."""
        self._sent: tuple[int, Any] | None = None
        """The version of the newest weights in the object store, and a reference to them."""
        self._shaped_returns: list[float] = []
        self._lags: list[int] = []

    def step(self) -> list[Episode]:
        """Insert a slice of each collector, or the first to arrive; returns the environments' episodes that ended."""
        if self._is_synchronous:
            # A callback may have changed the weights without a new version.
            self._sent = None
            request = (self._run_state(), self._newest_weights())
            self._ready.extend(self.workers.all_of("collect", [request] * len(self.workers)))
        else:
            self._start_the_idle()
            while len(self._ready) < self._slices_at_once:
                done = self.workers.next_done()
                if not done.died:
                    self._ready.append(done.value)
                self._start(done.worker)
        return self._insert([self._ready.popleft() for _ in range(self._slices_at_once)])

    def take_shaped_returns(self) -> list[float]:
        """Return the episode returns in stored rewards since the last call; [] if rewards are unchanged."""
        taken, self._shaped_returns = self._shaped_returns, []
        return taken

    def take_policy_lags(self) -> list[int]:
        """Return the lags, in update phases, of the weights of slices that were inserted since the last call."""
        taken, self._lags = self._lags, []
        return taken

    def set_target(self, target_steps: int) -> None:
        """Set the length of the explorers' schedules, in environment transitions of the run."""
        self._target_steps = target_steps

    def state_dict(self) -> dict[str, Any]:
        """Return the state that determines the next slices, including slices not inserted yet."""
        finished = list(self.workers.finish())
        if not self._is_synchronous:
            # Where a collector failed, the others' slices of the same round have no counterpart, and are dropped: the
            # storage's rows must stay those of the same collectors.
            self._ready.extend(finished)
        return {
            "steps": self.steps,
            "episodes": self.episodes,
            "workers": self.workers.states(),
            "ready": [one.state_dict() for one in self._ready],
            "shaped_returns": list(self._shaped_returns),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> list[int]:
        """Restore the state returned by `state_dict`; returns the environments whose running episodes are lost."""
        self.steps, self.episodes = state["steps"], state["episodes"]
        self._ready = deque(map(slice_from, state["ready"]))
        self._shaped_returns = list(state["shaped_returns"])
        self._sent = None
        saved = state["workers"]
        if len(saved) != len(self.workers):
            raise ValueError(f"the state is of {len(saved)} collectors, there are {len(self.workers)}")
        cut = self.workers.load(saved, self.steps)
        num_envs = self._storage.num_envs // self._slices_at_once
        every = range(num_envs)
        return [worker * num_envs + env for worker, envs in enumerate(cut) for env in (every if envs is None else envs)]

    def _insert(self, slices: list[Slice]) -> list[Episode]:
        data = side_by_side([one.data for one in slices])
        self._storage.insert_data_slice(data)
        self._count(data)
        for one in slices:
            self.steps += one.transitions
            self.episodes += one.episodes_ended
            self._shaped_returns += one.shaped_returns
            self._lags.append(self._version() - one.version)
        return [episode for one in slices for episode in one.episodes]

    def _count(self, data: Arrays) -> None:
        """Update the normalisation statistics of observations, for all collectors."""
        normalization = self._algorithm.actor.normalization
        if normalization is None:
            return
        seen, skipped = data[OBS], data.get(SKIPPED)
        made = None if skipped is None else ~np.asarray(skipped).astype(np.bool_)[..., 0]
        if isinstance(seen, Mapping):
            rows: Any = {name: _concatenated(part, made) for name, part in seen.items()}
        else:
            rows = _concatenated(seen, made)
        normalization.add(to_device(rows, self._algorithm.device))
        if not self._storage.on_policy:
            # On-policy updates need the statistics with which the rollout was collected; replay can use the newest.
            normalization.use_newest()

    def _start_the_idle(self) -> None:
        waiting = {one.worker for one in self._ready}
        for worker in self.workers.idle:
            if worker not in waiting:
                self._start(worker)

    def _start(self, worker: int) -> None:
        self.workers.start(worker, "collect", self._run_state(), self._newest_weights())

    def _run_state(self) -> RunState:
        changes = {"main": self._storage.changed_parameters}
        return RunState(self._version(), self.steps, self._target_steps, self._algorithm.changed_parameters, changes)

    def _newest_weights(self) -> Any:
        """Return a reference to the newest weights in the object store."""
        from pytorchrl.scheme.distributed.workers import put

        if self._sent is None or self._sent[0] != self._version():
            self._sent = self._version(), put(weights_to_send(self._algorithm.get_weights()))
        return self._sent[1]


def make_collectors(blueprint: CollectorBlueprint, resources: Mapping[str, float]) -> "Workers":
    """Start the collectors of a run."""
    from pytorchrl.scheme.distributed.workers import Workers

    return Workers(
        "collector",
        CollectionWorker,
        lambda worker, generation: (blueprint, worker, generation),
        blueprint.plan.num_workers,
        resources,
    )


class CollectorEnvs:
    """The collectors' environments as the learner's process sees them: attributes of a copy.

    Args:
        one: a copy of the environments, which is not stepped.
        num_envs: number of environments in a step of the storage.
    """

    def __init__(self, one: VecEnv, num_envs: int) -> None:
        self._one = one
        self.num_envs = num_envs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._one, name)


def _concatenated(part: NDArray[Any], made: NDArray[np.bool_] | None) -> NDArray[Any]:
    """Return (N, *obs), the observations (steps, E, *obs) of the transitions made; of all where ``made`` is None."""
    return np.array(part).reshape(-1, *part.shape[2:]) if made is None else part[made]
