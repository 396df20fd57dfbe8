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


not_all_are_reported = pytest.mark.filterwarnings("ignore:.*episode_infos names:UserWarning")


@not_all_are_reported
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


@not_all_are_reported
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


@not_all_are_reported
def test_a_run_stops_once_an_evaluation_reaches_a_share_of_successes(tmp_path: Path) -> None:
    learner = prl.Learner(dqn_scheme(2, envs=envs()), 400, tmp_path / "run", callbacks=[prl.StopAtSuccess(0.5)])
    assert not learner.run()
    records = prl.read_metrics(tmp_path / "run" / "metrics.jsonl")
    *before, last = (record["test/is_success"] for record in records if "test/is_success" in record)
    assert last >= 0.5
    assert all(rate < 0.5 for rate in before)
    assert learner.scheme.steps == 100 * (len(before) + 1)


@not_all_are_reported
def test_a_success_that_is_not_reported_is_refused_by_name(tmp_path: Path) -> None:
    learner = prl.Learner(dqn_scheme(), 400, tmp_path / "run", callbacks=[prl.StopAtSuccess(0.5)])
    with pytest.raises(ValueError, match="the environments report no 'is_success' at the ends of episodes"):
        learner.run()


def steps_until_an_episode_ends(vector: prl.VecEnv) -> None:
    vector.reset(1)
    while not vector.finished_episodes:
        vector.step(np.zeros((vector.num_envs, 1), np.int64))


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_name_that_the_first_episode_lacks_is_named_once_with_those_it_reports(mode: Any) -> None:
    factory = prl.VecEnv.create_factory(Reporting, 2, mode=mode, episode_infos=("is_succes", "score", "words"))
    with factory() as vector:
        expected = r"names 'is_succes', 'words', which .*Reporting.* it has 'is_success', 'score', 'words'"
        with pytest.warns(UserWarning, match=expected):
            steps_until_an_episode_ends(vector)
        steps_until_an_episode_ends(vector)


@pytest.mark.parametrize("vectorization_mode", [None, "vector_entry_point"])
def test_a_name_that_no_episode_reports_is_named_by_native_environments_too(vectorization_mode: Any) -> None:
    names = prl.VecEnv.create_factory(
        "CartPole-v1", 2, vectorization_mode=vectorization_mode, episode_infos=("success",)
    )
    with names() as vector, pytest.warns(UserWarning, match="names 'success', .* it has nothing"):
        steps_until_an_episode_ends(vector)


def test_usual_names_may_be_absent_beside_a_name_that_is_reported() -> None:
    with prl.VecEnv.create_factory(Reporting, episode_infos=("is_success", "success", "score"))() as vector:
        steps_until_an_episode_ends(vector)


@pytest.mark.parametrize(
    ("asked", "logged"),
    [(("rare",), {"is_success", "score", "rare"}), ((), set()), (("score",), {"is_success", "score"})],
)
def test_infos_that_are_named_are_logged_beside_the_usual_ones(asked: Any, logged: set[str]) -> None:
    class AlwaysRare(Reporting):
        def step(self, action: Any) -> Any:
            *others, info = super().step(action)
            return *others, info | {"rare": 1}

    with prl.VecEnv.create_factory(AlwaysRare, episode_infos=asked)() as vector:
        steps_until_an_episode_ends(vector)
        assert set(vector.finished_episodes[0].reported) == logged


def test_keywords_of_a_monitor_are_answered_with_the_infos_to_log() -> None:
    for name in ("info_keywords", "monitor_kwargs"):
        with pytest.raises(TypeError, match=rf"'{name}'; here it is episode_infos="):
            prl.VecEnv.create_factory("CartPole-v1", **{name: ("distance",)})
