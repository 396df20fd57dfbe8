"""Classes in a script extend VecEnv: with a hyper-parameter more, or with fewer."""

from typing import Any

import numpy as np

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
    """Says itself which environment it is."""

    def __init__(self, num_envs: Count = 1) -> None:
        super().__init__("CartPole-v1", num_envs)


def test_an_attribute_is_a_hyper_parameter_of_environments_too() -> None:
    envs = Shifted.create_factory("CartPole-v1", 2, shift=3)()
    try:
        envs.reset(0)
        assert (envs.step(np.zeros((2, 1), np.int64)).reward == 4).all()
    finally:
        envs.close()


def test_one_copy_is_of_the_same_class_with_the_same_hyper_parameters() -> None:
    several = Shifted.create_factory("CartPole-v1", 3, mode="async", shift=0.5)
    assert one_copy(several) == Shifted.create_factory("CartPole-v1", shift=0.5)
    assert one_copy(CartPoles.create_factory(3)) == CartPoles.create_factory(1)


def test_environments_without_an_id_can_be_named_as_a_part_of_the_script() -> None:
    assert [part.name for part in own_parts([CartPoles.create_factory(3)])] == ["CartPoles"]
