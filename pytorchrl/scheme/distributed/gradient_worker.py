"""A worker that collects for itself and computes gradients, which are applied elsewhere."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from pytorchrl.agent.actors.actor import Actor
from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.agent.algorithms.results import Metrics
from pytorchrl.agent.envs.vec_env import VecEnv
from pytorchrl.agent.explorers import Explorer
from pytorchrl.scheme.collector import Collector, Episode
from pytorchrl.scheme.distributed.blueprint import with_explorer
from pytorchrl.scheme.distributed.collection_worker import Order
from pytorchrl.scheme.scheme import Scheme
from pytorchrl.scheme.seeds import WORKERS, seed_of
from storages.component.factory import Factory
from storages.storage import Storage
from storages.transition import ERRORS, Batch

Shared = Mapping[str, Mapping[str, Any]]
"""What gradients follow from beside experience, as :func:`shared_state` returns it."""


@dataclass(frozen=True)
class GradientBlueprint:
    """The parts that each gradient worker makes for itself."""

    algo_factory: Factory[Algorithm]
    actor_factory: Factory[Actor]
    storage_factory: Factory[Storage]
    envs_factory: Factory[VecEnv]
    sources: Mapping[str, Factory[Storage]]
    explorers: tuple[Explorer, ...] | None
    normalize_rewards: Literal["returns", "rewards"] | None
    device: str
    run_seed: int


class Experience(NamedTuple):
    """What a worker collected, but for the transitions, which it keeps."""

    steps: int
    """Environment transitions."""
    episodes: list[Episode]
    episodes_ended: int
    shaped_returns: list[float]

    def with_more(self, more: "Experience") -> "Experience":
        """Both, one after the other."""
        return Experience(
            self.steps + more.steps,
            self.episodes + more.episodes,
            self.episodes_ended + more.episodes_ended,
            self.shaped_returns + more.shaped_returns,
        )


class Gradients(NamedTuple):
    """Of one batch."""

    of: Mapping[str, NDArray[np.floating]]
    """By the names that :meth:`Algorithm.compute_gradients` gives."""
    metrics: Mapping[str, float]
    worker: int
    version: int
    """Of the weights: steps of the optimisers made before they were taken."""
    experience: Experience
    """What was collected for it, in this call."""


class GradientWorker:
    """Collects in its environments into its storage, and computes gradients of its batches.

    Args:
        blueprint: what it is made of.
        worker: its number.
        generation: how many workers of this number there were before.
    """

    def __init__(self, blueprint: GradientBlueprint, worker: int, generation: int = 0) -> None:
        self._worker = worker
        seed = blueprint.run_seed
        if worker or generation:
            seed = int(seed_of(seed, WORKERS, worker, generation).generate_state(1)[0])
        self._scheme = Scheme(
            with_explorer(blueprint.algo_factory, blueprint.explorers, worker),
            blueprint.actor_factory,
            blueprint.storage_factory,
            blueprint.envs_factory,
            sources=blueprint.sources,
            normalize_rewards=blueprint.normalize_rewards,
            device=blueprint.device,
            seed=seed,
        )
        self._due = 0
        """Update phases to go through with what was collected."""
        self._batches: Iterator[Batch] | None = None
        """Of the phase that was begun."""
        self._stopped_round = -1

    def collect(self, order: Order, shared: Shared) -> Experience:
        """Act until an update phase is due, or :meth:`stop` is called.

        Args:
            order: how far the run has come.
            shared: what to act with.
        """
        scheme = self._scheme
        self._follow(order, shared)
        collector = scheme.collector
        assert isinstance(collector, Collector)
        before, ended_before = scheme.steps, collector.episodes
        collector.steps_elsewhere = order.steps - before
        episodes: list[Episode] = []
        while not self._due and self._stopped_round != order.version:
            found, self._due = scheme.collect(before + order.target_steps, lambda: self._stopped_round == order.version)
            episodes += found
        if not self._due and scheme.storage.on_policy:
            # What a rollout holds so far is learnt from, where it is enough for its batches.
            self._due = int(len(scheme.storage) >= getattr(scheme.algorithm, "num_mini_batch", 1))
        return Experience(
            scheme.steps - before, episodes, collector.episodes - ended_before, scheme.take_shaped_returns()
        )

    def stop(self, version: int) -> None:
        """Let :meth:`collect`, if it acts with the weights of this version, end with what it has."""
        self._stopped_round = version

    def next_gradients(self, order: Order, shared: Shared) -> Gradients | None:
        """Gradients of the next batch of what was collected; None where there is none left."""
        self._follow(order, shared)
        return self._next_gradients(order, Experience(0, [], 0, []))

    def compute(self, order: Order, shared: Shared) -> Gradients:
        """Gradients of the next batch, for which is collected where none is left."""
        self._follow(order, shared)
        experience = Experience(0, [], 0, [])
        while (found := self._next_gradients(order, experience)) is None:
            experience = experience.with_more(self.collect(order, shared))
        return found

    def _next_gradients(self, order: Order, experience: Experience) -> Gradients | None:
        algorithm, main = self._scheme.algorithm, self._scheme.storage
        while self._due:
            if self._batches is None:
                main.before_gradients()
                self._batches = algorithm.batches(main)
            for batch in self._batches:
                gradients, result = algorithm.compute_gradients(batch)
                info = main.after_gradients(batch, result.info)
                if result.stop:
                    break
                arrays = {name: gradient.cpu().numpy() for name, gradient in gradients.items()}
                metrics = {name: float(value) for name, value in info.items() if name != ERRORS}
                return Gradients(arrays, metrics, self._worker, order.version, experience)
            self._end_phase()
        return None

    def _end_phase(self) -> None:
        self._batches = None
        self._due -= 1
        if self._scheme.storage.on_policy:
            self._scheme.storage.reset()

    def _follow(self, order: Order, shared: Shared) -> None:
        load_shared_state(self._scheme.algorithm, shared)
        self._scheme.set_progress(order.steps, order.target_steps)

    def state_dict(self) -> dict[str, Any]:
        """Everything that the worker goes on from, as tensors and plain data; a phase that was begun ends here."""
        if self._batches is not None:
            self._end_phase()
        return {"scheme": self._scheme.state_dict(), "due": self._due}

    def load_state_dict(self, state: Mapping[str, Any]) -> list[int]:
        """Restore the state returned by `state_dict`; returns the environments whose running episodes are lost."""
        self._due, self._batches = state["due"], None
        return self._scheme.load_state_dict(state["scheme"])


def shared_state(algorithm: Algorithm) -> dict[str, dict[str, Any]]:
    """What gradients follow from beside experience: weights, targets, dual variables, counters; as arrays."""
    training = algorithm.training.shared_state()
    return {
        "weights": {name: tensor.numpy() for name, tensor in algorithm.get_weights().items()},
        "targets": {
            name: {key: tensor.cpu().numpy() for key, tensor in state.items()}
            for name, state in training["targets"].items()
        },
        "variables": {name: tensor.cpu().numpy() for name, tensor in training["variables"].items()},
        "counters": training["counters"],
    }


def load_shared_state(algorithm: Algorithm, shared: Shared) -> None:
    """Take over what :func:`shared_state` returned elsewhere."""
    algorithm.set_weights(tensors_of(shared["weights"]))
    algorithm.training.load_shared_state(
        {
            "targets": {name: tensors_of(state) for name, state in shared["targets"].items()},
            "variables": tensors_of(shared["variables"]),
            "counters": shared["counters"],
        }
    )


def tensors_of(arrays: Mapping[str, NDArray[Any]]) -> dict[str, torch.Tensor]:
    """Copies of arrays, which may not be written to, as tensors."""
    return {name: torch.tensor(array) for name, array in arrays.items()}


def mean_of(metrics: list[Mapping[str, float]]) -> Metrics:
    """The mean of each number over those that have it."""
    names = dict.fromkeys(name for one in metrics for name in one)
    return {name: float(np.mean([one[name] for one in metrics if name in one])) for name in names}
