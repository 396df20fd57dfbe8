"""Offline algorithms do not use observations from beyond the end of an episode."""

from typing import Any

import pytest
import torch

import pytorchrl as prl
from storages.transition import DISCOUNT, OBS2
from tests.support.by_hand import copies, replayed, with_next_actions
from tests.support.comparison import assert_equal
from tests.support.proposing import STORED, linear_learner
from tests.support.soft_critics import made, n_step_batch
from tests.support.value_learning import batch_of_windows
from tests.support.value_learning import linear_learner as linear_learner_of_values

ALGORITHMS: dict[str, Any] = {
    "BCQ": lambda: (linear_learner(prl.BCQ), replayed(STORED)),
    "BEAR": lambda: (linear_learner(prl.BEAR, warmup_updates=0), replayed(STORED)),
    "DiscreteBCQ": lambda: (linear_learner_of_values(prl.DiscreteBCQ), batch_of_windows()),
    "DiscreteCQL": lambda: (linear_learner_of_values(prl.DiscreteCQL), batch_of_windows()),
    "TD3BC": lambda: (made(prl.TD3BC), n_step_batch()),
    "ReBRAC": lambda: (made(prl.ReBRAC), with_next_actions(n_step_batch())),
    "FQL": lambda: (made(prl.FQL), n_step_batch()),
    # CQL without its gaps, which use the policy's actions in next states.
    "CQL": lambda: (made(prl.CQL, conservative_weight=0.0), n_step_batch()),
    "EDAC": lambda: (made(prl.EDAC, num_critics=3), n_step_batch()),
    "IQL": lambda: (made(prl.IQL), n_step_batch()),
    "XQL": lambda: (made(prl.XQL), n_step_batch()),
    "AWAC": lambda: (made(prl.AWAC), n_step_batch()),
    "CRR": lambda: (made(prl.CRR), n_step_batch()),
}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_observations_after_a_terminal_step_do_not_affect_gradients(name: str) -> None:
    algorithm, batch = ALGORITHMS[name]()
    terminal = batch[DISCOUNT][:, 0] == 0
    assert terminal.any()
    found = []
    for moved in (terminal, ~terminal):
        other = copies(batch)
        other[OBS2][moved] += 3
        for one in (batch, other):
            algorithm.seed(0)
            gradients, result = algorithm.compute_gradients(one)
            found.append((gradients, result.errors))
    assert_equal(found[0], found[1])
    assert not torch.equal(found[2][1], found[3][1])
