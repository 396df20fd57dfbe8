"""Environments in collector processes, as the learner's process sees them."""

import atexit
import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import gymnasium as gym
import numpy as np

from pytorchrl.agent.envs.vec_env import VecEnv, one_copy
from pytorchrl.agent.global_generators import seeds_of_processes
from pytorchrl.scheme.overlap.forked_process import end_processes
from pytorchrl.scheme.overlap.process import CollectorProcess
from pytorchrl.scheme.overlap.shared_arrays import ArrayKind, SharedArrays
from pytorchrl.scheme.overlap.worker import WorkerParts
from storages.closing import close_all
from storages.component.factory import Factory, make_factory
from storages.open_files import open_files_named


class RemoteEnvs:
    """The attributes of environments that collector processes have made and step.

    Actors, algorithms and storages read them in place of a :class:`VecEnv`.

    Args:
        algo_factory: of the algorithm.
        actor_factory: of the actor.
        envs_factory: of all environments.
        processes: number of collector processes, among which the environments are divided evenly.

    Raises:
        CollectorError: a process has ended.
        Exception: any exception raised by making the environments.
        OSError: too many files are open.
    """

    def __init__(
        self, algo_factory: Factory[Any], actor_factory: Factory[Any], envs_factory: Factory[VecEnv], processes: int
    ) -> None:
        self._factory = envs_factory
        self._one: VecEnv | None = None
        self.num_envs: int = envs_factory.hyper_parameters.get("num_envs", 1)
        edges = np.linspace(0, self.num_envs, processes + 1).astype(int)
        self.rows = [slice(int(start), int(end)) for start, end in pairwise(edges)]
        """Indices of the environments of each process."""
        self.processes: list[CollectorProcess] = []
        self._end_processes = weakref.finalize(self, end_processes, self.processes, os.getpid())
        # At exit, multiprocessing joins its processes, and these wait for this one; they must have ended before that.
        atexit.register(self._end_processes)
        with open_files_named(f"Overlapped: {processes} collector processes", "take fewer of them"):
            self.weights_memory, self.steps_memory = SharedArrays(), SharedArrays()
            try:
                self._fork(algo_factory, actor_factory)
                described, *_ = [process.description() for process in self.processes]
            except BaseException:
                self.close()
                raise
        self.observation_space: gym.Space[Any] = described["observation_space"]
        """Of one environment."""
        self.action_space: gym.Space[Any] = described["action_space"]
        """Of one environment."""
        self.stacked_frames: int | Mapping[str, int] = described["stacked_frames"]
        """Number of frames that are stacked in an observation; 0 if they are not stacked."""
        self.skips_steps: bool = described["skips_steps"]
        """Whether the step in which an environment resets makes no transition."""
        self.is_wrapped: bool = described["is_wrapped"]
        """Whether there are wrappers, which may change rewards and end episodes early."""
        self.env_name: str = described["env_name"]
        """One environment with its wrappers, for messages."""
        self.env_spec: str | None = described["env_spec"]
        """JSON of gymnasium's ``EnvSpec`` of one environment; None where it cannot be serialised."""

    def _fork(self, algo_factory: Factory[Any], actor_factory: Factory[Any]) -> None:
        number = len(self.rows)
        counts = SharedArrays().make([ArrayKind("int64", (number,))] * 2)
        for process, (rows, seed) in enumerate(zip(self.rows, seeds_of_processes(number), strict=True)):
            share = _with_num_envs(self._factory, rows.stop - rows.start)
            parts = WorkerParts(algo_factory, actor_factory, share, self.weights_memory, self.steps_memory)
            self.processes.append(CollectorProcess(process, rows, seed, parts, *counts))

    @property
    def compute_reward(self) -> Callable[..., Any] | None:
        """``compute_reward(achieved_goal, desired_goal, info)`` of one environment; None where they have no goals."""
        if self._one is None:
            # The environments of other processes cannot be called from here.
            self._one = one_copy(self._factory)()
        return self._one.compute_reward

    def close(self) -> None:
        """End the processes, which close their environments; a second call does nothing."""
        try:
            self._end_processes()
        finally:
            atexit.unregister(self._end_processes)
            close_all([self.weights_memory, self.steps_memory, *filter(None, [self._one])])

    def envs_of(self, process: int, envs: Sequence[int]) -> list[int]:
        """Return the indices, among all environments, of some environments of a process."""
        return [self.rows[process].start + env for env in envs]


def _with_num_envs(factory: Factory[VecEnv], num_envs: int) -> Factory[VecEnv]:
    if factory.hyper_parameters.get("num_envs", 1) == num_envs:
        return factory
    return make_factory(factory.cls, (), factory.hyper_parameters | {"num_envs": num_envs})
