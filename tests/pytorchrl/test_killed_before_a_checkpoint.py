"""A run that was killed early begins again, or goes on, without what it had stored after its checkpoint."""

from pathlib import Path
from typing import Any

import pytest

import pytorchrl as prl
from tests.support.comparison import assert_equal
from tests.support.compositions import dqn_scheme

TARGET = 120
CLOCKS = ("seconds", "speed/steps_per_second")
STORAGES: dict[str, type[Any]] = {
    "steps": prl.ReplayBuffer,
    "priorities": prl.PERBuffer,
    "episodes": prl.PersistentEpisodicBuffer,
}


class Killed(BaseException):
    """Ends a run without a checkpoint, as SIGKILL does."""


def kill(learner: prl.Learner) -> None:
    if learner.scheme.steps >= 60:
        raise Killed


def scheme(kind: str, directory: Path, start_steps: int) -> prl.Scheme:
    storage = STORAGES[kind].create_factory(size=300, directory=directory)
    return dqn_scheme(storage=storage, algorithm={"start_steps": start_steps})


def trained(
    kind: str,
    folder: Path,
    directory: Path,
    *,
    start_steps: int = 40,
    every: int | None = None,
    is_killed: bool = False,
) -> tuple[int, dict[str, Any]]:
    """Begin or continue a run as a script does; return the steps it had at first, and what it ended with."""
    made, callbacks = scheme(kind, directory, start_steps), [kill] if is_killed else []
    if (folder / "checkpoint.pt").exists():
        learner = prl.Learner.resume(folder, scheme=made, callbacks=callbacks)
    else:
        learner = prl.Learner(made, TARGET, folder, callbacks=callbacks)
    with learner:
        steps = made.steps
        if is_killed:
            with pytest.raises(Killed):
                learner.run(checkpoint_every=every, progress=False)
        else:
            learner.run(checkpoint_every=every, progress=False)
        metrics = {name: value for name, value in learner.get_metrics().items() if name not in CLOCKS}
        return steps, {"weights": made.algorithm.get_weights(), "stored": made.storage.inserted, "metrics": metrics}


@pytest.fixture(params=list(STORAGES))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("inside", [True, False], ids=["in the run folder", "outside of it"])
def test_a_run_killed_before_its_first_checkpoint_does_not_learn_from_what_it_had_stored(
    kind: str, inside: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    directory = folder / "replay" if inside else tmp_path / "replay"
    trained(kind, folder, directory, is_killed=True)
    begun_at, result = trained(kind, folder, directory)
    assert begun_at == 0
    assert "transitions already" not in capsys.readouterr().out
    assert_equal(result, trained(kind, tmp_path / "whole", tmp_path / "whole-replay")[1])


def test_checkpoints_are_saved_while_a_run_collects_before_its_first_update(kind: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"start_steps": 100, "every": 20}
    trained(kind, tmp_path / "run", tmp_path / "replay", is_killed=True, **settings)
    begun_at, result = trained(kind, tmp_path / "run", tmp_path / "replay", **settings)
    assert begun_at == 100
    assert_equal(result, trained(kind, tmp_path / "whole", tmp_path / "whole-replay", **settings)[1])


def test_a_step_of_a_loop_of_ones_own_is_not_ended_for_a_checkpoint(tmp_path: Path) -> None:
    class Stops(prl.Callback):
        def on_run_begin(self, learner: Any) -> None:
            learner.stop("it only sets the interval")

    made = scheme("steps", tmp_path / "replay", 100)
    with prl.Learner(made, TARGET, tmp_path / "run", callbacks=[Stops()]) as learner:
        learner.run(checkpoint_every=10, progress=False)
        assert made.steps == 0
        learner.step()
        assert made.steps >= 100
