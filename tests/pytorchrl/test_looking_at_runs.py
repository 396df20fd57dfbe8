"""Evaluations by hand are no part of a run: its metrics, results, weights and later steps stay as they were."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

import pytorchrl as prl
from pytorchrl.experiments.runs import checkpoint
from tests.support.comparison import assert_equal
from tests.support.compositions import dqn_scheme, ppo_scheme


class Counts(gym.Wrapper[Any, Any, Any, Any]):
    """Counts its resets in a state that lasts over episodes, and reports it at their ends."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.resets = 0

    def reset(self, **options: Any) -> Any:
        self.resets += 1
        return super().reset(**options)

    def state_dict(self) -> dict[str, Any]:
        return {"resets": self.resets}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.resets = state["resets"]


class Notes(prl.Callback):
    """Notes the evaluations that it is told of."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def on_evaluation(self, learner: Any, evaluation: Any) -> None:
        self.told.append((learner.scheme.steps, evaluation))


def counted() -> Any:
    return prl.VecEnv.create_factory("CartPole-v1", num_envs=2, wrappers=[Counts])


SCHEMES: dict[str, Callable[[], prl.Scheme]] = {"dqn": lambda: dqn_scheme(envs=counted()), "ppo": ppo_scheme}


def finished(run: Path, scheme: Callable[[], prl.Scheme], looks: bool) -> tuple[Any, ...]:
    """Train, with looks between steps where asked for, and return all that the run has to show."""
    notes = Notes()
    with prl.Learner(scheme(), 300, run, callbacks=[notes]) as learner:
        while not learner.done():
            learner.step()
            if looks and learner.scheme.steps % 40 == 0:
                learner.evaluate(1)
                learner.evaluate()
        learner.run()
        if looks:
            assert len(learner.evaluate(episodes=3).returns) == 3
        metrics = learner.get_metrics()
        state = learner.scheme.state_dict()
    records = prl.read_metrics(run)
    for record in (metrics, *records):
        for name in ("seconds", "speed/steps_per_second"):
            record.pop(name, None)
    return notes.told, metrics, records, state


@pytest.mark.parametrize("scheme", SCHEMES.values(), ids=SCHEMES)
def test_a_run_that_was_looked_at_is_the_run_that_was_not(scheme: Callable[[], prl.Scheme], tmp_path: Path) -> None:
    expected = finished(tmp_path / "plain", scheme, looks=False)
    assert_equal(finished(tmp_path / "seen", scheme, looks=True), expected)
    plain, seen = prl.compare_runs({"plain": [tmp_path / "plain"], "seen": [tmp_path / "seen"]}).results
    assert (plain.iqm, plain.best) == (seen.iqm, seen.best)
    weights = [checkpoint.load(tmp_path / name / "best_weights.pt")["weights"] for name in ("plain", "seen")]
    assert_equal(*weights)


def test_a_look_at_a_finished_run_leaves_its_folder_as_it_was(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with prl.Learner(dqn_scheme(), 200, run, log_to=["tensorboard"]) as learner:
        learner.run()
        files = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
        learner.evaluate(1)
        learner.evaluate()
        assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == files
    shutil.copytree(run, tmp_path / "copy")
    with prl.Learner.resume(tmp_path / "copy", log_to=[]) as resumed:
        resumed.evaluate(1)
    assert prl.read_metrics(tmp_path / "copy") == prl.read_metrics(run)


def test_an_evaluation_by_hand_plays_the_episodes_of_one_at_that_step(tmp_path: Path) -> None:
    notes = Notes()
    with prl.Learner(dqn_scheme(), 200, tmp_path / "run", callbacks=[notes]) as learner:
        learner.run()
        assert (200, learner.evaluate()) == notes.told[-1]
        assert learner.evaluate() == learner.evaluate()


def test_what_a_user_wants_logged_of_an_evaluation_is_logged_by_name(tmp_path: Path) -> None:
    with prl.Learner(dqn_scheme(), 100, tmp_path / "run") as learner:
        learner.run()
        by_hand = learner.evaluate(1)
        learner.log({"mine/return": by_hand.mean_return})
        assert learner.get_metrics()["mine/return"] == by_hand.mean_return


def test_a_run_whose_metrics_are_gone_is_resumed_with_a_word(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with prl.Learner(dqn_scheme(), 100, tmp_path / "run", log_every=50) as learner:
        learner.run()
    with prl.Learner.resume(tmp_path / "run"):
        assert "metrics.jsonl" not in capsys.readouterr().out
    file = tmp_path / "run" / "metrics.jsonl"
    file.write_text(file.read_text().splitlines(keepends=True)[0])
    with prl.Learner.resume(tmp_path / "run"):
        assert "has metrics up to step 52, although the run has logged some up to step 100" in capsys.readouterr().out
    file.unlink()
    with prl.Learner.resume(tmp_path / "run", target_steps=150) as resumed:
        assert "does not exist: there are no metrics, although" in capsys.readouterr().out
        resumed.run()


def test_an_evaluation_is_readable(tmp_path: Path) -> None:
    with prl.Learner(dqn_scheme(), 50, tmp_path / "run") as learner:
        shown = repr(learner.evaluate(3))
    assert re.fullmatch(
        r"Evaluation\(3 episodes: mean return [\d.]+, standard deviation [\d.]+, from [\d.]+ to [\d.]+; mean length "
        r"[\d.]+\)",
        shown,
    )
