"""The test environments of a scheme, made for the first evaluation."""

from collections.abc import Callable
from typing import Any

import numpy as np

from pytorchrl.agent.actors.actor import Actor
from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.agent.envs.vec_env import VecEnv, check_saved, is_native_factory
from pytorchrl.agent.global_generators import seeding_processes
from pytorchrl.scheme.compatibility import CompositionError, check_test_spaces
from pytorchrl.scheme.evaluation import Evaluation, evaluate, evaluate_from_seeds
from pytorchrl.scheme.seeds import OF_EVALUATION, PROCESSES, TEST_ENVS, seed_of
from storages.component.factory import Factory


class EvaluationEnvs:
    """Makes the test environments when they are needed, and evaluates in them.

    Args:
        factory: of the environments; None where there are none.
        is_copy: whether they are a copy of the training environments.
        run_seed: of all random numbers of the run.
        max_episode_steps: the longest episode of an evaluation.
        test_seed: of the first episode of each evaluation; None derives seeds from those of the run and its steps.

    Raises:
        CompositionError: ``test_seed`` is given for environments that are not seeded one by one.
    """

    def __init__(
        self,
        factory: Factory[VecEnv] | None,
        *,
        is_copy: bool,
        run_seed: int,
        max_episode_steps: int,
        test_seed: int | None = None,
    ) -> None:
        if test_seed is not None and factory is not None and is_native_factory(factory):
            raise CompositionError(
                f"Scheme: test_seed gives each test episode its seed, but {factory.hyper_parameters['env']!r} is a "
                f"vector environment, whose copies are seeded together; give test_envs_factory with copies of a single "
                f"environment (no vectorization_mode, no backend), or leave out test_seed"
            )
        self.factory = factory
        """None where there are no test environments."""
        self.actor: Actor | None = None
        """Acts in them; None before it is made."""
        self._is_copy, self._run_seed, self._max_episode_steps = is_copy, run_seed, max_episode_steps
        self._test_seed = test_seed
        self._envs: VecEnv | None = None
        self._state_to_load: dict[str, Any] | None = None
        """State to restore in the environments when they are made."""

    def check(self, tested: Factory[VecEnv], trained: Factory[VecEnv]) -> None:
        """Check the spaces by a copy, if they may differ from those of training, as they are made later."""
        if tested != trained:
            assert self.actor is not None
            with tested() as copy:
                check_test_spaces(self.actor, copy)

    def make(self) -> VecEnv:
        """Return the environments, which are made at the first call.

        Raises:
            CompositionError: there are none, or their spaces are not those of the actor.
        """
        if self._envs is None:
            if self.factory is None:
                raise CompositionError(
                    "Scheme: there are no environments to evaluate in; give it test_envs_factory, or the algorithm "
                    "test_every=0"
                )
            with seeding_processes(self._seed_of(PROCESSES, OF_EVALUATION)):
                envs = self.factory()
            if self.actor is not None:
                check_test_spaces(self.actor, envs)
            self._envs = envs
            if self._state_to_load is not None:
                envs.load_state_dict(self._state_to_load)
        return self._envs

    def reset(self) -> VecEnv:
        """Return the environments after a reset, for a scheme that has no others."""
        envs = self.make()
        envs.reset(self._seed_of(TEST_ENVS))
        return envs

    def evaluate(self, algorithm: Algorithm, episodes: int, steps: int, stopped: Callable[[], bool]) -> Evaluation:
        """Run episodes without exploration; after an exception, later evaluations are as if it had not begun.

        Args:
            algorithm: chooses the actions.
            episodes: how many.
            steps: of the run, on which the seed depends unless there is a ``test_seed``.
            stopped: ends the evaluation by returning true.
        """
        before, envs = self.state_dict(), self.make()
        longest = self._max_episode_steps
        try:
            if self._test_seed is not None:
                return evaluate_from_seeds(algorithm, envs, episodes, self._test_seed, longest, stopped)
            return evaluate(algorithm, envs, episodes, self._seed_of(TEST_ENVS, steps), longest, stopped)
        except BaseException:
            self._envs, self._state_to_load = None, before
            envs.close()
            raise

    def evaluate_apart(self, evaluate_once: Callable[[], Evaluation]) -> Evaluation:
        """Call a function that evaluates, and restore the environments' state from before it, such as statistics."""
        before = self.state_dict()
        evaluation = evaluate_once()
        assert self._envs is not None  # they were stepped
        if before is not None:
            self._envs.load_state_dict(before)
        else:
            # The next evaluation is the first of new ones, as without this one.
            self._envs.close()
            self._envs = None
        return evaluation

    def state_dict(self) -> dict[str, Any] | None:
        """Return the state of the environments, such as statistics of wrappers; None before they are made."""
        return self._state_to_load if self._envs is None else self._envs.state_dict()

    def load_state_dict(self, state: dict[str, Any] | None, algorithm: Algorithm) -> None:
        """Restore the state returned by `state_dict`, in environments not made yet before the next evaluation.

        Raises:
            ValueError: they cannot be restored from it.
        """
        if state is not None and self.factory is not None:
            # Test environments that were given may have another action space.
            check_saved(self.factory, state, algorithm.action_space if self._is_copy else None)
        self._state_to_load = state
        if self._envs is not None and state is not None:
            self._envs.load_state_dict(state)

    def close(self) -> None:
        """Close the environments, if they were made."""
        if self._envs is not None:
            self._envs.close()

    def _seed_of(self, *purpose: int) -> np.random.SeedSequence:
        return seed_of(self._run_seed, *purpose)
