"""Schedules are restored from a run's ``config.json``, and a run continues with them."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

import pytorchrl as prl
from pytorchrl.experiments.runs.composition import scheme_from_config
from tests.support.comparison import assert_equal
from tests.support.compositions import dqn_scheme

SCHEDULES: list[Any] = [
    prl.ExponentialSchedule(1e-2, 1e-4, fraction=0.5),
    prl.CosineSchedule(1e-2, 0),
    prl.PiecewiseSchedule(((0, 1e-2), (0.5, 0.0))),
    prl.PiecewiseSchedule(((0, 1e-2), (40, 1e-3)), positions="steps"),
]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
def test_a_schedule_is_restored_from_plain_data(schedule: Any) -> None:
    config = json.loads(json.dumps(dqn_scheme(algorithm={"lr": schedule}).config))
    scheme = scheme_from_config(config)
    assert scheme.algorithm.lr == schedule  # type: ignore[attr-defined]
    assert json.loads(json.dumps(scheme.config)) == config


def test_a_run_with_a_function_as_a_schedule_is_resumed_with_its_scheme(tmp_path: Path) -> None:
    def scheme() -> prl.Scheme:
        schedule = prl.FunctionSchedule(lambda progress: 1e-2 * math.exp(-progress), 0, 1e-2)
        return dqn_scheme(algorithm={"lr": schedule, "test_every": 0})

    whole, first = (prl.Learner(scheme(), 80, tmp_path / name) for name in ("whole", "parts"))
    whole.run()
    for _ in range(30):
        first.step()
    first.save_checkpoint()
    first.close()
    with pytest.raises(
        prl.CompositionError,
        match=r"lr of DQN is a FunctionSchedule of <lambda>, which a run folder cannot make .*resume\(log_dir, scheme=",
    ):
        prl.Learner.resume(tmp_path / "parts")
    resumed = prl.Learner.resume(tmp_path / "parts", scheme=scheme())
    resumed.run()
    assert_equal(resumed.scheme.algorithm.get_weights(), whole.scheme.algorithm.get_weights())
