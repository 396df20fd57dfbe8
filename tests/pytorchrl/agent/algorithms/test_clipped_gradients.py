"""Every algorithm clips the gradients of its networks where a user asks for it."""

from typing import Any

import pytest
import torch

import pytorchrl as prl
from tests.support.lessons import CASES, Case, learn, make_scheme

each_algorithm = pytest.mark.parametrize("case", {case.name: case for case in CASES}.values(), ids=str)
OTHERS = {"discriminator", "encoder", "predictor", "representation"}
"""Groups that are not of the policy or of values; nor are the model of MBPO, and scalars such as temperatures."""


def moved(case: Case, **settings: Any) -> dict[str, float]:
    """Return by how much each group moves in two update phases of stochastic gradient descent."""
    with make_scheme(case, optimizer=prl.SGD(), **settings) as scheme:
        training = scheme.algorithm.training
        groups = {
            name: torch.nn.ParameterList(group.parameters.values())
            for name, group in training.groups.items()
            if name not in OTHERS and name not in training.variables and (case.name, name) != ("MBPO", "model")
        }
        before = {name: torch.nn.utils.parameters_to_vector(group).detach() for name, group in groups.items()}
        learn(scheme)
        return {
            name: float((torch.nn.utils.parameters_to_vector(group).detach() - before[name]).norm())
            for name, group in groups.items()
        }


@pytest.mark.quick_share(0.2, long=0.5)
@each_algorithm
def test_clipped_gradients_move_networks_less(case: Case) -> None:
    if case.algorithm is prl.TRPOSinglePath:
        pytest.skip("its policy steps without an optimiser")
    free, clipped = moved(case, max_grad_norm=None), moved(case, max_grad_norm=1e-6)
    assert any(free.values())
    for group, distance in free.items():
        assert clipped[group] <= 1e-3 * distance, group


def test_an_algorithm_without_an_optimiser_refuses_to_clip() -> None:
    case = next(case for case in CASES if case.algorithm is prl.TRPOSinglePath)
    with pytest.raises(ValueError, match=r"TRPOSinglePath takes no step .* got max_grad_norm=0.5; leave it None"):
        make_scheme(case, max_grad_norm=0.5)
