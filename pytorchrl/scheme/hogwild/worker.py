"""The main function of a process that collects, and updates the shared parameters."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from pytorchrl.agent.algorithms.results import Metrics
from pytorchrl.scheme.collector import Collector, Episode
from pytorchrl.scheme.hogwild.shared_training import SharedTraining
from pytorchrl.scheme.overlap.link import Answer, LearnerGoneError, Made, PipeToLearner
from pytorchrl.scheme.overlap.shared_arrays import SharedArrays
from pytorchrl.scheme.scheme import Scheme
from pytorchrl.scheme.seeds import TRAIN_ENVS, seed_of
from storages.transition import OF_ROWS


@dataclass(frozen=True)
class HogwildParts:
    """The parts of a process."""

    number: int
    processes: int
    make_scheme: Callable[[], Scheme]
    """Makes its environments, actor, algorithm, explorer and storage."""
    memory: SharedArrays
    """Of the training state."""


class Order(NamedTuple):
    """The work of a process before it reports."""

    transitions: int
    """Environment transitions to make."""
    target_steps: int
    """Of the run, for schedules."""
    changes: Mapping[str, Any]
    """Changed hyper-parameters of the learner's algorithm."""
    storage_changes: Mapping[str, Any]
    """Those of its storage."""
    freezing: Mapping[str, bool]
    """Parameters that were frozen, or made to learn again, since the learner's algorithm was built."""


class Report(NamedTuple):
    """The results of a process; the parameters are updated already."""

    steps: int
    """Environment transitions."""
    episodes: list[Episode]
    episodes_ended: int
    shaped_returns: list[float]
    metrics: list[Metrics]
    """Of each update."""


def serve(link: PipeToLearner, parts: HogwildParts) -> None:
    """Make a scheme, and follow the learner's commands until it stops the process or has ended."""
    with suppress(LearnerGoneError):
        try:
            scheme = parts.make_scheme()
        except Exception as error:  # raised again in the learner's process
            link.send_error(error)
            return
        try:
            link.send(Made({}))
            _follow_commands(link, HogwildWorker(parts, scheme))
        finally:
            scheme.close()


def _follow_commands(link: PipeToLearner, worker: "HogwildWorker") -> None:
    while (command := link.receive()) is not None:
        name, argument = command
        try:
            link.send(Answer(getattr(worker, name)(argument)))
        except LearnerGoneError:
            raise
        except Exception as error:  # raised again in the learner's process
            link.send_error(error)


class HogwildWorker:
    """Collects steps with its own copy of the networks, and applies gradients to the shared parameters.

    Mnih et al., "Asynchronous Methods for Deep Reinforcement Learning" (arXiv 1602.01783), algorithms S2 and S3: the
    copy is renewed before each rollout, so that one policy acts in all of it, and its gradient is that policy's. With
    replay it is renewed before the steps between two update phases, and before each batch but the first.

    Args:
        parts: what the process is made from.
        scheme: its environments, storage and own copy of the algorithm.
    """

    def __init__(self, parts: HogwildParts, scheme: Scheme) -> None:
        self._number, self._memory, self._scheme = parts.number, parts.memory, scheme
        self._own, self._updated = scheme.algorithm, scheme.make_algorithm()
        self._shared = SharedTraining(self._updated, parts.processes)
        collector, num_envs = self._collector, self._num_envs
        collector.explore_among(parts.processes * num_envs, parts.number * num_envs)
        self._due = 0
        """Number of update phases that are due."""
        self._copied_at = 0
        """Number of updates of all processes when the parameters were copied."""

    def begin(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Map the shared memory, and load the learner's weights, including those that are not trained."""
        self._shared.map(self._memory)
        self._own.set_weights(weights)

    def work(self, order: Order) -> Report:
        """Collect a number of transitions, and update the shared parameters when it is due."""
        scheme, collector = self._scheme, self._collector
        self._follow(order)
        episodes: list[Episode] = []
        metrics: list[Metrics] = []
        first, ended_before = scheme.steps, collector.episodes
        until = first + order.transitions
        while self._due or scheme.steps < until:
            if not self._due:
                episodes += self._collect(until)
            while self._due:
                self._set_progress(order.target_steps)
                self._update(metrics)
        return Report(
            scheme.steps - first,
            episodes,
            collector.episodes - ended_before,
            scheme.take_shaped_returns(),
            metrics,
        )

    def state(self, _: None) -> dict[str, Any]:
        """Return the process's state as tensors and plain data, without the shared one."""
        saved = self._scheme.state_dict() | {"algorithm": self._own.random_state()}
        return {"scheme": saved, "due": self._due}

    def load(self, state: Mapping[str, Any]) -> list[int]:
        """Restore the state returned by :meth:`state`; returns the environments whose running episodes are lost."""
        self._copy()
        generators = {"generators": state["scheme"]["algorithm"]}
        self._due = state["due"]
        return self._scheme.load_state_dict(state["scheme"] | {"algorithm": self._own.state_dict() | generators})

    def restart(self, steps: int) -> list[int]:
        """Begin new episodes after the state was lost, at a number of the run's steps; returns the lost episodes'."""
        self._collector.seed(seed_of(self._scheme.run_seed, TRAIN_ENVS, self._number, steps, 1))
        self._collector.reset(seed_of(self._scheme.run_seed, TRAIN_ENVS, self._number, steps))
        return list(range(self._num_envs))

    @property
    def _collector(self) -> Collector:
        collector = self._scheme.collector
        assert isinstance(collector, Collector)
        return collector

    @property
    def _num_envs(self) -> int:
        assert self._scheme.envs is not None
        return self._scheme.envs.num_envs

    def _follow(self, order: Order) -> None:
        for algorithm in (self._own, self._updated):
            algorithm.take_changes(order.changes)
            algorithm.training.freeze_as(order.freezing)
        self._scheme.storage.take_changes(order.storage_changes)
        self._set_progress(order.target_steps)

    def _set_progress(self, target_steps: int) -> None:
        steps = int(self._shared.steps.sum())
        self._scheme.set_progress(steps, target_steps)
        self._updated.set_progress(steps, target_steps)

    def _collect(self, until: int) -> list[Episode]:
        scheme, counted = self._scheme, self._shared.steps
        if not (scheme.storage.on_policy and len(scheme.storage)):
            self._copy()
        before = scheme.steps
        self._collector.steps_elsewhere = int(counted.sum()) - before
        try:
            episodes, self._due = scheme.collect(until)
        finally:
            counted[self._number] += scheme.steps - before
        return episodes

    def _update(self, metrics: list[Metrics]) -> None:
        """Compute the gradients of an update phase with the own copy, and apply them to the shared parameters."""
        main, own, shared = self._scheme.storage, self._own, self._shared
        main.before_gradients()
        for number, batch in enumerate(own.batches(main)):
            if number:
                self._copy()
            with own.actor.updating():
                gradients, result = own.compute_gradients(batch)
            info = main.after_gradients(batch, result.info)
            lag = int(shared.updates.sum()) - self._copied_at
            shared.apply(gradients, self._number)
            numbers = {name: float(value) for name, value in info.items() if name not in OF_ROWS}
            metrics.append({**numbers, "train/policy_lag": float(lag)})
            if result.stop:
                break
        self._due -= 1
        if main.on_policy:
            main.reset()

    def _copy(self) -> None:
        self._shared.copy_to(self._own)
        self._copied_at = self._own.updates
