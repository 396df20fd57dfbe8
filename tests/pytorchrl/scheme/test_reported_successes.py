"""Values that environments report at the ends of episodes, in logs, evaluations and callbacks."""

from pathlib import Path
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import pytest

import pytorchrl as prl
from tests.support.compositions import dqn_scheme


class Reporting(gym.Wrapper[Any, Any, Any, Any]):
    """CartPole that reports whether an episode had an even number of steps, and other values."""

    def __init__(self) -> None:
        super().__init__(gym.make("CartPole-v1", max_episode_steps=15))
        self.steps = 0

    def reset(self, **kwargs: Any) -> Any:
        self.steps = 0
        return super().reset(**kwargs)

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, _ = super().step(action)
        self.steps += 1
        info = {"is_success": np.bool_(self.steps % 2 == 0), "score": 2.0 * self.steps, "words": "many"}
        if self.steps == 12:
            info["rare"] = 7
        return observation, reward, terminated, truncated, info


def envs(mode: Literal["sync", "async"] = "sync") -> prl.Factory[prl.VecEnv]:
    return prl.VecEnv.create_factory(
        Reporting, num_envs=2, mode=mode, episode_infos=("is_success", "score", "words", "rare")
    )


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_finished_episode_has_the_values_that_its_last_step_reported(mode: Literal["sync", "async"]) -> None:
    vector, random, seen = envs(mode)(), np.random.default_rng(1), []
    vector.reset(1)
    for _ in range(60):
        vector.step(random.integers(0, 2, (2, 1)))
        seen += vector.finished_episodes
    vector.close()
    assert len(seen) > 5
    for record in seen:
        expected = {"is_success": float(record.length % 2 == 0), "score": 2.0 * record.length}
        assert record.reported == expected | ({"rare": 7.0} if record.length == 12 else {})


def test_means_are_logged_for_training_and_evaluation_also_by_a_resumed_run(tmp_path: Path) -> None:
    learner = prl.Learner(dqn_scheme(envs=envs()), 200, tmp_path / "run", log_every=100)
    while learner.scheme.steps < 130:
        learner.step()
    learner.save_checkpoint()
    learner.close()
    resumed = prl.Learner.resume(tmp_path / "run", scheme=dqn_scheme(envs=envs()))
    assert resumed.run()
    records = prl.read_metrics(tmp_path / "run" / "metrics.jsonl")
    trained = [record for record in records if "train/return" in record]
    tested = [record for record in records if "test/return" in record]
    assert len(trained) == len(tested) == 2
    for record in trained:
        assert record["train/score"] == pytest.approx(2 * record["train/episode_length"])
        assert 0 <= record["train/is_success"] <= 1
        assert "train/words" not in record
    for record in tested:
        assert record["test/score"] == pytest.approx(2 * record["test/episode_length"])


def test_a_run_stops_once_an_evaluation_reaches_a_share_of_successes(tmp_path: Path) -> None:
    learner = prl.Learner(dqn_scheme(2, envs=envs()), 400, tmp_path / "run", callbacks=[prl.StopAtSuccess(0.5)])
    assert not learner.run()
    records = prl.read_metrics(tmp_path / "run" / "metrics.jsonl")
    *before, last = (record["test/is_success"] for record in records if "test/is_success" in record)
    assert last >= 0.5
    assert all(rate < 0.5 for rate in before)
    assert learner.scheme.steps == 100 * (len(before) + 1)


def test_a_success_that_is_not_reported_is_refused_by_name(tmp_path: Path) -> None:
    learner = prl.Learner(dqn_scheme(), 400, tmp_path / "run", callbacks=[prl.StopAtSuccess(0.5)])
    with pytest.raises(ValueError, match="the environments report no 'is_success' at the ends of episodes"):
        learner.run()
