"""An error of a callback, an environment or a state ends a run in a state from which it goes on exactly."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pytorchrl as prl
from pytorchrl.experiments.callbacks.callback_list import Callbacks
from tests.support.comparison import assert_equal
from tests.support.compositions import dqn_scheme, ppo_scheme
from tests.support.toys import Counter


class FailsOnce(prl.Callback):
    """Raises an error in one call of one method."""

    def __init__(self, method: str, call: int) -> None:
        self.method, self.calls, self.call = method, 0, call

    def on_episodes(self, learner: Any, episodes: Any) -> None:
        self._count("on_episodes")

    def on_rollout(self, learner: Any) -> None:
        self._count("on_rollout")

    def on_step_begin(self, learner: Any) -> None:
        self._count("on_step_begin")

    def on_step(self, learner: Any) -> None:
        self._count("on_step")

    def on_evaluation(self, learner: Any, evaluation: Any) -> None:
        self._count("on_evaluation")

    def _count(self, method: str) -> None:
        self.calls += method == self.method
        if method == self.method and self.calls == self.call:
            raise ConnectionError("the database does not answer")


def evaluated_at(learner: prl.Learner) -> list[float]:
    records = prl.read_metrics(learner.log_dir / "metrics.jsonl")
    return [record["steps"] for record in records if "test/return" in record]


@pytest.mark.quick_share(0.4)
@pytest.mark.parametrize("make", [ppo_scheme, dqn_scheme])
@pytest.mark.parametrize("method", ["on_step_begin", "on_episodes", "on_rollout", "on_step", "on_evaluation"])
def test_a_run_that_a_callback_ended_equals_one_without_an_error_when_it_is_resumed(
    make: Any, method: str, tmp_path: Path
) -> None:
    whole = prl.Learner(make(), 400, tmp_path / "whole")
    assert whole.run()
    learner = prl.Learner(make(), 400, tmp_path / "run", callbacks=[FailsOnce(method, 2)])
    with pytest.raises(ConnectionError):
        learner.run()
    learner.close()
    resumed = prl.Learner.resume(tmp_path / "run", scheme=make(), callbacks=[FailsOnce(method, 0)])
    assert resumed.run()
    assert resumed.scheme.algorithm.updates == whole.scheme.algorithm.updates
    assert_equal(resumed.scheme.algorithm.get_weights(), whole.scheme.algorithm.get_weights())
    assert evaluated_at(resumed) == evaluated_at(whole)
    for each in (whole, resumed):
        each.close()


def test_the_updates_of_the_last_step_are_made_when_a_run_is_resumed(tmp_path: Path) -> None:
    def scheme() -> prl.Scheme:
        return prl.Scheme(
            prl.PPO.create_factory(num_epochs=1, num_mini_batch=4, test_every=0),
            prl.OnPolicyActor.create_factory(hidden_sizes=(4,)),
            prl.GAEBuffer.create_factory(size=16),
            prl.VecEnv.create_factory(Counter),
        )

    learner = prl.Learner(scheme(), 32, tmp_path / "run", callbacks=[FailsOnce("on_episodes", 2)])
    with pytest.raises(ConnectionError):
        learner.run()
    learner.close()
    resumed = prl.Learner.resume(tmp_path / "run", scheme=scheme(), callbacks=[FailsOnce("on_episodes", 0)])
    assert (resumed.scheme.steps, resumed.scheme.algorithm.updates) == (32, 4)
    assert resumed.run()
    assert (resumed.scheme.steps, resumed.scheme.algorithm.updates) == (32, 8)
    resumed.close()


def test_numbers_of_numpy_may_be_logged_and_be_settings_of_a_run_that_is_resumed(tmp_path: Path) -> None:
    def scheme() -> prl.Scheme:
        wrappers = (("ScaleReward", {"factor": np.float32(0.5)}),)
        envs = prl.VecEnv.create_factory(Counter, wrappers=wrappers, env_kwargs={"length": np.int64(4)})
        return dqn_scheme(envs=envs)

    learner = prl.Learner(scheme(), 30, tmp_path / "run")
    for number in (np.float64(1.5), np.float32(2.5), np.int64(3)):
        learner.log({f"mine/{type(number).__name__}": number})
    learner.run()
    learner.save_policy(tmp_path / "policy.pt", score=np.float64(3))
    learner.close()
    resumed = prl.Learner.resume(tmp_path / "run", scheme=scheme(), target_steps=60)
    assert resumed.run()
    resumed.close()
    assert prl.load_policy(tmp_path / "policy.pt") is not None
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    envs = config["train_envs"]["hyper_parameters"]
    assert (envs["env_kwargs"], envs["wrappers"]) == ({"length": 4}, [["ScaleReward", {"factor": 0.5}]])


class KeepsAnArray(prl.Callback):
    def state_dict(self) -> dict[str, Any]:
        return {"counts": np.zeros(3)}


def test_a_state_that_could_not_be_loaded_is_refused_when_it_is_saved(tmp_path: Path) -> None:
    learner = prl.Learner(dqn_scheme(), 30, tmp_path / "run", callbacks=[KeepsAnArray()])
    with pytest.raises(TypeError, match=r"\['callbacks'\].*\['counts'\] is ndarray, which a checkpoint cannot hold"):
        learner.run()
    assert not (tmp_path / "run" / "checkpoint.pt").exists()
    learner.close()


class SavesInUpdates(prl.Callback):
    def on_update(self, learner: Any, metrics: Any) -> None:
        learner.save_checkpoint()


def test_a_checkpoint_from_the_middle_of_updates_is_refused(tmp_path: Path) -> None:
    learner = prl.Learner(dqn_scheme(), 100, tmp_path / "run", callbacks=[SavesInUpdates()])
    with pytest.raises(RuntimeError, match=r"save_checkpoint: updates are being made.*save in on_step"):
        learner.run()
    assert not (tmp_path / "run" / "checkpoint.pt").exists()
    with pytest.raises(RuntimeError, match="interrupted by an exception"):
        learner.save_checkpoint()
    learner.close()


@pytest.mark.parametrize("episodes", [-1, 0, 1.5, True, math.nan])
def test_a_number_of_test_episodes_that_is_no_count_is_refused(episodes: Any, tmp_path: Path) -> None:
    learner = prl.Learner(dqn_scheme(), 30, tmp_path / "run")
    with pytest.raises(ValueError, match="Learner: episodes must be an int from 1"):
        learner.evaluate(episodes)
    learner.close()


def test_a_finished_run_does_nothing_in_further_steps(tmp_path: Path) -> None:
    learner = prl.Learner(dqn_scheme(), 30, tmp_path / "run")
    learner.run()
    records = prl.read_metrics(tmp_path / "run" / "metrics.jsonl")
    learner.step()
    assert prl.read_metrics(tmp_path / "run" / "metrics.jsonl") == records
    learner.close()


def test_the_time_before_an_error_counts_for_stop_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("pytorchrl.experiments.callbacks.stopping.time.monotonic", lambda: now[0])
    limit = prl.StopAfter(minutes=5)
    limit.on_run_begin(None)  # type: ignore[arg-type]
    now[0] = 90.0
    limit.on_run_begin(None)  # type: ignore[arg-type]
    now[0] = 100.0
    assert limit.state_dict()["seconds"] == 100.0


def test_single_values_in_the_place_of_lists_are_refused_with_the_list_to_write(tmp_path: Path) -> None:
    scheme: Any = dqn_scheme()
    with pytest.raises(TypeError, match=r"callbacks must be a list, got StopAfter.*; write callbacks=\[\.\.\.\]"):
        prl.Learner(scheme, 30, tmp_path / "run", callbacks=prl.StopAfter(minutes=1))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"log_to must be a list of names, got 'tensorboard'; write log_to="):
        prl.Learner(scheme, 30, tmp_path / "run", log_to="tensorboard")
    learner = prl.Learner(scheme, 30, tmp_path / "run")
    with pytest.raises(ValueError, match="give a reason"):
        learner.stop("")
    learner.close()


def test_evaluations_in_other_environments_need_names_of_their_own() -> None:
    def evaluation(name: str) -> prl.EvaluateIn:
        return prl.EvaluateIn(prl.VecEnv.create_factory(Counter), name, every=10)

    for name in ("", "a/b"):
        with pytest.raises(ValueError, match=f"EvaluateIn: name must be a word without slashes, got '{name}'"):
            evaluation(name)
    with pytest.raises(ValueError, match="two EvaluateIn have the name 'windy', under which both log; rename one"):
        Callbacks([evaluation("windy"), evaluation("calm"), evaluation("windy")])
