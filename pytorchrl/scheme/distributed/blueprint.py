"""What a worker in another process needs to make its environments, its actor and its algorithm."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from pytorchrl.agent.actors.actor import Actor
from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.agent.envs.vec_env import VecEnv
from pytorchrl.agent.explorers import Explorer
from storages.component.factory import Factory, make_factory


@dataclass(frozen=True)
class Blueprint:
    """The parts of a composition that collectors make for themselves, each its own."""

    algo_factory: Factory[Algorithm]
    actor_factory: Factory[Actor]
    envs_factory: Factory[VecEnv]
    explorers: Sequence[Explorer] | None
    """One for each collector; None leaves the algorithm's."""
    normalize_rewards: Literal["returns", "rewards"] | None
    device: str
    """Where collectors' networks live."""
    run_seed: int
    num_collectors: int
    slice_steps: int
    """Steps of a slice."""
    allow_nonfinite: bool
    """Whether slices may hold NaN and infinity."""
    info_keys: Sequence[str]
    """The environments' infos that are stored."""

    def make_algorithm(self, worker: int, envs: VecEnv) -> Algorithm:
        """Make a worker's algorithm, whose weights are to be replaced by the learner's."""
        algo_factory = self.algo_factory
        if self.explorers is not None:
            changed = algo_factory.hyper_parameters | {"explorer": self.explorers[worker]}
            algo_factory = make_factory(algo_factory.cls, (), changed)
        device = torch.device(self.device)
        algorithm: Algorithm = algo_factory(device, self.actor_factory(device, envs), envs)
        return algorithm
