"""Generalized advantages: from the one-step error to the whole return, never across the end of an episode."""

import pytest

from storages import GAEBuffer
from storages.transition import ADV, RET
from tests.support.rollouts import GAMMA, buffer, by_observation, step

ERRORS = {obs: obs + GAMMA * 10 * (obs + 1) - 10 * obs for obs in (1.0, 2.0, 3.0)}


def advantages(gae_lambda: float) -> dict[float, float]:
    """The advantages of three steps, the second of which is the last of its episode."""
    storage = buffer(GAEBuffer, gae_lambda=gae_lambda)
    for obs in (1, 2, 3):
        storage.insert_transition(step(obs, obs + 1, reward=obs, truncated=obs == 2))
    return by_observation(storage, ADV)


def test_lambda_zero_gives_one_step_errors() -> None:
    assert advantages(0.0) == pytest.approx(ERRORS, rel=1e-5)


@pytest.mark.parametrize("gae_lambda", [0.5, 0.95, 1.0])
def test_lambda_weights_the_later_errors_within_the_episode(gae_lambda: float) -> None:
    expected = ERRORS | {1.0: ERRORS[1.0] + GAMMA * gae_lambda * ERRORS[2.0]}
    assert advantages(gae_lambda) == pytest.approx(expected, rel=1e-5)


def test_a_return_is_the_sum_of_the_advantage_and_the_value() -> None:
    storage = buffer(GAEBuffer, gae_lambda=0.5)
    for obs in (1, 2, 3):
        storage.insert_transition(step(obs, obs + 1, reward=obs))
    returns, gained = by_observation(storage, RET), by_observation(storage, ADV)
    assert returns == pytest.approx({obs: gained[obs] + 10 * obs for obs in returns})


def test_a_changed_lambda_is_used_by_the_next_advantages() -> None:
    storage = buffer(GAEBuffer, gae_lambda=0.0)
    for obs in (1, 2, 3):
        storage.insert_transition(step(obs, obs + 1, reward=obs))
    assert by_observation(storage, ADV) == pytest.approx(ERRORS, rel=1e-5)
    storage.update_storage_parameter("gae_lambda", 1)
    whole = ERRORS[1.0] + GAMMA * ERRORS[2.0] + GAMMA**2 * ERRORS[3.0]
    assert by_observation(storage, ADV)[1.0] == pytest.approx(whole, rel=1e-5)


def test_a_lambda_out_of_its_range_is_refused_and_the_old_one_stays() -> None:
    storage = buffer(GAEBuffer, gae_lambda=0.5)
    with pytest.raises(ValueError, match=r"GAEBuffer: gae_lambda must lie in \[0, 1\], got 2"):
        storage.update_storage_parameter("gae_lambda", 2)
    assert storage.gae_lambda == 0.5
