"""An agent that is asked for actions and told their results, for programs that own the loop."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from pytorchrl.agent.actors.actor import Actor
from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.agent.algorithms.update_plan import Wait
from pytorchrl.agent.envs.driven import DrivenEnvs
from pytorchrl.agent.envs.spaces import EnvActions, check_action_space, space_as_data
from pytorchrl.agent.envs.vec_env import VecEnv
from pytorchrl.agent.envs.wrappers.flat_observation import Flattening
from pytorchrl.agent.other_names import AGENT_METHODS
from pytorchrl.background_training import BackgroundTraining
from pytorchrl.experiments.explanation import Explanation
from pytorchrl.experiments.policies.trained_policy import TrainedPolicy
from pytorchrl.experiments.runs.run_folder import RunFolder
from pytorchrl.learner import Learner
from pytorchrl.logging import Logger
from pytorchrl.scheme.background_collector import BackgroundCollector
from pytorchrl.scheme.collector import Collecting, Collector, Episode
from pytorchrl.scheme.compatibility import CompositionError
from pytorchrl.scheme.scheme import Scheme
from pytorchrl.scheme.seeds import ALGORITHM, seed_of
from pytorchrl.terminal import tell
from storages.closing import Closing
from storages.component.annotations import conform_named
from storages.component.factory import Factory
from storages.component.hyper_parameters import Count
from storages.component.other_names import Answering, answer_missing
from storages.storage import Storage


class Agent(Answering, Closing):
    """A learning agent that is driven from outside: by a robot, a game engine or a simulator with a loop of its own.

    ``action = agent.act(observation)`` chooses an action, ``agent.observe(...)`` tells what came of it, and learns when
    updates are due. Underneath are a `Scheme` and a `Learner`: storages, updates, evaluations, metrics and checkpoints
    are those of other runs, and the same seed and observations give the same actions.

    A run that is resumed goes on in the middle of its episode if the first observation is the one that it was saved
    at; else that episode counts as truncated, and a new one begins.

    Args:
        algo_factory: of the algorithm.
        actor_factory: of the actor.
        storage_factory: of the storage.
        log_dir: the run folder, with metrics and checkpoints.
        target_steps: transitions of all environments that schedules, such as of exploration, are spread over; the agent
            learns until then.
        observation_space: of one environment.
        action_space: of one environment.
        num_envs: number of environments; None is one whose observations, rewards and actions have no batch axis.
        test_envs_factory: of environments for evaluations; None makes none.
        resume: go on with the run in ``log_dir``, where there is one with a checkpoint.
        checkpoint_every: transitions between checkpoints; None saves by :meth:`save`, and by :meth:`close` at the
            target, alone.
        log_to: further loggers, as of :class:`Learner`.
        log_every: transitions between records of metrics.
        train_in_background: train in another thread, so that :meth:`observe` does not wait for updates and evaluations.
            Actions are chosen with copies of the weights, of after the last finished update phase. When updates are
            done then depends on the machine, and runs of one seed differ.
        max_steps_ahead: steps of all environments that may wait for a training in the background; with more,
            :meth:`observe` waits.
        settings: further arguments of :class:`Scheme`, such as ``device``, ``seed`` and ``normalize_rewards``.

    Raises:
        CompositionError: the parts are incompatible.
        UnsupportedSpaceError: storages, actors or the algorithm cannot take such observations or actions.
        ValueError: ``max_steps_ahead`` is not positive.
    """

    other_methods = AGENT_METHODS

    if not TYPE_CHECKING:  # for which each name would exist
        __getattr__ = answer_missing

    def __init__(
        self,
        algo_factory: Factory[Algorithm],
        actor_factory: Factory[Actor],
        storage_factory: Factory[Storage],
        log_dir: str | os.PathLike[str],
        target_steps: int,
        *,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        num_envs: int | None = None,
        test_envs_factory: Factory[VecEnv] | None = None,
        resume: bool = False,
        checkpoint_every: int | None = None,
        log_to: Sequence[Logger] = (),
        log_every: int = 1_000,
        train_in_background: bool = False,
        max_steps_ahead: int = 1_000,
        **settings: Any,
    ) -> None:
        max_steps_ahead = conform_named(max_steps_ahead, Count, "Agent: max_steps_ahead")
        if settings.get("collection") is not None:
            raise CompositionError(
                f"Agent: it collects nothing itself; leave out collection={settings['collection']}, or give "
                f"train_in_background=True, which trains while the loop goes on"
            )
        name = type(self).__name__
        check_action_space(action_space, name, "joined = prl.JoinedActions(space), with action_space=joined.space,")
        self._flattening = Flattening(observation_space, name)
        envs = DrivenEnvs.create_factory(  # type: ignore[call-arg]
            observation_space=space_as_data(self._flattening.space),
            action_space=space_as_data(action_space),
            num_envs=num_envs or 1,
        )
        scheme = _DrivenScheme(
            algo_factory,
            actor_factory,
            storage_factory,
            envs,
            test_envs_factory,
            in_background=train_in_background,
            **settings,
        )
        if resume and RunFolder(log_dir).checkpoint_file.exists():
            self.learner = Learner.resume(log_dir, scheme=scheme, target_steps=target_steps, log_to=log_to)
        else:
            self.learner = Learner(scheme, target_steps, log_dir, log_to=log_to, log_every=log_every)
        """Trains, logs and saves."""
        self._envs, self._collector = scheme.driven, scheme.driven_collector
        self._is_one, self._checkpoint_every = num_envs is None, checkpoint_every
        self._env_actions = EnvActions(action_space)
        self._may_cut = self.learner.scheme.steps > 0
        """Whether the first observation may be of a new episode, as the run was resumed."""
        allow_nonfinite = getattr(scheme.storage, "allow_nonfinite", False)
        self._policy = TrainedPolicy(self._collector.algorithm, allow_nonfinite=allow_nonfinite)
        self._saved_at = self._learnt_at = self.steps
        """Transitions at the last checkpoint, and when the last call of :meth:`observe` had no error."""
        self._background: BackgroundTraining | None = None
        if scheme.background_collector is not None:
            self._background = BackgroundTraining(self.learner, scheme.background_collector, max_steps_ahead)

    def act(self, observation: Any, *, training: bool = True) -> Any:
        """Return the action for an observation, or actions (E, ...) for those of E environments.

        Asked again before :meth:`observe`, it returns the same.

        Args:
            observation: as gymnasium's environments return it; (E, *obs) with ``num_envs``.
            training: explore, and learn from what :meth:`observe` will tell. False acts greedily, by ``policy``, whose
                recurrent state, where there is one, begins again after ``policy.reset()``.

        Raises:
            ValueError: the observation has not the shape of the space, or in the middle of an episode it is another one
                than :meth:`observe` was told.
        """
        if not training or self.done:
            return self.policy(observation)
        if self._background is not None:
            self._background.take_weights()
        given = self._batch(observation)
        expected, running = self._collector.observation, ~self._collector.begins[:, 0]
        broken = running & ~_same_rows(given, expected, len(running))
        if broken.any() and not self._may_cut:
            raise ValueError(
                f"Agent.act: environment {int(np.flatnonzero(broken)[0])} is in the middle of an episode, but this is "
                f"another observation than observe() was told; end an episode by observe(..., truncated=True)"
            )
        if broken.any() or not self._collector.has_chosen:
            self._envs.begin(given)
            action = self._collector.choose(given, broken[:, None])
        else:
            action = self._collector.choose_again()
        self._may_cut = False
        actions = self._env_actions(np.asarray(action))
        return actions[0] if self._is_one else actions

    def observe(
        self,
        observation: Any,
        reward: Any,
        terminated: Any,
        truncated: Any = False,
        info: Mapping[str, Any] | Sequence[Mapping[str, Any]] = {},
    ) -> None:
        """Store the result of the last actions, and train if updates are due.

        Args:
            observation: that the actions led to, the final one where an episode ended; (E, *obs) with ``num_envs``.
            reward: a number; (E,) with ``num_envs``.
            terminated: whether the environment reached a terminal state; (E,) likewise.
            truncated: whether a limit cut the episode; (E,) likewise, or False for all.
            info: of the step, of which storages keep what ``info_keys`` names; with ``num_envs``, one for each.

        Raises:
            RuntimeError: no action was asked for.
            ValueError: a value has another shape than it should.
        """
        if self.done:
            return
        if not self._collector.has_chosen:
            raise RuntimeError("Agent.observe: no action was asked for; call act() with the observation first")
        self._envs.tell(
            self._batch(observation),
            self._column("reward", reward, np.float64),
            self._column("terminated", terminated, np.bool_),
            self._column("truncated", truncated, np.bool_),
            self._infos(info),
        )
        before = self.steps
        if self._background is not None:
            self._background.make_step()
        while self._envs.has_step:
            self.learner.step()
        self._learnt_at = self.steps
        every = self._checkpoint_every
        if every is not None and self.steps // every > before // every:
            self.save()

    @property
    def policy(self) -> TrainedPolicy:
        """Acts greedily with the present weights, without learning: ``agent.policy(observation)``.

        With a training in the background, the weights are those of after the last update phase, at each access.
        """
        if self._background is not None:
            self._background.take_weights()
        return self._policy

    @property
    def done(self) -> bool:
        """Whether ``target_steps`` is reached; the agent then acts greedily, and learns no more."""
        return self.learner.done() or self.steps >= self.learner.target_steps

    @property
    def steps(self) -> int:
        """Transitions so far, of all environments."""
        return self._collector.steps

    @property
    def episodes(self) -> int:
        """Episodes that ended so far; a seed for the next: ``env.reset(seed=agent.episodes)``."""
        return self._collector.episodes

    def save(self) -> Path:
        """Write a checkpoint to the run folder; returns the file. It waits for a training in the background."""
        if self._background is not None:
            self._background.settle()
        file = self.learner.save_checkpoint()
        self._saved_at = self.steps
        return file

    def start_from(self, run: str | os.PathLike[str]) -> list[str]:
        """Initialise the networks of an agent that has observed nothing from another run; see :func:`start_from`."""
        taken = self.learner.start_from(run)
        if self._background is not None:
            self._background.give_weights()
        return taken

    def get_metrics(self) -> dict[str, float]:
        """Return the latest value of each metric, and "steps" and "seconds"."""
        return self.learner.get_metrics()

    def explain(self) -> Explanation:
        """Return why no update is due, or why none was made, and what the agent waits for."""
        return self.learner.explain()

    def close(self) -> None:
        """Close storages and loggers, and release the lock of the run folder.

        An agent that has reached its target saves a checkpoint if it has not; any other prints how many steps were not
        saved. A training in the background first learns from all that was observed.
        """
        try:
            if self._background is not None:
                self._background.close()
            self._save_or_tell()
        finally:
            self.learner.close()

    def _save_or_tell(self) -> None:
        """Save a complete run; print what is lost of any other. An update that an error ended is not saved."""
        unsaved, self._saved_at = self.steps - self._saved_at, self.steps
        if not unsaved:
            return
        has_learnt = self._learnt_at == self.steps
        if self.done and has_learnt:
            self.learner.save_checkpoint()
            return
        way_out = ": agent.save() before close() saves them, as does checkpoint_every" if has_learnt else ""
        tell(
            f"The agent was closed at {self.steps:,} of {self.learner.target_steps:,} steps; the last {unsaved:,} are "
            f"not saved in {self.learner.log_dir}{way_out}."
        )

    def _batch(self, observation: Any) -> Any:
        """Return observations (E, *obs), or a dict of such, as arrays of the space's dtypes, in a copy."""
        batch, is_one = self._policy.as_arrays(observation)
        if is_one != self._is_one:
            wanted = "of one environment" if self._is_one else f"(E, ...) of {self._envs.num_envs} environments"
            raise ValueError(f"Agent: observations must be {wanted}; num_envs of the agent says how many there are")
        count = len(next(iter(batch.values())) if isinstance(batch, Mapping) else batch)
        if count != self._envs.num_envs:
            raise ValueError(f"Agent: got observations of {count} environments, num_envs is {self._envs.num_envs}")
        return {key: np.array(part) for key, part in batch.items()} if isinstance(batch, Mapping) else np.array(batch)

    def _column(self, name: str, values: Any, dtype: Any) -> NDArray[Any]:
        """Return values (E,)."""
        if values is False:
            return np.zeros(self._envs.num_envs, dtype)
        array = np.asarray(values, dtype)
        wanted: tuple[int, ...] = () if self._is_one else (self._envs.num_envs,)
        if array.shape != wanted:
            raise ValueError(f"Agent.observe: {name} must have the shape {wanted}, got {array.shape}")
        return array.reshape(self._envs.num_envs)

    def _infos(self, info: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        envs = self._envs.num_envs
        if not info:
            return [{}] * envs
        infos = [info] if isinstance(info, Mapping) else list(info)
        if len(infos) != envs:
            raise ValueError(f"Agent.observe: info must have a dict for each of {envs} environments, got {len(infos)}")
        return infos


class _DrivenScheme(Scheme):
    """A scheme that collects only the steps which its environments were told."""

    def __init__(
        self, algo: Any, actor: Any, storage: Any, envs: Any, test_envs: Any, *, in_background: bool, **settings: Any
    ) -> None:
        self._in_background = in_background
        self.background_collector: BackgroundCollector | None = None
        super().__init__(algo, actor, storage, envs, test_envs, **settings)
        # Not copies of the training environments, which cannot be stepped.
        self.test_envs.factory = test_envs

    def make_collector(self, envs: VecEnv, normalize_rewards: Literal["returns", "rewards"] | None) -> Collecting:
        """Make the collector, which acts with an algorithm of its own where training is in the background."""
        collector = super().make_collector(envs, normalize_rewards)
        assert isinstance(collector, Collector)
        assert isinstance(envs, DrivenEnvs)
        self.driven, self.driven_collector = envs, collector
        if not self._in_background:
            return collector
        acting = self.make_algorithm()
        acting.seed(seed_of(self.run_seed, ALGORITHM, 1))
        self.background_collector = BackgroundCollector(collector, acting, self.algorithm, self.storage)
        return self.background_collector

    def collect(self, until: int, stopped: Callable[[], bool] = lambda: False) -> tuple[list[Episode], int]:
        """As :meth:`Scheme.collect`, as far as steps were told."""
        return super().collect(until, lambda: stopped() or not self._has_step)

    def explain_wait(self) -> Wait:
        """Return why no update phase is due, and that steps come from the user's loop."""
        reason, waits_for = super().explain_wait()
        return Wait(reason, f"{waits_for}, told by Agent.observe")

    @property
    def _has_step(self) -> bool:
        background = self.background_collector
        return self.driven.has_step if background is None else background.steps_ahead > 0


def _same_rows(given: Any, expected: Any, rows: int) -> NDArray[np.bool_]:
    """Return (E,): whether observations are the same, NaN included."""
    if isinstance(given, Mapping):
        parts = [_same_rows(given[name], expected[name], rows) for name in given]
        return np.array([all(of_row) for of_row in zip(*parts, strict=True)])
    return np.array(
        [np.array_equal(*pair, equal_nan=given.dtype.kind == "f") for pair in zip(given, expected, strict=True)]
    )
