"""Collecting while the learner updates, as a value."""

from dataclasses import dataclass
from multiprocessing import get_all_start_methods
from typing import Any, cast

from pytorchrl.agent.actors.actor import Actor
from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.agent.envs.vec_env import VecEnv
from pytorchrl.scheme.fitting import CompositionError
from pytorchrl.scheme.overlap.distant_envs import DistantEnvs
from pytorchrl.scheme.overlap.overlapped_collector import OverlappedCollector
from pytorchrl.scheme.reward_normalization import RewardNormalization
from storages.component.factory import Factory
from storages.component.hyper_parameters import Count, CountOrZero
from storages.component.setting import Setting
from storages.storage import Storage


@dataclass(frozen=True)
class Overlapped(Setting):
    """Collects in processes of its own while the learner updates, with weights that are somewhat older.

    Each step is made with the weights of so many update phases before those that a scheme without overlap would act
    with. No newer ones are taken, although they may be there: a run follows from its seed, and one that is resumed is
    the one that was not stopped. "train/policy_lag" is by how many updates the weights were older.

    Args:
        max_policy_lag: update phases by which the acting weights may be older; rollouts, for algorithms that learn from
            those. 0 collects in other processes without overlap.
        processes: that collect, each in its share of the environments.

    Raises:
        ValueError: a number is negative, or there is no process.
    """

    max_policy_lag: CountOrZero
    processes: Count = 1

    def check(self, storage_factory: Factory[Storage], envs_factory: Factory[VecEnv] | None) -> None:
        """Refuse parts that cannot collect while the learner updates.

        Raises:
            CompositionError: the message names the parts and a way out.
        """
        if envs_factory is None:
            raise CompositionError(f"Scheme: without train_envs_factory nothing is collected; leave out {self}")
        if "fork" not in get_all_start_methods():
            raise CompositionError(f"Scheme: {self} needs a system that forks processes, as Linux does; leave it out")
        if storage_factory.hyper_parameters.get("rate_limit") is not None:
            raise CompositionError(
                f"Scheme: {self} bounds how far collecting is ahead of learning itself; leave out the rate_limit of "
                f"{storage_factory.name}, and say by update_every of the algorithm when it learns"
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
            Exception: what making the environments raised.
        """
        # What is made here of environments reads their spaces and number alone.
        return cast("VecEnv", DistantEnvs(algo_factory, actor_factory, envs_factory, self.processes))

    def make_collector(
        self, envs: VecEnv, algorithm: Algorithm, storage: Storage, rewards: RewardNormalization | None, run_seed: int
    ) -> OverlappedCollector:
        """Make what inserts the steps of the processes into a storage.

        Raises:
            CompositionError: a single step makes more update phases due than the weights may be older, or not every
                environment makes a transition in it, and they are replayed.
        """
        if envs.skips_steps and not storage.on_policy:
            raise CompositionError(
                f"Scheme: Overlapped gives {type(storage).__name__} steps of all environments, and {envs.env_name} "
                f"makes no transition in the step that begins its next episode (gymnasium's autoreset mode NEXT_STEP); "
                f"leave out Overlapped, or make the environments with the mode SAME_STEP or DISABLED"
            )
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
