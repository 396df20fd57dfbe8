"""The rate limit of a storage determines when a scheme updates."""

from pathlib import Path
from typing import Any

import pytest

import pytorchrl as prl
from tests.support.compositions import dqn_scheme
from tests.support.data_sets import recorded
from tests.support.training import train


def limited(ratio: float, min_size: int = 30, tolerance: float = 0.0, **changes: Any) -> prl.Scheme:
    limit = prl.RateLimit(ratio, min_size, tolerance)
    return dqn_scheme(storage=prl.ReplayBuffer.create_factory(size=200, rate_limit=limit), **changes)


@pytest.mark.parametrize(("ratio", "updates"), [(4.0, 21), (0.5, 3), (32.0, 161)])
@pytest.mark.parametrize("tolerance", [0.0, 100.0])
def test_the_given_number_of_rows_is_drawn_per_transition(ratio: float, updates: int, tolerance: float) -> None:
    # Batches of 16 rows; 80 transitions after the first 30, and no further phases in the last step.
    scheme = train(limited(ratio, tolerance=tolerance), 112)
    assert scheme.algorithm.updates == pytest.approx(updates, abs=1)
    scheme.close()


class DrawsTwice(prl.DQN):
    """Draws two batches before those of an update phase."""

    def update_phase(self, sources: Any) -> Any:
        for _ in sources["main"].generate_batches(2, 16):
            pass
        yield from super().update_phase(sources)


def test_an_update_phase_may_draw_several_times_and_all_rows_count() -> None:
    limit = prl.RateLimit(4.0, min_size=30)
    storage = prl.ReplayBuffer.create_factory(size=200, rate_limit=limit)
    scheme = train(dqn_scheme(cls=DrawsTwice, storage=storage), 112)
    # A third of the updates of the same limit where a phase draws once.
    assert scheme.algorithm.updates == pytest.approx(7, abs=1)
    assert scheme.storage.rate_limiter.drawn == 3 * 16 * scheme.algorithm.updates  # type: ignore[attr-defined]
    with pytest.raises(prl.RateLimitError, match="allows no batches now"):
        scheme.storage.generate_batches(1, 16)
    scheme.close()


def test_a_rate_limit_is_refused_for_data_sets_and_for_acer(tmp_path: Path) -> None:
    factory = prl.ReplayBuffer.create_factory(size=100, rate_limit=prl.RateLimit(1.0))
    data = prl.from_dataset(factory, recorded(tmp_path / "data.npz"))
    with pytest.raises(
        prl.CompositionError, match=r"the source 'main' during training, .* rate_limit would stop the updates"
    ):
        prl.Scheme(prl.BehaviourCloning.create_factory(), prl.OffPolicyActor.create_factory(), data)
    sequences = prl.ReplayBuffer.create_factory(size=100, rate_limit=prl.RateLimit(1), sequences=prl.Sequences(3))
    envs = prl.VecEnv.create_factory("CartPole-v1")
    with pytest.raises(prl.CompositionError, match="ACER sets its replay ratio itself; leave out the rate_limit"):
        prl.Scheme(prl.ACER.create_factory(), prl.OffPolicyActor.create_factory(), sequences, envs)


class Idle(prl.DQN):
    def update_phase(self, sources: Any) -> Any:
        yield from ()


def test_an_algorithm_that_draws_no_batch_raises_an_error_under_a_rate_limit() -> None:
    scheme = prl.Scheme(
        Idle.create_factory(),
        prl.OffPolicyActor.create_factory(hidden_sizes=(8,)),
        prl.ReplayBuffer.create_factory(size=100, rate_limit=prl.RateLimit(1.0)),
        prl.VecEnv.create_factory("CartPole-v1"),
    )
    with pytest.raises(prl.RateLimitError, match="Idle drew no batch from the storage; leave out rate_limit"):
        train(scheme, 10)
    scheme.close()
