"""Classes of a user's script may extend VecEnv, with more or fewer hyper-parameters."""

from typing import Any

import numpy as np
import pytest

import pytorchrl as prl
from pytorchrl.agent.envs.vec_env import one_copy
from pytorchrl.agent.envs.vector import VecStep
from pytorchrl.experiments.runs.continuation import own_parts
from storages.component.hyper_parameters import Count


class Shifted(prl.VecEnv):
    """Rewards with a constant added."""

    shift: float = 1.0

    def step(self, actions: Any) -> VecStep:
        step = super().step(actions)
        return step._replace(reward=step.reward + self.shift)


class CartPoles(prl.VecEnv):
    """Fixes the id of its environments."""

    def __init__(self, num_envs: Count = 1) -> None:
        super().__init__("CartPole-v1", num_envs)


def test_an_attribute_of_a_subclass_is_a_hyper_parameter() -> None:
    envs = Shifted.create_factory("CartPole-v1", 2, shift=3)()
    try:
        envs.reset(0)
        assert (envs.step(np.zeros((2, 1), np.int64)).reward == 4).all()
    finally:
        envs.close()


def test_hyper_parameters_of_environments_made_directly_are_checked() -> None:
    with pytest.raises(ValueError, match="Shifted: num_envs must be at least 1, got 0"):
        Shifted("CartPole-v1", 0)
    with Shifted("CartPole-v1", shift=2) as envs:
        assert (envs.shift, envs.num_envs) == (2.0, 1)


def test_one_copy_is_of_the_same_class_with_the_same_hyper_parameters() -> None:
    several = Shifted.create_factory("CartPole-v1", 3, mode="async", shift=0.5)
    assert one_copy(several) == Shifted.create_factory("CartPole-v1", shift=0.5)
    assert one_copy(CartPoles.create_factory(3)) == CartPoles.create_factory(1)


def test_a_users_environment_class_is_listed_among_the_own_parts_of_a_run() -> None:
    assert [part.name for part in own_parts([CartPoles.create_factory(3)])] == ["CartPoles"]
