"""A run resumed from a checkpoint that a callback saved calls the callbacks that were still to be called."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

import pytorchrl as prl
from tests.support.comparison import assert_equal
from tests.support.compositions import dqn_scheme, ppo_scheme


@dataclass(eq=False)
class Records(prl.Callback):
    """Records its calls, and changes the learning rate in each of ``on_step``, so that a missing call shows."""

    name: str

    def __post_init__(self) -> None:
        super().__post_init__()
        self.calls: list[tuple[int, str]] = []

    def on_evaluation(self, learner: Any, evaluation: Any) -> None:
        self.calls.append((learner.scheme.steps, f"evaluation of {len(evaluation.returns)}"))

    def on_step(self, learner: Any) -> None:
        self.calls.append((learner.scheme.steps, "step"))
        learner.scheme.algorithm.update_algorithm_parameter("lr", 1e-3 / len(self.calls))

    def state_dict(self) -> dict[str, Any]:
        return {"calls": [list(call) for call in self.calls]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.calls = [tuple(call) for call in state["calls"]]


class SavesOnce(prl.Callback):
    """Saves a checkpoint in the second call of a method, and keeps a copy of it."""

    def __init__(self, method: str, fails: bool = False) -> None:
        self.method, self.calls, self.fails = method, 0, fails

    def on_evaluation(self, learner: Any, evaluation: Any) -> None:
        self._count("on_evaluation", learner)

    def on_step(self, learner: Any) -> None:
        self._count("on_step", learner)

    def _count(self, method: str, learner: Any) -> None:
        self.calls += method == self.method
        if method == self.method and self.calls == 2:
            if self.fails:
                raise ConnectionError("the database does not answer")
            (learner.log_dir / "kept.pt").write_bytes(learner.save_checkpoint().read_bytes())

    def state_dict(self) -> dict[str, Any]:
        return {"calls": self.calls}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.calls = state["calls"]


class CountsEvaluations(prl.Callback):
    """Is called after evaluations alone."""

    def __init__(self) -> None:
        self.calls = 0

    def on_evaluation(self, learner: Any, evaluation: Any) -> None:
        self.calls += 1

    def state_dict(self) -> dict[str, Any]:
        return {"calls": self.calls}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.calls = state["calls"]


def callbacks(method: str, fails: bool = False) -> list[prl.Callback]:
    return [Records("before"), SavesOnce(method, fails), CountsEvaluations(), Records("after")]


def result_of(learner: prl.Learner) -> Any:
    calls = [getattr(one, "calls", None) for one in learner._callbacks.all]
    state = learner.scheme.state_dict()
    learner.close()
    return calls, state


def begin_again_from_kept(folder: Path) -> None:
    """Leave a run folder as it was when the process was killed after the checkpoint that a callback saved."""
    (folder / "kept.pt").replace(folder / "checkpoint.pt")


@pytest.mark.parametrize("make", [ppo_scheme, dqn_scheme])
@pytest.mark.parametrize("method", ["on_evaluation", "on_step"])
@pytest.mark.parametrize("target", [300, 200], ids=["in the run", "at its end"])
def test_a_run_resumed_from_a_checkpoint_of_a_callback_equals_the_uninterrupted_one(
    make: Any, method: str, target: int, tmp_path: Path
) -> None:
    whole = prl.Learner(make(), target, tmp_path / "run", callbacks=callbacks(method))
    assert whole.run()
    expected = result_of(whole)
    assert [call for call in expected[0][0] if "evaluation" in call[1]][1:2] or target == 200
    begin_again_from_kept(tmp_path / "run")
    resumed = prl.Learner.resume(tmp_path / "run", scheme=make(), callbacks=callbacks(method))
    assert resumed.run()
    assert_equal(result_of(resumed), expected)


@pytest.mark.parametrize("method", ["on_evaluation", "on_step"])
def test_after_an_exception_of_a_callback_only_the_later_ones_are_called(method: str, tmp_path: Path) -> None:
    whole = prl.Learner(dqn_scheme(), 300, tmp_path / "whole", callbacks=callbacks(method))
    assert whole.run()
    learner = prl.Learner(dqn_scheme(), 300, tmp_path / "run", callbacks=callbacks(method, fails=True))
    with pytest.raises(ConnectionError):
        learner.run()
    learner.close()
    resumed = prl.Learner.resume(tmp_path / "run", scheme=dqn_scheme(), callbacks=callbacks(method))
    assert resumed.run()
    assert_equal(result_of(resumed), result_of(whole))


def test_a_run_goes_on_in_the_same_process_after_an_exception_of_a_callback(tmp_path: Path) -> None:
    whole = prl.Learner(dqn_scheme(), 300, tmp_path / "whole", callbacks=callbacks("on_evaluation"))
    assert whole.run()
    learner = prl.Learner(dqn_scheme(), 300, tmp_path / "run", callbacks=callbacks("on_evaluation", fails=True))
    with pytest.raises(ConnectionError):
        learner.run()
    assert learner.run()
    assert_equal(result_of(learner), result_of(whole))


def test_callbacks_given_anew_are_not_called_for_the_step_before(tmp_path: Path) -> None:
    learner = prl.Learner(dqn_scheme(), 300, tmp_path / "run", callbacks=callbacks("on_evaluation"))
    learner.run()
    learner.close()
    begin_again_from_kept(tmp_path / "run")
    new = Records("new")
    with prl.Learner.resume(tmp_path / "run", scheme=dqn_scheme(), callbacks=[new]) as resumed:
        saved_at = resumed.scheme.steps
        resumed.run()
    assert new.calls[0][0] > saved_at


class StopsAfterEvaluation(prl.Callback):
    """Stops the run in ``on_step`` after the second evaluation."""

    def __init__(self) -> None:
        self.evaluations = 0

    def on_evaluation(self, learner: Any, evaluation: Any) -> None:
        self.evaluations += 1

    def on_step(self, learner: Any) -> None:
        if self.evaluations == 2:
            learner.stop("there were two evaluations")

    def state_dict(self) -> dict[str, Any]:
        return {"evaluations": self.evaluations}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.evaluations = state["evaluations"]


def test_a_resumed_run_is_stopped_where_the_uninterrupted_one_was(tmp_path: Path) -> None:
    given = [SavesOnce("on_evaluation"), StopsAfterEvaluation()]
    with prl.Learner(dqn_scheme(), 400, tmp_path / "run", callbacks=given) as learner:
        assert not learner.run()
        stopped_at = learner.scheme.steps
    begin_again_from_kept(tmp_path / "run")
    again = [SavesOnce("on_evaluation"), StopsAfterEvaluation()]
    with prl.Learner.resume(tmp_path / "run", scheme=dqn_scheme(), callbacks=again) as resumed:
        assert resumed.scheme.steps == stopped_at
        assert not resumed.run()
        assert (resumed.scheme.steps, resumed.stop_reason) == (stopped_at, "there were two evaluations")


def test_a_step_whose_evaluation_was_interrupted_ends_when_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = Records("one")
    learner = prl.Learner(dqn_scheme(), 300, tmp_path / "run", callbacks=[records])
    evaluated = [0]

    def is_requested() -> bool:
        # The second evaluation is interrupted in its first step.
        return learner.scheme.steps >= 200 and evaluated[0] >= 1

    original = learner.scheme.evaluate

    def evaluate(*arguments: Any) -> Any:
        evaluated[0] += learner.scheme.steps >= 200
        return original(*arguments)

    monkeypatch.setattr(learner.scheme, "evaluate", evaluate)
    monkeypatch.setattr(learner._interruption, "is_requested", is_requested)
    assert not learner.run()
    assert records.calls[-1][0] < 200
    learner.close()
    again = Records("one")
    with prl.Learner.resume(tmp_path / "run", scheme=dqn_scheme(), callbacks=[again]) as resumed:
        assert resumed.run()
    whole = Records("one")
    with prl.Learner(dqn_scheme(), 300, tmp_path / "whole", callbacks=[whole]) as uninterrupted:
        assert uninterrupted.run()
    assert again.calls == whole.calls


class Looks(prl.Callback):
    """Evaluates in other numbers of episodes, within the calls after an evaluation and after a step."""

    def on_evaluation(self, learner: Any, evaluation: Any) -> None:
        assert len(learner.evaluate(3).returns) == 3

    def on_step(self, learner: Any) -> None:
        if learner.scheme.steps == 100:
            learner.evaluate(1)


def test_evaluations_within_callbacks_are_told_to_no_callback(tmp_path: Path) -> None:
    def given() -> list[Any]:
        return [Looks(), SavesOnce("on_evaluation"), Records("after")]

    whole = prl.Learner(dqn_scheme(), 250, tmp_path / "run", callbacks=given())
    assert whole.run()
    expected = result_of(whole)
    assert [kind for steps, kind in expected[0][-1] if steps == 100] == ["evaluation of 2", "step"]
    begin_again_from_kept(tmp_path / "run")
    resumed = prl.Learner.resume(tmp_path / "run", scheme=dqn_scheme(), callbacks=given())
    assert resumed.run()
    assert_equal(result_of(resumed), expected)


@pytest.mark.parametrize(
    ("due", "message"),
    [
        ([[0, [{"returns": [], "lengths": [], "episodes_cut": 0, "reported": []}]]], "Evaluation: returns and lengths"),
        ([[0, [{"returns": ["a"], "lengths": [1], "episodes_cut": 0, "reported": []}]]], "Evaluation: returns holds a"),
        ([[0, [{"returns": [1.0], "lengths": [0], "episodes_cut": 0, "reported": []}]]], "Evaluation: lengths holds a"),
        ([[0, [{"returns": [1.0], "lengths": [1, 2], "episodes_cut": 0, "reported": []}]]], "Evaluation: returns and"),
        ([[0, [3]]], "checkpoint.pt"),
        ([3], "checkpoint.pt"),
        (3, "checkpoint.pt"),
    ],
    ids=str,
)
def test_an_event_of_a_checkpoint_that_is_none_is_refused(due: Any, message: str, tmp_path: Path) -> None:
    with prl.Learner(dqn_scheme(), 100, tmp_path / "run", callbacks=[Records("one")]) as learner:
        learner.run()
    state = torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)
    assert state["learner"]["callbacks"][0]["due"] == []
    state["learner"]["callbacks"][0]["due"] = due
    torch.save(state, tmp_path / "run" / "checkpoint.pt")
    with pytest.raises(prl.CheckpointError, match=message):
        prl.Learner.resume(tmp_path / "run", scheme=dqn_scheme(), callbacks=[Records("one")])
