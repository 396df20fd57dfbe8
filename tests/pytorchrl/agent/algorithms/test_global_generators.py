"""The user's generators of torch, NumPy and Python, while any algorithm is made and learns."""

import random
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.lessons import CASES, Case, learn, make_scheme


def states() -> tuple[list[int], str, Any]:
    return torch.get_rng_state().tolist(), str(np.random.get_state()), random.getstate()  # noqa: NPY002


@pytest.mark.quick_share(0.2)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_no_algorithm_draws_from_the_users_generators_or_follows_their_state(case: Case) -> None:
    trained = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        before = states()
        with make_scheme(case) as scheme:
            learn(scheme)
            scheme.evaluate(1)
            trained.append(scheme.algorithm.get_weights())
        assert states() == before
    one, other = trained
    assert all(torch.equal(one[name], other[name]) for name in one)
