"""Who does the work: collects, computes gradients, updates. Here, all of it in one process."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from pytorchrl.agent.actors.actor import Actor
from pytorchrl.agent.algorithms.algorithm import STOP_UPDATES, Algorithm, Info
from pytorchrl.agent.device import find_device
from pytorchrl.agent.envs.vec_env import VecEnv
from pytorchrl.scheme.collector import Collector, Episode
from pytorchrl.scheme.evaluation import MAX_EPISODE_STEPS, Evaluation, evaluate
from storages.episodes import Episodes
from storages.factory import Factory
from storages.storage import Storage

# Streams of random numbers that follow from the run's seed, one for each purpose.
_WEIGHTS, _ALGORITHM, _STORAGE, _RANDOM_ACTIONS, _TRAIN_ENVS, _TEST_ENVS = range(6)


class CompositionError(ValueError):
    """Parts that do not go together."""


class Scheme:
    """An algorithm, an actor, a storage and environments, made of their factories and wired in one process.

    Args:
        algo_factory: how to learn.
        actor_factory: the networks' body.
        storage_factory: how experience is kept.
        train_envs_factory: where to act.
        test_envs_factory: where to be evaluated. None takes one copy of the training environments, with the same
            wrappers and arguments, in this process.
        device: where networks live and batches land: "cpu", "cuda", "cuda:1", or "auto", which is the GPU where there
            is one. The run keeps what "auto" came to.
        seed: all randomness of the run follows from it.
        max_test_episode_steps: the longest episode of an evaluation. One that has not ended by then is cut there, with
            a warning, and counts with its return up to there.

    Raises:
        CompositionError: the parts do not go together.
        DeviceError: the device is not here.
        ValueError: ``max_test_episode_steps`` is not positive.
        UnsupportedSpaceError: the algorithm cannot act in the environments.
    """

    def __init__(
        self,
        algo_factory: Factory[Algorithm],
        actor_factory: Factory[Actor],
        storage_factory: Factory[Storage],
        train_envs_factory: Factory[VecEnv],
        test_envs_factory: Factory[VecEnv] | None = None,
        *,
        device: torch.device | str = "cpu",
        seed: int = 0,
        max_test_episode_steps: int = MAX_EPISODE_STEPS,
    ) -> None:
        _check_roles(algo_factory, actor_factory, storage_factory, train_envs_factory, test_envs_factory)
        _check_composition(algo_factory, actor_factory, storage_factory)
        self.device = find_device(device)
        self.run_seed = seed
        if max_test_episode_steps < 1:
            raise ValueError(f"Scheme: max_test_episode_steps must be an int from 1, got {max_test_episode_steps!r}")
        self._max_test_episode_steps = max_test_episode_steps
        given = (algo_factory, actor_factory, storage_factory, train_envs_factory, test_envs_factory)
        self.factories: tuple[Factory[Any], ...] = tuple(filter(None, given))
        """What it was composed of."""
        self.config: dict[str, Any] = {
            "algorithm": algo_factory.config,
            "actor": actor_factory.config,
            "storage": storage_factory.config,
            "train_envs": train_envs_factory.config,
            "test_envs": test_envs_factory.config if test_envs_factory is not None else None,
            "device": str(self.device),
            "seed": seed,
            "max_test_episode_steps": max_test_episode_steps,
        }
        """The composition as plain data."""
        self._test_envs_factory = test_envs_factory or VecEnv.create_factory(
            **(train_envs_factory.hyper_parameters | {"num_envs": 1, "mode": "sync"})
        )
        self._test_envs: VecEnv | None = None
        self._test_envs_to_come: dict[str, Any] | None = None
        """State of the test environments that are not made yet."""
        self._ended: list[Episode] = []
        """Episodes that ended since update phases were due."""
        self.envs = train_envs_factory()
        try:
            algo_factory.cls.check_spaces(self.envs)
            with _seeded(self._seed_of(_WEIGHTS)):
                self.actor = actor_factory(self.device, self.envs)
                self.algorithm = algo_factory(self.device, self.actor, self.envs)
            self.storage = storage_factory(self.device, self.actor, self.algorithm, self.envs)
        except BaseException:
            self.envs.close()
            raise
        self.algorithm.seed(self._seed_of(_ALGORITHM))
        self.storage.seed(self._seed_of(_STORAGE))
        self._collector = Collector(self.envs, self.algorithm, self.storage)
        self._collector.seed(self._seed_of(_RANDOM_ACTIONS))
        self._collector.reset(self._seed_of(_TRAIN_ENVS))

    @property
    def steps(self) -> int:
        """Environment transitions collected so far."""
        return self._collector.steps

    def collect(self, until: int, stopped: Callable[[], bool] = lambda: False) -> tuple[list[Episode], int]:
        """Act until update phases are due, or ``until`` environment transitions were collected.

        Where ``stopped`` says so it ends earlier, and the next call goes on as if there had been one alone.

        Returns:
            The episodes that ended, and how many update phases are due; none of either if it was stopped.
        """
        due = 0
        while not due and self.steps < until:
            if stopped():
                return [], 0
            before = self.steps
            self._ended += self._collector.step()
            due = self._update_phases_due(before, self.steps)
        episodes, self._ended = self._ended, []
        if episodes:
            self.storage.after_episodes([episode.episode_return for episode in episodes])
        return episodes, due

    def set_progress(self, steps: int, target_steps: int) -> None:
        """Let the schedules of algorithm and storage follow ``steps`` of ``target_steps``."""
        self.algorithm.set_progress(steps, target_steps)
        self.storage.set_progress(steps, target_steps)

    def update(self) -> Iterator[Info]:
        """Go through one update phase; yields what each update and the storage say of it."""
        self.storage.before_gradients()
        algorithm = self.algorithm
        batches = self.storage.generate_batches(
            algorithm.num_mini_batch, algorithm.mini_batch_size, algorithm.num_epochs
        )
        for batch in batches:
            info = self.storage.after_gradients(batch, algorithm.update(batch))
            yield info
            if info.get(STOP_UPDATES):
                break
        algorithm.actor.after_update_phase()
        if self.storage.on_policy:
            self.storage.reset()

    def evaluate(self, episodes: int, stopped: Callable[[], bool] = lambda: False) -> Evaluation:
        """Run episodes in the test environments, as well as the algorithm can; no random number of training is used.

        The episodes follow from the run's seed and the steps so far.

        Raises:
            EvaluationStoppedError: ``stopped`` said so; a later evaluation is as if there had been none.
        """
        before, envs = self._state_of_test_envs(), self._made_test_envs()
        seed = self._seed_of(_TEST_ENVS, self.steps)
        try:
            return evaluate(self.algorithm, envs, episodes, seed, self._max_test_episode_steps, stopped)
        except BaseException:
            self._test_envs, self._test_envs_to_come = None, before
            envs.close()
            raise

    def state_dict(self) -> dict[str, Any]:
        """Everything that the run goes on from, the running episodes too, as tensors and plain data."""
        return {
            "algorithm": self.algorithm.state_dict(),
            "storage": self.storage.state_dict(),
            "collector": self._collector.state_dict(),
            "ended": [[episode.episode_return, episode.length] for episode in self._ended],
            # Wrappers may keep statistics from one evaluation to the next.
            "test_envs": self._state_of_test_envs(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> list[int]:
        """Restore the state returned by `state_dict`; returns the environments whose running episodes are lost.

        There, a new episode begins; for the storage the old one was cut, as by a limit.
        """
        self.algorithm.load_state_dict(state["algorithm"])
        self.storage.load_state_dict(state["storage"])
        self._ended = [Episode(*episode) for episode in state["ended"]]
        self._test_envs_to_come = state["test_envs"]
        return self._collector.load_state_dict(state["collector"])

    def close(self) -> None:
        """Close all environments, and the storage."""
        self.envs.close()
        if self._test_envs is not None:
            self._test_envs.close()
        self.storage.close()

    def _made_test_envs(self) -> VecEnv:
        if self._test_envs is None:
            self._test_envs = self._test_envs_factory()
            if self._test_envs_to_come is not None:
                self._test_envs.load_state_dict(self._test_envs_to_come)
        return self._test_envs

    def _state_of_test_envs(self) -> dict[str, Any] | None:
        return self._test_envs_to_come if self._test_envs is None else self._test_envs.state_dict()

    def _update_phases_due(self, before: int, after: int) -> int:
        every = self.algorithm.update_every
        if every is None:
            return int(len(self.storage) == self.storage.capacity)
        if not len(self.storage):
            # A storage of whole episodes has nothing to learn from before the first has ended.
            return 0
        start = self.algorithm.start_steps
        return max(0, after - start) // every - max(0, before - start) // every

    def _seed_of(self, *purpose: int) -> np.random.SeedSequence:
        return np.random.SeedSequence(self.run_seed, spawn_key=purpose)


@contextmanager
def _seeded(seed: np.random.SeedSequence) -> Iterator[None]:
    """Let torch's global generator, which makes initial weights, follow from a seed; it is put back afterwards."""
    with torch.random.fork_rng():
        torch.manual_seed(int(seed.generate_state(1, np.uint64)[0]) >> 1)
        yield


def _check_roles(*factories: Any) -> None:
    names = ("algo_factory", "actor_factory", "storage_factory", "train_envs_factory", "test_envs_factory")
    for name, factory, role in zip(names, factories, (Algorithm, Actor, Storage, VecEnv, VecEnv), strict=True):
        if factory is None and name == "test_envs_factory":
            continue
        if not isinstance(factory, Factory) or not issubclass(factory.cls, role):
            raise CompositionError(
                f"Scheme: {name} must be made by create_factory of a subclass of {role.__name__}, got {factory!r}"
            )


def _check_composition(algorithm: Factory[Algorithm], actor: Factory[Actor], storage: Factory[Storage]) -> None:
    if not issubclass(actor.cls, algorithm.cls.actor_class):
        raise CompositionError(
            f"Scheme: {algorithm.name} acts with an {algorithm.cls.actor_class.__name__}, got an {actor.name}"
        )
    if algorithm.cls.on_policy and not storage.cls.on_policy:
        raise CompositionError(
            f"Scheme: {algorithm.name} learns on-policy, but {storage.name} keeps what older policies did; "
            f"GAEBuffer and VanillaOnPolicyBuffer hold rollouts"
        )
    remembers, sequences = (f.hyper_parameters.get(n) for f, n in ((actor, "memory"), (storage, "sequences")))
    if not storage.cls.on_policy and not algorithm.cls.on_policy and (remembers is None) != (sequences is None):
        raise CompositionError(
            f"Scheme: {actor.name} has a memory ({remembers}), which learns from sequences, but {storage.name} makes "
            f"batches of single transitions; give it sequences=Sequences(length=...) or sequences=Episodes()"
            if sequences is None
            else f"Scheme: {storage.name} makes batches of {sequences}, but {actor.name} has no memory to learn from "
            f'them; give it memory="gru", or the storage sequences=None'
        )
    if isinstance(sequences, Episodes) and sequences.packed and not algorithm.cls.learns_from_packed:
        raise CompositionError(
            f"Scheme: {algorithm.name} learns from episodes that are filled up, but {storage.name} makes batches of "
            f"{sequences}; give it packed=False"
        )
    if storage.cls.on_policy and not algorithm.cls.on_policy:
        raise CompositionError(
            f"Scheme: {algorithm.name} learns from replayed transitions, but {storage.name} holds one rollout of the "
            f"current policy; ReplayBuffer keeps them"
        )
