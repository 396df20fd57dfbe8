"""The scheme that collects experience, computes gradients and updates in a single process."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
import torch

from pytorchrl.agent.actors.actor import Actor
from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.agent.algorithms.results import Metrics
from pytorchrl.agent.algorithms.update_plan import Wait
from pytorchrl.agent.device import check_default_dtype, find_device
from pytorchrl.agent.envs.spaces import compact, space_as_data
from pytorchrl.agent.envs.vec_env import VecEnv, one_copy
from pytorchrl.agent.global_generators import seeded, seeding_processes
from pytorchrl.agent.other_names import SCHEME_METHODS, SCHEME_NAMES
from pytorchrl.agent.other_names.calls import answering_calls
from pytorchrl.scheme.collector import Collecting, Collector, Episode
from pytorchrl.scheme.compatibility import (
    CompositionError,
    check_batches,
    check_parts,
    storages_read,
    warn_of_unused_mask,
)
from pytorchrl.scheme.dataset_factory import DatasetEnvs, DatasetFactory, LoadedData
from pytorchrl.scheme.evaluation import MAX_EPISODE_STEPS, Evaluation
from pytorchrl.scheme.evaluation_envs import EvaluationEnvs
from pytorchrl.scheme.overlap import Overlapped, OverlappedCollector
from pytorchrl.scheme.seeds import (
    ALGORITHM,
    OF_TRAINING,
    PROCESSES,
    RANDOM_ACTIONS,
    STORAGE,
    WEIGHTS,
    seed_of,
    seed_of_training_envs,
)
from pytorchrl.scheme.sources import count_data, sources_of, state_of_source
from pytorchrl.scheme.stored_rewards import RewardNormalization
from pytorchrl.scheme.waiting import collected_since, explain_wait
from pytorchrl.scheme.wrong_calls import answer_call
from storages.closing import Closing, close_all
from storages.component.annotations import conform_named
from storages.component.factory import Factory
from storages.component.hyper_parameters import Count, CountOrZero
from storages.component.other_names import Answering, answer_missing
from storages.core.sampling.rate_limiter import RateLimiter, RateLimitError
from storages.off_policy.mixed_storage import MixedSource
from storages.storage import Storage


class Scheme(Answering, Closing):
    """An algorithm, an actor, storages and environments, built from their factories in one process.

    Args:
        algo_factory: of the algorithm.
        actor_factory: of the actor, the body of the networks.
        storage_factory: of the main storage, the source that algorithms know as "main".
        train_envs_factory: of the training environments. None trains offline, from the data in the sources: steps are
            then update phases, wherever steps are counted.
        test_envs_factory: of the test environments. None uses one copy of the training environments, in this process.
        sources: further sources of batches, such as expert data, by the names that the algorithm or ``mixed`` uses.
        mixed: sources whose batches are mixed from several others, by the names that the algorithm uses:
            ``{"main": MixedSource({"demonstrations": 0.5, "main": 0.5})}`` draws half of each batch of "main" from
            ``sources["demonstrations"]``, and half from ``storage_factory``.
        normalize_rewards: divide stored rewards by a running standard deviation: of "returns", discounted with the
            algorithm's gamma, or of "rewards"; None stores the environments' rewards.
        collection: ``Overlapped(...)`` collects in other processes during updates; None collects between them.
        device: of the networks and batches: "cpu", "cuda", "cuda:1", or "auto", the GPU if there is one at the start.
        seed: of all random numbers of the run.
        max_test_episode_steps: the longest episode of an evaluation; a longer one is truncated, with a warning.
        test_seed: plays the same episodes in all evaluations: number i begins with ``env.reset(seed=test_seed + i)``,
            so that another policy or rule can be compared in the same ones. None plays others in each.

    Raises:
        CompositionError: the parts are incompatible.
        DefaultDtypeError: torch's default dtype is not float32.
        DeviceError: the device is not available.
        ValueError: ``max_test_episode_steps`` is not positive.
        UnsupportedSpaceError: the algorithm cannot act in the environments.
    """

    other_names, other_methods = SCHEME_NAMES, SCHEME_METHODS

    envs: VecEnv | None = None
    """The training environments; None where it collects nothing."""

    if not TYPE_CHECKING:  # for which each name would exist
        __getattr__ = answer_missing

    @answering_calls(answer_call)
    def __init__(
        self,
        algo_factory: Factory[Algorithm],
        actor_factory: Factory[Actor],
        storage_factory: Factory[Storage],
        train_envs_factory: Factory[VecEnv] | None = None,
        test_envs_factory: Factory[VecEnv] | None = None,
        *,
        sources: Mapping[str, Factory[Storage]] | None = None,
        mixed: Mapping[str, MixedSource] | None = None,
        normalize_rewards: Literal["returns", "rewards"] | None = None,
        collection: Overlapped | None = None,
        device: torch.device | str = "cpu",
        seed: int = 0,
        max_test_episode_steps: int = MAX_EPISODE_STEPS,
        test_seed: int | None = None,
    ) -> None:
        if sources and "main" in sources:
            raise CompositionError("Scheme: the source 'main' is storage_factory; leave it out of sources")
        sources, mixed = {"main": storage_factory} | dict(sources or {}), dict(mixed or {})
        check_parts(
            algo_factory, actor_factory, sources, mixed, train_envs_factory, test_envs_factory, normalize_rewards
        )
        warn_of_unused_mask(actor_factory, train_envs_factory)
        if collection is not None:
            collection.check(storage_factory, train_envs_factory)
        check_default_dtype(type(self).__name__)
        self.device = find_device(device)
        self.run_seed = conform_named(seed, CountOrZero, "Scheme: seed")
        max_test_episode_steps = conform_named(max_test_episode_steps, Count, "Scheme: max_test_episode_steps")
        if test_seed is not None:
            test_seed = conform_named(test_seed, CountOrZero, "Scheme: test_seed")
        given = (algo_factory, actor_factory, *sources.values(), train_envs_factory, test_envs_factory)
        self.factories: tuple[Factory[Any], ...] = tuple(filter(None, given))
        """The factories that were given."""
        self.config: dict[str, Any] = {
            "algorithm": algo_factory.config,
            "actor": actor_factory.config,
            "storage": storage_factory.config,
            "train_envs": None if train_envs_factory is None else train_envs_factory.config,
            "test_envs": None if test_envs_factory is None else test_envs_factory.config,
            "sources": {name: factory.config for name, factory in sources.items() if name != "main"},
            "mixed": {name: mix.config for name, mix in mixed.items()},
            "normalize_rewards": normalize_rewards,
            "collection": None if collection is None else collection.config,
            "device": str(self.device),
            "seed": self.run_seed,
            "max_test_episode_steps": max_test_episode_steps,
            "test_seed": test_seed,
        }
        """The composition as plain data."""
        self.test_envs = EvaluationEnvs(
            test_envs_factory or (one_copy(train_envs_factory) if train_envs_factory else None),
            is_copy=test_envs_factory is None,
            run_seed=self.run_seed,
            max_episode_steps=max_test_episode_steps,
            test_seed=test_seed,
        )
        """The test environments."""
        self._collection, self._mixed = collection, mixed
        self._ended: list[Episode] = []
        """Episodes that ended since update phases were last due."""
        self._episodes_learnt = 0
        """Number of episodes that had ended when update phases were last due."""
        self._updates_begun = 0
        """Update phases begun by a scheme that collects nothing."""
        self._has_counted_data = False
        """Whether the data's observations are in the normalisation statistics, in a scheme that collects nothing."""
        self.storages: dict[str, Storage] = {}
        """All storages, by the names of sources."""
        self._collector: Collecting | None = None
        self._overlapped: OverlappedCollector | None = None
        """The collector, where collection and updates overlap."""
        try:
            self._make_learning_parts(sources, train_envs_factory, test_envs_factory)
            self._seed_parts()
            if self.envs is not None:
                with self._seeding_processes():
                    self._collector = self.make_collector(self.envs, normalize_rewards)
        except BaseException:
            self.close()
            raise

    def _make_learning_parts(
        self,
        sources: Mapping[str, Factory[Storage]],
        train_envs_factory: Factory[VecEnv] | None,
        test_envs_factory: Factory[VecEnv] | None,
    ) -> None:
        """Make environments, algorithm, actor and storages, in this order."""
        if train_envs_factory is not None:
            with self._seeding_processes():
                self.envs = self.make_envs(train_envs_factory)
        self._spaces = spaces = self.envs or self._spaces_of_data(sources["main"])
        self.factories[0].cls.check_spaces(spaces)
        self.algorithm = self.make_algorithm()
        self.actor = self.test_envs.actor = self.algorithm.actor
        if test_envs_factory is not None and train_envs_factory is not None:
            self.test_envs.check(one_copy(test_envs_factory), one_copy(train_envs_factory))
        collected = {"main"} if self.envs is not None else set()
        with self._seeding_processes():
            for name, factory in sources.items():
                # Data sets define their own number of environments.
                envs = spaces if name in collected else DatasetEnvs(spaces)
                self.storages[name] = self.make_storage(name, factory, envs)
        self.storage = self.storages["main"]
        """The main storage, which gets the environments' steps."""
        check_batches(self.algorithm, self.storage)
        self.sources = sources_of(self.algorithm, self.storages, self._mixed)
        """The storages, or mixes of storages, that the algorithm draws batches from, by name."""
        self._limiter: RateLimiter | None = getattr(self.storage, "rate_limiter", None)
        """Determines when update phases are due, instead of the algorithm's plan."""
        self._saved: dict[str, Storage | LoadedData] = {
            name: state_of_source(name, self.storages[name], factory, is_collected=name in collected)
            for name, factory in sources.items()
        }
        """The sources' objects whose state is in checkpoints."""
        self.action_names = _action_names_in(sources)
        """Names of discrete actions in the data, in the order of their numbers; none without names."""
        named = {"action_names": self.action_names} if self.action_names else {}
        self.config["spaces"] = {
            "observation": compact(space_as_data(self.actor.observation_space)),
            "action": compact(space_as_data(self.actor.action_space)),
            **named,
        }

    def _seed_parts(self) -> None:
        self.algorithm.seed(self._seed_of(ALGORITHM))
        for position, storage in enumerate(self.storages.values()):
            storage.seed(self._seed_of(STORAGE, *([position] if position else [])))

    def make_envs(self, factory: Factory[VecEnv]) -> VecEnv:
        """Make the training environments."""
        if self._collection is None:
            return factory()
        algo_factory, actor_factory, *_ = self.factories
        return self._collection.make_envs(algo_factory, actor_factory, factory)

    def make_algorithm(self, *moment: int) -> Algorithm:
        """Make the algorithm and a new actor, with weights of the run's seed and, for new ones, of a moment."""
        algo_factory, actor_factory, *_ = self.factories
        with seeded(self._seed_of(WEIGHTS, *moment), self.device):
            return cast("Algorithm", algo_factory(self.device, actor_factory(self.device, self._spaces), self._spaces))

    def make_storage(self, name: str, factory: Factory[Storage], envs: Any) -> Storage:
        """Make the storage of the source ``name``, which reads attributes of ``envs``, after all parts before it."""
        return factory(self.device, self.actor, self.algorithm, envs)

    def make_collector(self, envs: VecEnv, normalize_rewards: Literal["returns", "rewards"] | None) -> Collecting:
        """Make the collector that fills the main storage; called after all other parts were made."""
        rewards = (
            RewardNormalization(normalize_rewards, self.algorithm.gamma, envs.num_envs) if normalize_rewards else None
        )
        if self._collection is not None:
            self._overlapped = self._collection.make_collector(
                envs, self.algorithm, self.storage, rewards, self.run_seed
            )
            return self._overlapped
        collector = Collector(envs, self.algorithm, self.storage, rewards)
        collector.seed(self._seed_of(RANDOM_ACTIONS))
        collector.reset(seed_of_training_envs(self.run_seed))
        return collector

    @property
    def collector(self) -> Collecting | None:
        """The collector; None where it collects nothing."""
        return self._collector

    @property
    def steps(self) -> int:
        """Environment transitions collected so far; update phases where it collects nothing."""
        return self._updates_begun if self._collector is None else self._collector.steps

    @property
    def unit(self) -> str:
        """The unit of :attr:`steps`: "steps" or "updates"."""
        return "updates" if self._collector is None else "steps"

    def collect(self, until: int, stopped: Callable[[], bool] = lambda: False) -> tuple[list[Episode], int]:
        """Collect until update phases are due, or until :attr:`steps` reaches ``until``.

        Returns early where ``stopped`` returns true; the next call then continues, with the same result as a single
        call. In a scheme that collects nothing, one update phase is due at once.

        Returns:
            The episodes that ended, and how many update phases are due; an empty list and 0 if it was stopped.
        """
        collector = self._collector
        if collector is None:
            if stopped() or self._updates_begun >= until:
                return [], 0
            self._updates_begun += 1
            return [], 1
        limiter, due = self._limiter, 0
        while not due and self.steps < until:
            if stopped():
                return [], 0
            if limiter is not None and limiter.is_due:
                due = 1
                break
            before, episodes_before = collector.steps, collector.episodes
            self._ended += collector.step()
            if limiter is None:
                due = self.phases_due(before, episodes_before)
        if due:
            self._episodes_learnt = collector.episodes
        episodes, self._ended = self._ended, []
        if episodes:
            self.storage.after_episodes([episode.episode_return for episode in episodes])
        return episodes, due

    def phases_due(self, before: int, episodes_before: int) -> int:
        """Return how many update phases are due after a step of the collector, by the algorithm's plan.

        Args:
            before: environment transitions before the step.
            episodes_before: episodes that had ended before it.
        """
        collector = self._collector
        assert collector is not None
        collected = collected_since(
            before, episodes_before - self._episodes_learnt, collector, self._episodes_learnt, self.storage
        )
        return self.algorithm.plan.phases_due(collected)

    def explain_wait(self) -> Wait:
        """Return why no update phase is due, and what makes one due."""
        return explain_wait(self.algorithm, self.storages, self._collector, self._episodes_learnt)

    def take_shaped_returns(self) -> list[float]:
        """Return the returns of episodes that ended since the last call, summed over the stored rewards.

        The list is empty unless stored rewards may differ from the environments' own: under wrappers, or where rewards
        are normalised.
        """
        return [] if self._collector is None else self._collector.take_shaped_returns()

    def set_progress(self, steps: int, target_steps: int) -> None:
        """Set the schedules of algorithm, explorer and storages to ``steps`` of ``target_steps``."""
        self.algorithm.set_progress(steps, target_steps)
        for storage in self.storages.values():
            storage.set_progress(steps, target_steps)
        if self._collector is not None:
            self._collector.set_target(target_steps)

    def update(self, measured: bool = False) -> Iterator[Metrics]:
        """Run one update phase; yields the metrics of each update, from the algorithm and the storages.

        Args:
            measured: add those of the algorithm's ``measure`` to the first update's, for a log.

        Raises:
            RateLimitError: the storage has a rate limit, and the algorithm drew nothing from it in the phase.
        """
        if self._collector is None and not self._has_counted_data:
            count_data(self.actor, [self.storages[name] for name in storages_read("main", self._mixed)])
            self._has_counted_data = True
        drawn = self._limiter.drawn if self._limiter is not None else 0
        collection_metrics = {} if self._overlapped is None else self._overlapped.metrics
        # Some algorithms draw batches several times in a phase.
        with nullcontext() if self._limiter is None else self._limiter.update_phase():
            for metrics in self._measured_updates() if measured else self._updates():
                yield {**metrics, **collection_metrics}
        if self._limiter is not None and self._limiter.drawn == drawn:
            raise RateLimitError(
                f"Scheme: an update phase was due by {self._limiter.limit}, but {type(self.algorithm).__name__} drew "
                f"no batch from the storage; leave out rate_limit"
            )
        if self.actor.normalization is not None:
            self.actor.normalization.use_newest()
        for storage in self.storages.values():
            if storage.on_policy:
                storage.reset()

    def _measured_updates(self) -> Iterator[Metrics]:
        updates = self._updates()
        # A group that takes no step in the first update, such as a delayed policy's, is measured in its next one.
        for group in self.algorithm.training.groups.values():
            group.measures_gradients = True
        first = next(updates, None)
        if first is not None:
            yield {**first, **self.algorithm.measure(self.sources)}
        yield from updates

    def _updates(self) -> Iterator[Metrics]:
        updates = self.algorithm.update_phase(self.sources)
        while True:
            # Not beyond the update: callbacks draw from torch's global generator as ever.
            with self.actor.updating():
                metrics = next(updates, None)
            if metrics is None:
                return
            yield metrics

    def evaluate(self, episodes: int, stopped: Callable[[], bool] = lambda: False) -> Evaluation:
        """Run episodes in the test environments without exploration.

        The random generators of training are not used: the episodes depend on the run's seed and the steps so far.
        Raises EvaluationStoppedError where ``stopped`` returns true; later evaluations are not affected by it.
        """
        return self.test_envs.evaluate(self.algorithm, episodes, self.steps, stopped)

    def evaluate_apart(self, episodes: int, stopped: Callable[[], bool] = lambda: False) -> Evaluation:
        """Evaluate as :meth:`evaluate` does, and then restore the test environments' state, such as statistics."""
        return self.test_envs.evaluate_apart(lambda: self.evaluate(episodes, stopped))

    @property
    def test_envs_factory(self) -> Factory[VecEnv] | None:
        """Of the test environments; None where there are none."""
        return self.test_envs.factory

    @property
    def can_evaluate(self) -> bool:
        """Whether there are test environments."""
        return self.test_envs_factory is not None

    @property
    def changeable(self) -> list[Algorithm | Storage]:
        """The algorithm, all storages and all mixes, whose hyper-parameters may change during a run."""
        return [self.algorithm, *self.storages.values(), *(self.sources[name] for name in self._mixed)]

    def state_dict(self) -> dict[str, Any]:
        """Return the state from which the run resumes, running episodes included, as tensors and plain data."""
        return {
            "algorithm": self.algorithm.state_dict(),
            "storage": self._saved["main"].state_dict(),
            "sources": {name: saved.state_dict() for name, saved in self._saved.items() if name != "main"},
            "collector": self._collector.state_dict() if self._collector else {"steps": self._updates_begun},
            "mixed": {name: self.sources[name].changed_parameters for name in self._mixed},
            "episodes_learnt": self._episodes_learnt,
            "ended": [episode.state_dict() for episode in self._ended],
            # Wrappers may accumulate statistics over evaluations.
            "test_envs": self.test_envs.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> list[int]:
        """Restore the state returned by `state_dict`; returns the environments whose running episodes are lost.

        In these a new episode begins; the storage treats the lost one as truncated.
        """
        self.algorithm.load_state_dict(state["algorithm"])
        for name, saved in self._saved.items():
            saved.load_state_dict(state["storage"] if name == "main" else state["sources"][name])
        for name in self._mixed.keys() & state["mixed"].keys():
            self.sources[name].take_changes(state["mixed"][name])
        self._episodes_learnt = state["episodes_learnt"]
        self._ended = [Episode(*episode) for episode in state["ended"]]
        self.test_envs.load_state_dict(state["test_envs"], self.algorithm)
        if self._collector is None:
            self._updates_begun = state["collector"]["steps"]
            return []
        return self._collector.load_state_dict(state["collector"])

    def close(self) -> None:
        """Close all environments and storages."""
        close_all([*filter(None, [self.envs]), self.test_envs, *self.storages.values()])

    def _spaces_of_data(self, storage_factory: Factory[Storage]) -> Any:
        """Return the spaces of a scheme that collects nothing: of the test environments, else of the data."""
        if self.test_envs_factory is not None:
            return self.test_envs.reset()
        if isinstance(storage_factory, DatasetFactory):
            return storage_factory.spaces()
        raise CompositionError(
            "Scheme: without environments the spaces of observations and actions are not known; give it "
            "test_envs_factory, or a storage that is filled by from_dataset"
        )

    def _seeding_processes(self) -> AbstractContextManager[None]:
        return seeding_processes(self._seed_of(PROCESSES, OF_TRAINING))

    def _seed_of(self, *purpose: int) -> np.random.SeedSequence:
        return seed_of(self.run_seed, *purpose)


def _action_names_in(sources: Mapping[str, Factory[Storage]]) -> list[str]:
    """Return the names of discrete actions in the data sets of all sources; none where none has names.

    Raises:
        CompositionError: two number their actions differently.
    """
    found: dict[str, list[str]] = {}
    for factory in sources.values():
        if isinstance(factory, DatasetFactory) and (names := factory.action_names()):
            found[factory.path] = names
    for path, names in found.items():
        first, others = next(iter(found.items()))
        if names != others:
            raise CompositionError(
                f"Scheme: {first} and {path} number their actions differently, {', '.join(others)} and "
                f"{', '.join(names)}; convert both with the same --action-names"
            )
    return next(iter(found.values()), [])
