"""Runs with storages that grow, that are limited in bytes, and whose batches are transformed."""

from pathlib import Path
from typing import Any

import pytest

import pytorchrl as prl
from storages.transition import OBS
from tests.support.comparison import assert_equal
from tests.support.compositions import dqn_scheme


def with_noise(tensor: Any, generator: Any) -> Any:
    """Observations with a little noise."""
    return tensor + 0.01 * tensor.new_empty(tensor.shape).normal_(generator=generator)


STORAGES: dict[str, dict[str, Any]] = {
    "growing": {"size": None},
    "growing up to a number of bytes": {"size": None, "max_bytes": 8_000},
    "transformed": {"size": 100, "transforms": {OBS: with_noise}},
}


@pytest.mark.quick_share(0.5)
@pytest.mark.parametrize("name", STORAGES)
def test_a_resumed_run_equals_the_uninterrupted_run(name: str, tmp_path: Path) -> None:
    def scheme() -> prl.Scheme:
        return dqn_scheme(storage=prl.PERBuffer.create_factory(n_step=2, alpha=0.6, beta=0.4, **STORAGES[name]))

    whole = prl.Learner(scheme(), 300, tmp_path / "whole")
    assert whole.run()
    part = prl.Learner(scheme(), 300, tmp_path / "part")
    while part.scheme.steps < 130:
        part.step()
    part.save_checkpoint()
    part.close()
    resumed = prl.Learner.resume(tmp_path / "part", scheme=scheme())
    assert resumed.run()
    assert_equal(resumed.scheme.state_dict(), whole.scheme.state_dict())
    if name == "growing":
        assert len(whole.scheme.storage) == 300
