"""One instance of an environment cannot be two copies at once, whose steps would mix."""

import copy
import pickle
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import pytorchrl as prl
from tests.support.compositions import dqn_scheme
from tests.support.toys import Counter


class Slotted(gym.Env[Any, Any]):
    """Forbids attributes that gymnasium does not have."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in ("_np_random", "_np_random_seed", "reset", "step"):
            raise AttributeError(f"no attribute {name} may be set")
        super().__setattr__(name, value)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(2, np.float32), 1.0, False, False, {}


REFUSED = r"VecEnv: <lambda> returned .* again, which is in use .* Make a new environment in each call"


@pytest.mark.parametrize("made", [Counter, Slotted, lambda: gym.make("CartPole-v1")])
def test_an_instance_that_is_returned_for_two_copies_is_refused(made: Any) -> None:
    env = made()
    with pytest.raises(prl.InvalidEnvironmentError, match=REFUSED):
        prl.VecEnv(lambda: env, num_envs=2)
    prl.VecEnv(lambda: env).close()


def test_an_instance_in_other_wrappers_is_the_same_one() -> None:
    env = Counter()
    with pytest.raises(prl.InvalidEnvironmentError, match=REFUSED):
        prl.VecEnv(lambda: gym.wrappers.TimeLimit(env, 10), num_envs=2)


def test_an_instance_can_be_used_again_once_its_user_is_closed_or_deleted() -> None:
    env = Counter()
    first = prl.VecEnv(lambda: env)
    with pytest.raises(prl.InvalidEnvironmentError, match=REFUSED):
        prl.VecEnv(lambda: env)
    first.close()
    second = prl.VecEnv(lambda: env)
    # Closing the first again must not release what the second uses.
    first.close()
    with pytest.raises(prl.InvalidEnvironmentError, match=REFUSED):
        prl.VecEnv(lambda: env)
    del second
    prl.VecEnv(lambda: env).close()


def test_an_evaluation_in_the_environment_of_training_is_refused() -> None:
    env = gym.make("CartPole-v1")
    scheme = dqn_scheme(envs=prl.VecEnv.create_factory(lambda: env))
    with pytest.raises(prl.InvalidEnvironmentError, match="also for evaluation: lambda: CartPoleEnv"):
        scheme.evaluate(1)
    scheme.close()


def test_an_environment_in_use_can_be_copied_and_pickled_and_its_copies_are_others() -> None:
    env = Counter()
    envs = prl.VecEnv(lambda: env)
    envs.reset(0)
    for another in (copy.deepcopy(env), pickle.loads(pickle.dumps(env))):
        prl.VecEnv(lambda another=another: another).close()
    envs.close()


def test_copies_in_other_processes_may_be_of_one_instance() -> None:
    env = Counter()
    envs = prl.VecEnv(lambda: env, num_envs=2, mode="async")
    envs.reset(0)
    assert envs.step(np.zeros((2, 1), np.int64)).reward.shape == (2, 1)
    envs.close()
