"""SelectObservation keeps only the chosen entries of a vector observation."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import pytorchrl as prl


def test_only_the_selected_entries_are_observed_in_the_given_order() -> None:
    whole, some = gym.make("CartPole-v1"), prl.SelectObservation(gym.make("CartPole-v1"), [2, 0])
    seen, selected = whole.reset(seed=3)[0], some.reset(seed=3)[0]
    for _ in range(5):
        assert selected.tolist() == seen[[2, 0]].tolist()
        assert some.observation_space.contains(selected)
        seen, selected = whole.step(1)[0], some.step(1)[0]
    space: Any = whole.observation_space
    assert np.array_equal(some.observation_space.high, space.high[[2, 0]])


def test_the_wrapper_can_be_given_by_name() -> None:
    envs = prl.VecEnv.create_factory("Pendulum-v1", num_envs=2, wrappers=[("SelectObservation", {"indices": [0, 1]})])()
    assert envs.reset(seed=0).shape == (2, 2)
    envs.close()


@pytest.mark.parametrize("indices", [[], [4], [-1]])
def test_invalid_indices_are_refused(indices: list[int]) -> None:
    with pytest.raises(ValueError, match="indices must be some of 0 to 3, got"):
        prl.SelectObservation(gym.make("CartPole-v1"), indices)


def test_observations_that_are_not_vectors_are_refused() -> None:
    with pytest.raises(ValueError, match="observations must be vectors, the space is Discrete"):
        prl.SelectObservation(gym.make("FrozenLake-v1"), [0])
