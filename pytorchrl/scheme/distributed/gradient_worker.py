"""A worker that collects experience and computes gradients, which the learner applies."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from pytorchrl.agent.actors.actor import Actor
from pytorchrl.agent.actors.layers.normalization import Moments, combined_moments, moments_since
from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.agent.algorithms.results import Metrics
from pytorchrl.agent.envs.vec_env import VecEnv
from pytorchrl.agent.global_generators import seed_process
from pytorchrl.scheme.collector import Collector, Episode
from pytorchrl.scheme.distributed.blueprint import with_explorer
from pytorchrl.scheme.distributed.collection_worker import RunState
from pytorchrl.scheme.distributed.plan import WorkPlan
from pytorchrl.scheme.scheme import Scheme
from pytorchrl.scheme.seeds import OF_WORKERS, PROCESSES, seed_of, seed_of_worker
from storages.component.factory import Factory
from storages.storage import Storage
from storages.transition import OF_ROWS, Batch

Shared = Mapping[str, Mapping[str, Any]]
"""The learner's weights and training state, as :func:`shared_state` returns it."""


@dataclass(frozen=True)
class GradientBlueprint:
    """The parts that each gradient worker makes for itself."""

    algo_factory: Factory[Algorithm]
    actor_factory: Factory[Actor]
    storage_factory: Factory[Storage]
    envs_factory: Factory[VecEnv]
    sources: Mapping[str, Factory[Storage]]
    plan: WorkPlan
    """The arguments of the scheme about its workers."""
    normalize_rewards: Literal["returns", "rewards"] | None
    run_seed: int


class Experience(NamedTuple):
    """Summary of what a worker collected; the transitions stay in its storage."""

    steps: int
    """Environment transitions."""
    episodes: list[Episode]
    episodes_ended: int
    shaped_returns: list[float]
    observed: Sequence[Moments] = ()
    """Moments of the observations, for each part that is normalised; empty if none is."""

    def with_more(self, more: "Experience") -> "Experience":
        """Return the concatenation of both."""
        pairs = zip(self.observed, more.observed, strict=False)
        return Experience(
            self.steps + more.steps,
            self.episodes + more.episodes,
            self.episodes_ended + more.episodes_ended,
            self.shaped_returns + more.shaped_returns,
            [combined_moments(one, further) if further[0] else one for one, further in pairs] or more.observed,
        )


NOTHING = Experience(0, [], 0, [])


class Gradients(NamedTuple):
    """The gradients of one batch."""

    of: Mapping[str, NDArray[np.floating]]
    """By the names that :meth:`Algorithm.compute_gradients` gives."""
    metrics: Mapping[str, float]
    worker: int
    version: int
    """Version of the weights: number of optimiser steps made before they were sent."""
    experience: Experience
    """The experience collected for the batch in this call."""
    statistics: Mapping[str, NDArray[Any]] = MappingProxyType({})
    """Changes of statistics of layers, such as those of batch normalisation, by their names in the actor."""


class GradientWorker:
    """Collects in its environments into its storage, and computes gradients of its batches.

    Args:
        blueprint: the parts to make.
        worker: its index.
        generation: how often the worker with this index was replaced.
    """

    def __init__(self, blueprint: GradientBlueprint, worker: int, generation: int = 0) -> None:
        seed_process(seed_of(blueprint.run_seed, PROCESSES, OF_WORKERS, worker, generation))
        self._worker = worker
        self._scheme = Scheme(
            with_explorer(blueprint.algo_factory, blueprint.plan.explorers, worker),
            blueprint.actor_factory,
            blueprint.storage_factory,
            blueprint.envs_factory,
            sources=blueprint.sources,
            normalize_rewards=blueprint.normalize_rewards,
            device=blueprint.plan.worker_device,
            seed=seed_of_worker(blueprint.run_seed, worker, generation),
        )
        self._due = 0
        """Number of update phases that are due."""
        self._batches: Iterator[Batch] | None = None
        """Remaining batches of the current update phase."""
        self._stopped_round = -1

    def collect(self, run: RunState, shared: Shared) -> Experience:
        """Collect until an update phase is due, or :meth:`stop` is called.

        Args:
            run: state of the run.
            shared: the learner's weights and training state.
        """
        scheme = self._scheme
        self._follow(run, shared)
        collector = scheme.collector
        assert isinstance(collector, Collector)
        before, ended_before, counted_before = scheme.steps, collector.episodes, self._counted()
        collector.steps_elsewhere = run.steps - before
        episodes: list[Episode] = []
        while not self._due and self._stopped_round != run.version:
            found, self._due = scheme.collect(before + run.target_steps, lambda: self._stopped_round == run.version)
            episodes += found
        if not self._due and scheme.storage.on_policy:
            # A rollout that was stopped early is used if it has enough steps for its minibatches.
            self._due = int(len(scheme.storage) >= getattr(scheme.algorithm, "num_mini_batch", 1))
        return Experience(
            scheme.steps - before,
            episodes,
            collector.episodes - ended_before,
            scheme.take_shaped_returns(),
            self._observed(counted_before),
        )

    def stop(self, version: int) -> None:
        """End :meth:`collect` early, if it uses weights of this version."""
        self._stopped_round = version

    def next_gradients(self, run: RunState, shared: Shared) -> Gradients | None:
        """Return the gradients of the next batch; None if no batch is left."""
        self._follow(run, shared)
        return self._next_gradients(run, NOTHING)

    def compute(self, run: RunState, shared: Shared) -> Gradients:
        """Return the gradients of the next batch; collects first if no batch is left."""
        self._follow(run, shared)
        experience = NOTHING
        while (found := self._next_gradients(run, experience)) is None:
            experience = experience.with_more(self.collect(run, shared))
        return found

    def _next_gradients(self, run: RunState, experience: Experience) -> Gradients | None:
        algorithm, main = self._scheme.algorithm, self._scheme.storage
        while self._due:
            if self._batches is None:
                main.before_gradients()
                self._batches = algorithm.batches(main)
            for batch in self._batches:
                before = {name: tensor.clone() for name, tensor in statistics_of(self._scheme.actor).items()}
                with self._scheme.actor.updating():
                    gradients, result = algorithm.compute_gradients(batch)
                info = main.after_gradients(batch, result.info)
                if result.stop:
                    break
                arrays = {name: gradient.cpu().numpy() for name, gradient in gradients.items()}
                metrics = {name: float(value) for name, value in info.items() if name not in OF_ROWS}
                changes = changed_statistics(before, self._scheme.actor)
                return Gradients(arrays, metrics, self._worker, run.version, experience, changes)
            self._end_phase()
        return None

    def _end_phase(self) -> None:
        self._batches = None
        self._due -= 1
        if self._scheme.storage.on_policy:
            self._scheme.storage.reset()

    def _counted(self) -> list[Moments]:
        normalization = self._scheme.actor.normalization
        return [] if normalization is None else normalization.moments

    def _observed(self, before: list[Moments]) -> list[Moments]:
        """Return the moments of the observations that were counted since."""
        return [moments_since(earlier, now) for earlier, now in zip(before, self._counted(), strict=True)]

    def _follow(self, run: RunState, shared: Shared) -> None:
        normalization = self._scheme.actor.normalization
        # A rollout is learnt from with the statistics that it was collected with.
        is_kept = self._batches is not None and self._scheme.storage.on_policy
        scaling = normalization.scaling if normalization is not None and is_kept else None
        load_shared_state(self._scheme.algorithm, shared)
        if normalization is not None and scaling is not None:
            normalization.use_scaling(scaling)
        self._scheme.algorithm.take_changes(run.changes)
        for name, changes in run.storage_changes.items():
            self._scheme.storages[name].take_changes(changes)
        self._scheme.set_progress(run.steps, run.target_steps)

    def state_dict(self) -> dict[str, Any]:
        """Return the worker's state, as tensors and plain data; ends the current update phase."""
        if self._batches is not None:
            self._end_phase()
        return {"scheme": self._scheme.state_dict(), "due": self._due}

    def load_state_dict(self, state: Mapping[str, Any]) -> list[int]:
        """Restore the state returned by `state_dict`; returns the environments whose running episodes are lost."""
        self._due, self._batches = state["due"], None
        return self._scheme.load_state_dict(state["scheme"])


def shared_state(algorithm: Algorithm) -> dict[str, dict[str, Any]]:
    """Return weights, targets, dual variables, counters and frozen parameters of an algorithm, as arrays."""
    training = algorithm.training.shared_state()
    return {
        "weights": {name: tensor.numpy() for name, tensor in algorithm.get_weights().items()},
        "targets": {
            name: {key: tensor.cpu().numpy() for key, tensor in state.items()}
            for name, state in training["targets"].items()
        },
        "variables": {name: tensor.cpu().numpy() for name, tensor in training["variables"].items()},
        "counters": training["counters"],
        "freezing": training["freezing"],
    }


def load_shared_state(algorithm: Algorithm, shared: Shared) -> None:
    """Load the state returned by :func:`shared_state`."""
    algorithm.set_weights(tensors_of(shared["weights"]))
    algorithm.training.load_shared_state(
        {
            "targets": {name: tensors_of(state) for name, state in shared["targets"].items()},
            "variables": tensors_of(shared["variables"]),
            "counters": shared["counters"],
            "freezing": shared["freezing"],
        }
    )


def statistics_of(actor: Actor) -> dict[str, torch.Tensor]:
    """Return the saved buffers of an actor's networks that losses may change; the moments of observations are none."""
    parameters = {name for name, _ in actor.named_parameters(remove_duplicate=False)}
    counted = [] if actor.normalization is None else actor.normalization.state_dict(keep_vars=True).values()
    return {
        name: tensor
        for name, tensor in actor.state_dict(keep_vars=True).items()
        if name not in parameters and not any(tensor is other for other in counted)
    }


def changed_statistics(before: Mapping[str, torch.Tensor], actor: Actor) -> dict[str, NDArray[Any]]:
    """Return the differences of the statistics that have changed."""
    now = statistics_of(actor) if before else {}
    return {
        name: (now[name] - tensor).cpu().numpy()
        for name, tensor in before.items()
        if not torch.equal(now[name], tensor)
    }


def change_statistics(actor: Actor, changes: Sequence[Mapping[str, NDArray[Any]]]) -> None:
    """Add to an actor's statistics the means of their changes in several workers."""
    changed = dict.fromkeys(name for each in changes for name in each)
    now = statistics_of(actor) if changed else {}
    for name in changed:
        mean = np.mean([each[name] for each in changes if name in each], axis=0)
        now[name].add_(torch.as_tensor(mean).to(now[name]))


def tensors_of(arrays: Mapping[str, NDArray[Any]]) -> dict[str, torch.Tensor]:
    """Return tensors with copies of arrays, which may be read-only."""
    return {name: torch.tensor(array) for name, array in arrays.items()}


def mean_of(metrics: list[Mapping[str, float]]) -> Metrics:
    """Return the mean of each metric over the records that contain it."""
    names = dict.fromkeys(name for one in metrics for name in one)
    return {name: float(np.mean([one[name] for one in metrics if name in one])) for name in names}
