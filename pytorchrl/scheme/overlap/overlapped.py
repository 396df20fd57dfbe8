"""The setting that lets collection and updates overlap."""

from dataclasses import dataclass
from multiprocessing import get_all_start_methods
from typing import Any, cast

from pytorchrl.agent.actors.actor import Actor
from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.agent.envs.vec_env import VecEnv
from pytorchrl.scheme.compatibility import CompositionError
from pytorchrl.scheme.overlap.overlapped_collector import OverlappedCollector
from pytorchrl.scheme.overlap.remote_envs import RemoteEnvs
from pytorchrl.scheme.stored_rewards import RewardNormalization
from storages.component.factory import Factory
from storages.component.hyper_parameters import Count, CountOrZero
from storages.component.setting import Setting
from storages.storage import Storage


@dataclass(frozen=True)
class Overlapped(Setting):
    """Collects in separate processes during updates, with weights that lag a fixed number of steps behind.

    Newer weights are not used even if they are available, so that a run is determined by its seed, and a resumed run is
    identical to an uninterrupted one. "train/policy_lag" is the number of updates by which the weights lagged.

    Args:
        max_policy_lag: update phases (for on-policy algorithms, rollouts) by which the acting weights may lag. 0
            collects in other processes without overlap.
        processes: number of collector processes, among which the environments are divided.

    Raises:
        ValueError: a number is negative, or ``processes`` is 0.
    """

    max_policy_lag: CountOrZero
    processes: Count = 1

    def check(self, storage_factory: Factory[Storage], envs_factory: Factory[VecEnv] | None) -> None:
        """Check that the parts support overlapped collection.

        Raises:
            CompositionError: the message names the parts and a way out.
        """
        if envs_factory is None:
            raise CompositionError(f"Scheme: without train_envs_factory nothing is collected; leave out {self}")
        if "fork" not in get_all_start_methods():
            raise CompositionError(f"Scheme: {self} needs a system that forks processes, as Linux does; leave it out")
        if storage_factory.hyper_parameters.get("rate_limit") is not None:
            raise CompositionError(
                f"Scheme: {self} itself bounds how far collection is ahead of the updates; leave out the rate_limit of "
                f"{storage_factory.name}, and set the update frequency by update_every of the algorithm"
            )
        num_envs = envs_factory.hyper_parameters.get("num_envs", 1)
        if self.processes > num_envs:
            raise CompositionError(
                f"Scheme: {self.processes} processes cannot share {num_envs} environments; give {envs_factory.name} "
                f"num_envs={self.processes}, or Overlapped processes={num_envs}"
            )

    def make_envs(
        self, algo_factory: Factory[Algorithm], actor_factory: Factory[Actor], envs_factory: Factory[VecEnv]
    ) -> VecEnv:
        """Start the processes, which make the environments.

        Raises:
            CollectorError: a process has ended.
            Exception: any exception raised by making the environments.
        """
        # Actor, algorithm and storage read only attributes of the environments.
        return cast("VecEnv", RemoteEnvs(algo_factory, actor_factory, envs_factory, self.processes))

    def make_collector(
        self, envs: VecEnv, algorithm: Algorithm, storage: Storage, rewards: RewardNormalization | None, run_seed: int
    ) -> OverlappedCollector:
        """Make the collector that stores the steps of the processes.

        Raises:
            CompositionError: a single step makes more update phases due than ``max_policy_lag``.
        """
        lead = algorithm.plan.steps_within(self.max_policy_lag, envs.num_envs, storage.size or 1)
        if self.max_policy_lag and not lead:
            raise CompositionError(
                f"Scheme: one step of {envs.num_envs} environments makes more than {self.max_policy_lag} update phases "
                f"of {type(algorithm).__name__} due, so that nothing can overlap; give Overlapped a larger "
                f"max_policy_lag, or the algorithm a larger update_every"
            )
        distant: Any = envs
        versions = min(lead, self.max_policy_lag) + 2
        return OverlappedCollector(
            distant, algorithm, storage, rewards, lead=lead, versions=versions, run_seed=run_seed
        )
