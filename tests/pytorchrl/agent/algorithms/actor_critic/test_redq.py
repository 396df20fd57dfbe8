"""REDQ's gradients equal those of numpy, with targets from a subset of critics and the policy's loss from all."""

from typing import Any

import numpy as np
import pytest
import torch

import pytorchrl as prl
from tests.support.soft_critics import ByHand, assert_gradients, drawn, made, n_step_batch


class NumpyREDQ(ByHand):
    def prepare(self, algorithm: Any) -> None:
        super().prepare(algorithm)
        number = algorithm.num_critics
        (order,) = drawn(algorithm.subset_generator, [lambda g: torch.randperm(number, generator=g)])
        self.target_critics = [self.target_critics[int(n)] for n in order[: algorithm.num_target_critics]]

    def of_policy(self, values: list[Any]) -> Any:
        return np.mean(values, axis=0)


@pytest.mark.parametrize("num_target_critics", [1, 2, 4])
def test_gradients_equal_those_of_a_numpy_version(num_target_critics: int) -> None:
    algorithm = made(prl.REDQ, num_critics=4, num_target_critics=num_target_critics, policy_delay=1, initial_alpha=0.5)
    assert_gradients(algorithm, n_step_batch(), NumpyREDQ(algorithm, n_step_batch()))


def test_each_update_draws_a_random_subset_of_the_target_critics() -> None:
    algorithm = made(prl.REDQ, num_critics=3)
    drawn_sets = set()
    calls: list[int] = []
    for number, critic in enumerate(algorithm.target_critics):
        critic.register_forward_hook(lambda *_, number=number: calls.append(number))
    for _ in range(40):
        calls.clear()
        algorithm.update(n_step_batch())
        assert len(calls) == 2, "critics that are not drawn are not computed"
        drawn_sets.add(frozenset(calls))
    assert drawn_sets == {frozenset(pair) for pair in ((0, 1), (0, 2), (1, 2))}


def test_drawing_more_target_critics_than_there_are_is_refused() -> None:
    with pytest.raises(ValueError, match="REDQ: num_target_critics must be at most num_critics=2, got 3"):
        prl.REDQ.create_factory(num_critics=2, num_target_critics=3)
    with pytest.raises(ValueError, match="num_target_critics"):
        made(prl.REDQ).update_algorithm_parameter("num_target_critics", 11)
    with pytest.raises(ValueError, match="REDQ: policy_delay must be"):
        prl.REDQ.create_factory(policy_delay=0)
