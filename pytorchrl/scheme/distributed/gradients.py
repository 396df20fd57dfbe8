"""The learner's side of the gradient workers."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.agent.algorithms.results import Metrics
from pytorchrl.scheme.collector import Episode
from pytorchrl.scheme.distributed.collection_worker import RunState
from pytorchrl.scheme.distributed.gradient_worker import (
    Experience,
    GradientBlueprint,
    Gradients,
    GradientWorker,
    change_statistics,
    mean_of,
    shared_state,
    tensors_of,
)
from pytorchrl.scheme.distributed.plan import Communication
from storages.storage import Storage

if TYPE_CHECKING:
    from pytorchrl.scheme.distributed.workers import Workers


class RemoteGradients:
    """Receives gradients from workers, each of which collects for itself, and applies them.

    Synchronous workers compute gradients of their batches with the same weights, and the mean is applied: runs are
    reproducible. Gradients of asynchronous workers are applied in the order in which they arrive; a worker then gets
    new weights.

    Args:
        workers: the gradient workers.
        communication: whether workers are synchronous.
        algorithm: its weights are updated, and its changed hyper-parameters are those of the workers' algorithms.
        storages: by the name of the source; their changed hyper-parameters are those of the workers' storages.
        preemption: share of the synchronous workers that must finish collecting; the others are then stopped. 1 waits
            for all.
    """

    def __init__(
        self,
        workers: "Workers",
        communication: Communication,
        algorithm: Algorithm,
        storages: Mapping[str, Storage],
        preemption: float = 1.0,
    ) -> None:
        self.steps, self.episodes = 0, 0
        self.workers = workers
        self._is_synchronous = communication == "synchronous"
        self._algorithm = algorithm
        self._storages = storages
        self._is_on_policy = storages["main"].on_policy
        self._preemption = preemption
        self._target_steps = 1
        self._ready: deque[Gradients] = deque()
        """Gradients received and not applied yet."""
        self._sent: tuple[int, Any] | None = None
        self._shaped_returns: list[float] = []

    def step(self) -> list[Episode]:
        """Let all workers collect for an update phase, or wait for the next gradients; returns finished episodes."""
        if self._is_synchronous:
            # A callback may have changed the weights without a new version.
            self._sent = None
            requests = [(self._run_state(), self._newest())] * len(self.workers)
            enough = max(1, round(self._preemption * len(self.workers)))
            found: Sequence[Experience] = self.workers.all_of("collect", requests, enough, ("stop", self._version))
            return [episode for one in found for episode in self._add(one)]
        self._start_the_idle()
        while not self._ready:
            done = self.workers.next_done()
            if done.died:
                self._start(done.worker)
            else:
                self._ready.append(done.value)
        return self._add(self._ready[0].experience)

    def update(self) -> Iterator[Metrics]:
        """Apply gradients; yields the metrics of each optimiser step, from the workers and their storages."""
        if not self._is_synchronous:
            gradients = self._ready.popleft()
            lag = self._version - gradients.version
            self._apply([gradients])
            self._use_newest_statistics()
            self._start(gradients.worker)
            yield {**gradients.metrics, "train/policy_lag": lag}
            return
        while True:
            requests = [(self._run_state(), self._newest())] * len(self.workers)
            found = [one for one in self.workers.all_of("next_gradients", requests) if one is not None]
            if not found:
                self._use_newest_statistics()
                return
            self._apply(found)
            yield mean_of([one.metrics for one in found])

    def take_shaped_returns(self) -> list[float]:
        """Return the episode returns in stored rewards since the last call; [] if rewards are unchanged."""
        taken, self._shaped_returns = self._shaped_returns, []
        return taken

    def set_target(self, target_steps: int) -> None:
        """Set the length of the explorers' schedules, in environment transitions of the run."""
        self._target_steps = target_steps

    def state_dict(self) -> dict[str, Any]:
        """Return the state that determines the next gradients, including gradients not applied yet."""
        for result in self.workers.finish():
            if not self._is_synchronous:
                self._ready.append(result)
            elif isinstance(result, Experience):
                # Where another worker failed: its transitions stay in its storage, for the next update.
                self._add(result)
        return {
            "steps": self.steps,
            "episodes": self.episodes,
            "workers": self.workers.states(),
            "ready": [_saved(one) for one in self._ready],
            "shaped_returns": list(self._shaped_returns),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> list[int]:
        """Restore the state returned by `state_dict`; returns the environments whose running episodes are lost."""
        self.steps, self.episodes = state["steps"], state["episodes"]
        self._ready = deque(map(_restored, state["ready"]))
        self._shaped_returns = list(state["shaped_returns"])
        self._sent = None
        saved = state["workers"]
        if len(saved) != len(self.workers):
            raise ValueError(f"the state is of {len(saved)} gradient workers, there are {len(self.workers)}")
        every = range(self._storages["main"].num_envs)
        return [env for envs in self.workers.load(saved, self.steps) for env in (every if envs is None else envs)]

    @property
    def _version(self) -> int:
        return self._algorithm.updates

    def _add(self, experience: Experience) -> list[Episode]:
        self.steps += experience.steps
        self.episodes += experience.episodes_ended
        self._shaped_returns += experience.shaped_returns
        normalization = self._algorithm.actor.normalization
        if normalization is not None and experience.observed:
            normalization.add_moments(experience.observed)
            self._sent = None
            if not self._is_on_policy:
                # On-policy updates need the statistics with which the rollout was collected; replay can use the newest.
                normalization.use_newest()
        return list(experience.episodes)

    def _use_newest_statistics(self) -> None:
        if self._algorithm.actor.normalization is not None:
            self._algorithm.actor.normalization.use_newest()

    def _apply(self, gradients: Sequence[Gradients]) -> None:
        """Make an optimiser step with each parameter's mean gradient over the workers that have one."""
        names = dict.fromkeys(name for one in gradients for name in one.of)
        mean = {name: np.mean([one.of[name] for one in gradients if name in one.of], axis=0) for name in names}
        change_statistics(self._algorithm.actor, [one.statistics for one in gradients])
        self._algorithm.apply_gradients(tensors_of(mean))

    def _start_the_idle(self) -> None:
        waiting = {one.worker for one in self._ready}
        for worker in self.workers.idle:
            if worker not in waiting:
                self._start(worker)

    def _start(self, worker: int) -> None:
        self.workers.start(worker, "compute", self._run_state(), self._newest())

    def _run_state(self) -> RunState:
        changes = {name: storage.changed_parameters for name, storage in self._storages.items()}
        return RunState(self._version, self.steps, self._target_steps, self._algorithm.changed_parameters, changes)

    def _newest(self) -> Any:
        """Return a reference to the newest shared state in the object store."""
        from pytorchrl.scheme.distributed.workers import put

        if self._sent is None or self._sent[0] != self._version:
            self._sent = self._version, put(shared_state(self._algorithm))
        return self._sent[1]


def make_gradient_workers(blueprint: GradientBlueprint, resources: Mapping[str, float]) -> "Workers":
    """Start the gradient workers of a run."""
    from pytorchrl.scheme.distributed.workers import Workers

    return Workers(
        "gradient worker",
        GradientWorker,
        lambda worker, generation: (blueprint, worker, generation),
        blueprint.plan.num_workers,
        resources,
        # The second thread runs `stop` while the first collects.
        threads=2 if blueprint.plan.preemption < 1 else 1,
    )


def _saved(gradients: Gradients) -> dict[str, Any]:
    episodes = [episode.state_dict() for episode in gradients.experience.episodes]
    return gradients._asdict() | {
        "of": tensors_of(gradients.of),
        "statistics": tensors_of(gradients.statistics),
        "metrics": dict(gradients.metrics),
        "experience": gradients.experience._asdict() | {"episodes": episodes},
    }


def _restored(state: Mapping[str, Any]) -> Gradients:
    arrays = {name: tensor.numpy() for name, tensor in state["of"].items()}
    statistics = {name: tensor.numpy() for name, tensor in state.get("statistics", {}).items()}
    experience = dict(state["experience"])
    experience["episodes"] = [Episode(*episode) for episode in experience["episodes"]]
    return Gradients(
        **{**state, "of": arrays, "statistics": statistics, "experience": Experience(**experience)},
    )
