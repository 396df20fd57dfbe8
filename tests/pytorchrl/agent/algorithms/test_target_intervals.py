"""Target networks are updated at intervals, hard or soft, in every algorithm that has some."""

import copy
from typing import Any

import pytest
import torch

import pytorchrl as prl
from storages.component.declared import hyper_parameters_of
from tests.support.lessons import CASES, Case, lesson

WITH_TARGETS = {case.name: case for case in CASES if "target_update_interval" in hyper_parameters_of(case.algorithm)}
each_algorithm = pytest.mark.parametrize("case", WITH_TARGETS.values(), ids=str)


def made(case: Case, **settings: Any) -> Any:
    algorithm = lesson(case).twin()
    for name, value in settings.items():
        algorithm.update_algorithm_parameter(name, value)
    return algorithm


def test_every_algorithm_with_a_weight_of_targets_has_their_interval() -> None:
    without = {case.name for case in CASES if "polyak" in hyper_parameters_of(case.algorithm)} - WITH_TARGETS.keys()
    # The first two average policies, the third counts transitions.
    assert without == {"ACER", "ACERContinuous", "NStepQLearning"}


@pytest.mark.parametrize("polyak", [0.0, 0.5])
@each_algorithm
def test_targets_follow_in_every_third_update_alone(case: Case, polyak: float) -> None:
    if not lesson(case).batches:
        pytest.skip(f"{case.algorithm.__name__} learns without calling losses")
    if case.algorithm is prl.ResidualDQN:
        pytest.skip("it has no target network")
    algorithm = made(case, target_update_interval=3, polyak=polyak)
    targets = [target.network for target in algorithm.training.targets.values() if target.polyak_name == "polyak"]
    assert targets
    if case.algorithm is prl.MRQ:
        # Its encoders learn in phases of their own.
        targets = [algorithm.target_pi, algorithm.target_critics]
    for _ in range(6):
        before = [copy.deepcopy(list(target.parameters())) for target in targets]
        algorithm.update(copy.deepcopy(lesson(case).batches[0]))
        for target, old in zip(targets, before, strict=True):
            follows = any(not torch.equal(*pair) for pair in zip(target.parameters(), old, strict=True))
            assert follows == (algorithm.updates % 3 == 0)


@pytest.mark.parametrize("delay", [1, 2, 3])
def test_targets_of_td3_follow_its_policys_delay_unless_they_have_an_interval(delay: int) -> None:
    case = WITH_TARGETS["TD3"]
    updates = {None: delay, 1: 1, 4: 4}
    for interval, expected in updates.items():
        algorithm = made(case, policy_delay=delay, target_update_interval=interval)
        followed = []
        for _ in range(12):
            before = copy.deepcopy(algorithm.target_critics.state_dict())
            algorithm.update(copy.deepcopy(lesson(case).batches[0]))
            after = algorithm.target_critics.state_dict()
            if any(not torch.equal(after[name], before[name]) for name in before):
                followed.append(algorithm.updates)
        assert followed == [number for number in followed if number % expected == 0]
        assert len(followed) == 12 // expected
