"""Prefetched batches, and observations kept on the device, change only the speed of a run."""

from typing import Any

import pytest

import pytorchrl as prl
from tests.support.comparison import assert_equal
from tests.support.compositions import sac_scheme

STEPS = 240


def trained(**hyper_parameters: Any) -> tuple[int, dict[str, Any]]:
    """The number of updates of a run, and its final state."""
    scheme = sac_scheme(storage=prl.NStepReplayBuffer.create_factory(150, n_step=3, **hyper_parameters))
    updates = 0
    while scheme.steps < STEPS:
        _, due = scheme.collect(until=STEPS)
        updates += sum(1 for _ in range(due) for _ in scheme.update())
    state = scheme.state_dict()
    scheme.close()
    return updates, state


@pytest.mark.long
@pytest.mark.parametrize(
    "hyper_parameters", [{"prefetch": 2}, {"keep_on_device": True}, {"prefetch": 1, "keep_on_device": True}]
)
def test_a_run_is_the_same_with_prefetched_batches_and_observations_on_the_device(
    hyper_parameters: dict[str, Any],
) -> None:
    (updates, one), (_, other) = trained(), trained(**hyper_parameters)
    assert updates > 100
    assert_equal(one, other)
