"""The factories and settings from which a collector makes its environments, actor and algorithm."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from pytorchrl.agent.actors.actor import Actor
from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.agent.envs.vec_env import VecEnv
from pytorchrl.agent.explorers import Explorer
from pytorchrl.scheme.distributed.plan import WorkPlan
from storages.component.factory import Factory, make_factory
from storages.off_policy.nstep_buffer import NStepReplayBuffer
from storages.on_policy import VanillaOnPolicyBuffer
from storages.storage import Storage
from storages.transition import SKIPPED, Sample


@dataclass(frozen=True)
class CollectorBlueprint:
    """The parts of a composition that each collector makes for itself."""

    algo_factory: Factory[Algorithm]
    actor_factory: Factory[Actor]
    envs_factory: Factory[VecEnv]
    plan: WorkPlan
    """The arguments of the scheme about its workers."""
    normalize_rewards: Literal["returns", "rewards"] | None
    run_seed: int
    slice_steps: int
    """Number of steps of a slice."""
    allow_nonfinite: bool
    """Whether slices may contain NaN and infinity."""
    info_keys: Sequence[str]
    """The environments' infos that are stored."""
    priorities_of: Factory[Storage] | None = None
    """Of the prioritised main storage, where collectors compute initial TD errors for it; None where they do not."""

    def recorder(self) -> Factory[Storage]:
        """Return the factory of a collector's storage of one slice, n-step where errors are computed from it."""
        steps, nonfinite = self.slice_steps, self.allow_nonfinite
        if self.priorities_of is None:
            # No returns are computed from it, so that no value function is needed.
            return VanillaOnPolicyBuffer.create_factory(steps, cut_episodes="drop", allow_nonfinite=nonfinite)
        n_step = self.priorities_of.hyper_parameters.get("n_step", 1)
        return _SliceBuffer.create_factory(steps, n_step, allow_nonfinite=nonfinite)

    def make_algorithm(self, worker: int, envs: VecEnv) -> Algorithm:
        """Make a worker's algorithm; its weights are later replaced by the learner's."""
        algo_factory = with_explorer(self.algo_factory, self.plan.explorers, worker)
        device = torch.device(self.plan.worker_device)
        return algo_factory(device, self.actor_factory(device, envs), envs)


class _SliceBuffer(NStepReplayBuffer):
    """Holds the steps of a slice, and which of them environments skipped, as rollouts do."""

    keeps_skipped_rows = True

    def insert_masked(self, sample: Sample, mask: NDArray[np.bool_]) -> None:
        """Store a step of all environments, with SKIPPED where one made no transition."""
        self.insert_transition({**sample, SKIPPED: ~mask[:, None]})


def with_explorer(
    algo_factory: Factory[Algorithm], explorers: Sequence[Explorer] | None, worker: int
) -> Factory[Algorithm]:
    """Return the factory of a worker's algorithm, with the worker's explorer where ``explorers`` is given."""
    if explorers is None:
        return algo_factory
    return make_factory(algo_factory.cls, (), algo_factory.hyper_parameters | {"explorer": explorers[worker]})
