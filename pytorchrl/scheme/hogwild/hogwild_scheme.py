"""A scheme whose processes update shared parameters without a lock."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from multiprocessing import get_all_start_methods
from typing import Any, Literal, Unpack, cast

from pytorchrl.agent.actors.actor import Actor
from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.agent.algorithms.results import Metrics
from pytorchrl.agent.algorithms.update_plan import EveryRollout, Wait
from pytorchrl.agent.device import find_device
from pytorchrl.agent.envs.vec_env import VecEnv, one_copy
from pytorchrl.agent.explorers import Explorer
from pytorchrl.scheme.collector import Collecting, Episode
from pytorchrl.scheme.compatibility import CompositionError, check_roles
from pytorchrl.scheme.distributed.blueprint import with_explorer
from pytorchrl.scheme.distributed.collectors import CollectorEnvs
from pytorchrl.scheme.distributed.ray_scheme import SchemeSettings, refuse_collection
from pytorchrl.scheme.evaluation import Evaluation
from pytorchrl.scheme.hogwild.processes import HogwildProcesses
from pytorchrl.scheme.hogwild.shared_training import check_sharing
from pytorchrl.scheme.scheme import Scheme
from pytorchrl.scheme.seeds import seed_of_worker
from storages.component.annotations import conform_named
from storages.component.factory import Factory
from storages.component.hyper_parameters import Count
from storages.component.setting import plain
from storages.storage import Storage

_PLAIN = ("update", "update_phase", "compute_gradients", "apply_gradients", "losses_after_step", "end_update")
"""Methods whose meaning the processes rely on."""
_OF_ONE_PROCESS = {
    "directory": "and a directory belongs to one (checkpoints of the run keep what is in the storages)",
    "rate_limit": "whose updates the others do not wait for",
}
"""Hyper-parameters of storages that do not fit several processes, and why."""
_LEAST_REPLAY_STEPS = 16
"""Transitions that a report counts as an update phase at least, as short phases cost less than a report."""


class HogwildScheme(Scheme):
    """A scheme whose processes collect, and update parameters in shared memory without a lock.

    Mnih et al., "Asynchronous Methods for Deep Reinforcement Learning" (arXiv 1602.01783): with :class:`A2C` it is A3C
    (algorithm S3), with :class:`NStepQLearning` asynchronous n-step Q-learning (S2), and with :class:`PCL` or
    :class:`DQN` and a replay storage in each process it is their asynchronous form. Each process has its own
    environments of ``train_envs_factory``, explorer, storage, random generators and copy of the networks. Before each
    rollout it copies the shared parameters; afterwards it applies the rollout's gradients to them, while other
    processes do the same (Recht et al., "Hogwild!", arXiv 1106.5730). The averages of the optimiser, target networks
    and counts are shared, too. Schedules follow the steps of all processes; intervals between update phases, such as
    ``update_every``, those of one process.

    The learner's process evaluates, logs and saves checkpoints; for evaluations and checkpoints, the processes pause.
    "train/policy_lag" is the number of updates by other processes while a rollout was made. Runs are not reproducible,
    because updates depend on the speed of the processes; with a single process, a run is that of :class:`Scheme`.

    Args:
        algo_factory: of the algorithm, which learns from full rollouts or replay by gradients of ``losses`` alone, with
            the optimiser :class:`RMSprop` or :class:`SGD`.
        actor_factory: of the actor, the body of the networks.
        storage_factory: of the storages, one in each process, in memory.
        train_envs_factory: of the environments of one process.
        test_envs_factory: of the test environments, in the learner's process. None uses one copy of the training
            environments.
        processes: number of processes that collect and update.
        rollouts_at_once: rollouts, or with replay update phases, that a process makes before it reports to the learner.
            More have less overhead; evaluations and checkpoints begin between two reports.
        explorers: one for each process; None uses the algorithm's explorer for all.
        **settings: see :class:`Scheme`; further sources, and devices other than the CPU, are refused.

    Raises:
        CompositionError: the parts are incompatible with each other, or with such processes.
        ValueError: a number is outside its range.
    """

    def __init__(
        self,
        algo_factory: Factory[Algorithm],
        actor_factory: Factory[Actor],
        storage_factory: Factory[Storage],
        train_envs_factory: Factory[VecEnv],
        test_envs_factory: Factory[VecEnv] | None = None,
        *,
        processes: int,
        rollouts_at_once: int = 4,
        explorers: Sequence[Explorer] | None = None,
        **settings: Unpack[SchemeSettings],
    ) -> None:
        self._num_processes = conform_named(processes, Count, "HogwildScheme: processes")
        self._rollouts_at_once = conform_named(rollouts_at_once, Count, "HogwildScheme: rollouts_at_once")
        self._explorers = None if explorers is None else tuple(explorers)
        self._given = algo_factory, actor_factory, storage_factory, train_envs_factory
        self._processes: HogwildProcesses | None = None
        check_roles(algo_factory, actor_factory, {"main": storage_factory}, train_envs_factory, test_envs_factory)
        self._check_parts(settings)
        self._settings = settings
        try:
            super().__init__(
                algo_factory, actor_factory, storage_factory, train_envs_factory, test_envs_factory, **settings
            )
        except BaseException:
            self._end_processes()
            raise
        self.config["hogwild"] = {
            "processes": self._num_processes,
            "rollouts_at_once": self._rollouts_at_once,
            "explorers": plain(self._explorers),
        }

    def make_envs(self, factory: Factory[VecEnv]) -> VecEnv:
        """Make one copy for its spaces; the processes make their own environments."""
        one = one_copy(factory)()
        return cast("VecEnv", CollectorEnvs(one, int(factory.hyper_parameters.get("num_envs", one.num_envs))))

    def make_collector(self, envs: VecEnv, normalize_rewards: Literal["returns", "rewards"] | None) -> Collecting:
        """Fork the processes, and let them share the algorithm's training state."""
        name = type(self.algorithm).__name__
        plan, is_replay = self.algorithm.plan, not self.storage.on_policy
        if not (is_replay or isinstance(plan, EveryRollout)):
            raise CompositionError(
                f"HogwildScheme: {name} updates by {plan}, but with rollouts the processes update after each full one, "
                f"as A2C and NStepQLearning do; take one of these, or gradient workers of RayScheme"
            )
        # Before any process is started, which would make its parts in vain.
        check_sharing(self.algorithm)
        self._processes = HogwildProcesses(self._num_processes, self._scheme_of)
        phase = plan.steps_within(1, envs.num_envs, self.storage.size or 1) * envs.num_envs
        if is_replay:
            phase = max(phase, _LEAST_REPLAY_STEPS)
        self._transitions_at_once = phase * self._rollouts_at_once
        self._processes.begin(self.algorithm, self.storage, self._transitions_at_once)
        return self._processes

    def collect(self, until: int, stopped: Callable[[], bool] = lambda: False) -> tuple[list[Episode], int]:
        """Wait for the next report of a process; as :meth:`Scheme.collect`, whose update phases were made already."""
        assert self._processes is not None
        self._processes.limit = until
        return super().collect(until, stopped)

    def phases_due(self, before: int, episodes_before: int) -> int:
        """Return 1: the updates of each report are told to the learner."""
        return 1

    def explain_wait(self) -> Wait:
        """Return what the learner's process knows: which reports it waits for."""
        return Wait(
            f"{self._num_processes} processes update by themselves, each by {self.algorithm.plan} of its own steps, "
            f"and report every {self._transitions_at_once:,} transitions; why one of them makes no update is not known "
            f"here.",
            "the next report of a process",
        )

    def update(self, measured: bool = False) -> Iterator[Metrics]:
        """Yield the metrics of the updates that a process has reported, to which nothing is added."""
        assert self._processes is not None
        yield from self._processes.take_updates()

    def evaluate(self, episodes: int, stopped: Callable[[], bool] = lambda: False) -> Evaluation:
        """As :meth:`Scheme.evaluate`, while the processes pause."""
        assert self._processes is not None
        self._processes.settle()
        return super().evaluate(episodes, stopped)

    def state_dict(self) -> dict[str, Any]:
        """Return the state from which the run resumes: the shared one, and that of each process."""
        assert self._processes is not None
        self._processes.settle()
        return super().state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> list[int]:
        """Restore the state returned by `state_dict`; returns the environments whose running episodes are lost."""
        assert self._processes is not None
        self._processes.settle()
        return super().load_state_dict(state)

    def close(self) -> None:
        """End the processes, and close environments and storages."""
        try:
            self._end_processes()
        finally:
            super().close()

    def _end_processes(self) -> None:
        if self._processes is not None:
            self._processes.close()

    def _check_parts(self, settings: SchemeSettings) -> None:
        algorithm, _, storage, _ = self._given
        cls, way_out = algorithm.cls, "take Scheme, or gradient workers of RayScheme"
        if "fork" not in get_all_start_methods():
            raise CompositionError(f"HogwildScheme needs a system that forks processes, as Linux does; {way_out}")
        for name in ("sources", "mixed"):
            if settings.get(name):
                raise CompositionError(
                    f"HogwildScheme: each process learns from its own rollouts alone; leave out {name}, or take Scheme"
                )
        refuse_collection("HogwildScheme", settings)
        device = find_device(settings.get("device", "cpu"))
        if device.type != "cpu":
            raise CompositionError(
                f"HogwildScheme: the shared parameters lie in the memory of the CPU, got device {device}; give it "
                f'device="cpu", or {way_out}'
            )
        for name, reason in _OF_ONE_PROCESS.items():
            if storage.hyper_parameters.get(name) is not None:
                raise CompositionError(
                    f"HogwildScheme: each process has a {storage.name} of its own, {reason}; leave out {name}, or "
                    f"{way_out}"
                )
        if any(getattr(cls, name) is not getattr(Algorithm, name) for name in _PLAIN):
            raise CompositionError(
                f"HogwildScheme: {algorithm.name} does more in an update than apply the gradients of its losses; take "
                f"A2C, IMPALA, NStepQLearning, DQN or PCL, or Scheme"
            )
        if self._explorers is not None and len(self._explorers) != self._num_processes:
            raise CompositionError(
                f"HogwildScheme: there are {self._num_processes} processes and {len(self._explorers)} explorers; give "
                f"one for each"
            )
        if self._explorers is not None and "explorer" not in algorithm.hyper_parameters:
            raise CompositionError(f"HogwildScheme: {algorithm.name} takes no explorer; leave out explorers")

    def _scheme_of(self, number: int) -> Callable[[], Scheme]:
        algo_factory, actor_factory, storage_factory, envs_factory = self._given
        return partial(
            Scheme,
            with_explorer(algo_factory, self._explorers, number),
            actor_factory,
            storage_factory,
            envs_factory,
            normalize_rewards=self._settings.get("normalize_rewards"),
            seed=seed_of_worker(self.run_seed, number),
        )
