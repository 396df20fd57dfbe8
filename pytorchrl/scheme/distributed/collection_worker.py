"""The collector that runs in a worker process."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.agent.global_generators import seed_process
from pytorchrl.scheme.collector import Collector, Episode
from pytorchrl.scheme.compatibility import CompositionError
from pytorchrl.scheme.distributed.blueprint import CollectorBlueprint
from pytorchrl.scheme.distributed.slices import Slice, arrays_of
from pytorchrl.scheme.seeds import ALGORITHM, OF_WORKERS, PROCESSES, RANDOM_ACTIONS, TRAIN_ENVS, seed_of
from pytorchrl.scheme.stored_rewards import RewardNormalization
from storages.storage import Storage
from storages.transition import ERRORS


class RunState(NamedTuple):
    """State of the run with which a worker collects or computes gradients."""

    version: int
    """Version of the weights that are sent with it."""
    steps: int
    """Environment transitions of the run so far, for schedules."""
    target_steps: int
    changes: Mapping[str, Any] = {}
    """Hyper-parameters of the learner's algorithm that were changed since it was made, by name."""
    storage_changes: Mapping[str, Mapping[str, Any]] = {}
    """Those of its storages, by the name of the source."""


class CollectionWorker:
    """Acts in its environments with the learner's weights, and returns slices of steps.

    Args:
        blueprint: the parts to make.
        worker: its index among the collectors.
        generation: how often the collector with this index was replaced.
    """

    def __init__(self, blueprint: CollectorBlueprint, worker: int, generation: int = 0) -> None:
        seed_process(seed_of(blueprint.run_seed, PROCESSES, OF_WORKERS, worker, generation))
        self._worker = worker
        self._slice_steps = blueprint.slice_steps
        envs = blueprint.envs_factory()
        self._algorithm = algorithm = blueprint.make_algorithm(worker, envs)
        # Environments and explorer of the first collector have the same seeds as in a run with one process.
        stream = () if worker == generation == 0 else (worker, generation)
        algorithm.seed(seed_of(blueprint.run_seed, ALGORITHM, 1, worker, generation))
        self.storage = blueprint.recorder()(torch.device("cpu"), algorithm.actor, algorithm, envs)
        """Holds the steps of one slice."""
        self._with_errors = blueprint.priorities_of is not None
        kind, gamma = blueprint.normalize_rewards, algorithm.gamma
        rewards = None if kind is None else RewardNormalization(kind, gamma, envs.num_envs)
        self._collector = _CollectorAmongOthers(envs, algorithm, self.storage, rewards)
        self._collector.take_its_place(worker, blueprint)
        self._collector.seed(seed_of(blueprint.run_seed, RANDOM_ACTIONS, *stream))
        self._collector.reset(seed_of(blueprint.run_seed, TRAIN_ENVS, *stream))

    def collect(self, run: RunState, weights: Mapping[str, NDArray[Any]]) -> Slice:
        """Collect a slice.

        Args:
            run: state of the run.
            weights: of the actor, as :meth:`Algorithm.get_weights` returns them.
        """
        algorithm, collector = self._algorithm, self._collector
        algorithm.set_weights({name: torch.tensor(array) for name, array in weights.items()})
        algorithm.take_changes(run.changes)
        if self._with_errors:
            changes = run.storage_changes.get("main", {})
            self.storage.take_changes({name: changes[name] for name in ("n_step",) if name in changes})
        algorithm.set_progress(run.steps, run.target_steps)
        collector.set_target(run.target_steps)
        collector.steps_elsewhere = run.steps - collector.steps
        before, episodes_before = collector.steps, collector.episodes
        self.storage.reset()
        episodes: list[Episode] = []
        for _ in range(self._slice_steps):
            episodes += collector.step()
        data = arrays_of(self.storage, self._slice_steps)
        if self._with_errors:
            data = {**data, ERRORS: initial_errors(algorithm, self.storage, self._slice_steps)}
        return Slice(
            data,
            self._worker,
            run.version,
            collector.steps - before,
            episodes,
            collector.episodes - episodes_before,
            collector.take_shaped_returns(),
        )

    def state_dict(self) -> dict[str, Any]:
        """Return the state that determines the next slice, without weights, as tensors and plain data."""
        return {"collector": self._collector.state_dict(), "generators": self._algorithm.random_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> list[int]:
        """Restore the state returned by `state_dict`; returns the environments whose running episodes are lost."""
        self._algorithm.load_random_state(state["generators"])
        return self._collector.load_state_dict(state["collector"])


class _CollectorAmongOthers(Collector):
    """A collector that counts the steps that the other collectors make at the same time."""

    _of_others = 0
    """Transitions that the other collectors make in a step."""

    def take_its_place(self, worker: int, blueprint: CollectorBlueprint) -> None:
        """Explore as one of several collectors, and store the infos that the main storage stores."""
        num_envs = self.envs.num_envs
        self._info_keys = blueprint.info_keys
        self.explore_among(blueprint.plan.num_workers * num_envs, worker * num_envs)
        self._of_others = (blueprint.plan.num_workers - 1) * num_envs
        # The learner's process computes the statistics of all collectors' observations.
        self._counts_observations = False

    def step(self) -> list[Episode]:
        episodes = super().step()
        self.steps_elsewhere += self._of_others
        return episodes


def weights_to_send(weights: Mapping[str, torch.Tensor]) -> dict[str, NDArray[np.generic]]:
    """Return weights as arrays, which Ray's object store shares between processes."""
    return {name: tensor.numpy() for name, tensor in weights.items()}


@torch.no_grad()
def initial_errors(algorithm: Algorithm, recorder: Storage, steps: int) -> NDArray[np.float32]:
    """Return the TD errors of a collector's newest steps by its own networks, (steps, E, 1).

    Horgan et al., "Distributed Prioritized Experience Replay" (Ape-X, arXiv 1803.00933), algorithm 1 and section 3:
    actors compute initial priorities with their local copy of the network. It serves as the target network too.

    Args:
        algorithm: the collector's; its target networks become copies of its networks.
        recorder: holds the steps.
        steps: how many.

    Raises:
        CompositionError: the algorithm returns no errors.
    """
    for target in algorithm.training.targets.values():
        target.update(0.0)
    losses = algorithm.losses(algorithm.read(_on(algorithm.device, recorder.newest_steps(steps))))
    if losses.errors is None:
        raise CompositionError(
            f"{type(algorithm).__name__} returns no errors from which collectors could compute priorities; leave out "
            f"initial_priorities"
        )
    return losses.errors.float().numpy(force=True)


def _on(device: torch.device, batch: Any) -> Any:
    if isinstance(batch, dict):
        return {name: _on(device, part) for name, part in batch.items()}
    return batch.to(device)
