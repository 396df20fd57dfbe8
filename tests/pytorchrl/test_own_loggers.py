"""Loggers of a user's get the metrics of a run, of a resumed and of a repeated one."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import pytorchrl as prl
from pytorchrl.experiments import RunFolder
from tests.support.compositions import dqn_scheme


class Kept:
    """A logger that keeps what it is given."""

    def __init__(self) -> None:
        self.records: list[tuple[int, dict[str, float]]] = []
        self.closed = 0

    def write(self, steps: int, metrics: Mapping[str, float]) -> None:
        self.records.append((steps, dict(metrics)))

    def close(self) -> None:
        self.closed += 1


def run_in(folder: Path, logger: Any, target_steps: int = 100) -> None:
    scheme = dqn_scheme(algorithm={"test_every": 0})
    with prl.Learner(scheme, target_steps, folder, log_to=[logger], log_every=50) as learner:
        learner.run()


def in_file(folder: Path) -> list[tuple[float, dict[str, float]]]:
    """The records of metrics.jsonl, as a logger gets them."""
    records = prl.read_metrics(folder)
    return [(one["steps"], {k: v for k, v in one.items() if k not in ("steps", "seconds")}) for one in records]


def test_an_object_with_two_methods_gets_every_record(tmp_path: Path) -> None:
    logger = Kept()
    run_in(tmp_path / "run", logger)
    assert logger.records == in_file(tmp_path / "run")
    assert logger.closed == 1


def test_histograms_and_videos_pass_by_a_logger_without_them(tmp_path: Path) -> None:
    logger = Kept()
    scheme = dqn_scheme(algorithm={"test_every": 0})
    with prl.Learner(scheme, 60, tmp_path / "run", log_to=[logger], callbacks=[prl.LogWeights(every=5)]) as learner:
        learner.run()
        learner.log_video("test/video", tmp_path / "none.mp4")
    assert any("weights/q" in metrics for _, metrics in logger.records)


@pytest.mark.parametrize("repeats", [False, True])
def test_a_logger_of_a_script_is_asked_for_where_a_run_is_made_from_its_folder(repeats: bool, tmp_path: Path) -> None:
    run_in(tmp_path / "run", Kept())

    def again(**log_to: Any) -> prl.Learner:
        if repeats:
            return prl.Learner.repeat(tmp_path / "run", tmp_path / "again", target_steps=60, **log_to)
        return prl.Learner.resume(tmp_path / "run", target_steps=160, **log_to)

    with pytest.raises(
        prl.CompositionError, match=r"logged to Kept, an object of a script.*pass loggers: Learner.resu"
    ):
        again()
    logger = Kept()
    with again(log_to=[logger]) as learner:
        learner.run()
        assert logger.records
        assert {steps for steps, _ in logger.records} == ({52, 60} if repeats else {152, 160})
    with prl.Learner.resume(tmp_path / ("again" if repeats else "run"), log_to=[]) as learner:
        assert learner.done()


def test_the_way_to_continue_names_the_logger(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def stop(learner: prl.Learner) -> None:
        learner.stop("it is enough")

    scheme = dqn_scheme(algorithm={"test_every": 0})
    with prl.Learner(scheme, 100, tmp_path / "run", log_to=[Kept()], callbacks=[stop]) as learner:
        learner.run()
    said = capsys.readouterr().out
    assert "Kept" in said
    assert "log_to=log_to" in said


def test_settings_of_loggers_are_kept_for_the_resumed_run(tmp_path: Path) -> None:
    run_in(tmp_path / "run", prl.TensorBoard())
    assert RunFolder(tmp_path / "run").read_config()["log_to"] == [{"name": "TensorBoard", "hyper_parameters": {}}]
    with prl.Learner.resume(tmp_path / "run", target_steps=160) as learner:
        learner.run()
    assert len(list((tmp_path / "run" / "tensorboard").iterdir())) == 2


def test_the_name_and_the_settings_make_one_logger(tmp_path: Path) -> None:
    with prl.Learner(dqn_scheme(), 60, tmp_path / "run", log_to=["tensorboard", prl.TensorBoard()]):
        pass
    assert len(list((tmp_path / "run" / "tensorboard").iterdir())) == 1


@pytest.mark.parametrize(
    ("log_to", "message"),
    [
        (
            [Kept],
            r"log_to\[0\] must be a name, prl.TensorBoard\(\), prl.Wandb\(\), or an object with the methods write",
        ),
        (["tensorboard", 3], r"log_to\[1\] must be a name"),
        (Kept(), r"log_to must be a list, got .*; write log_to=\[...\]"),
        ([prl.Wandb(), prl.Wandb(project="other")], "two Wandb would log to the same place"),
    ],
)
def test_what_is_no_logger_is_refused(log_to: Any, message: str, tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    with pytest.raises((TypeError, ValueError), match=message):
        prl.Learner(dqn_scheme(), 60, tmp_path / "run", log_to=log_to)
    assert not (tmp_path / "run").exists()


def test_a_logger_that_fails_ends_the_run_with_a_checkpoint(tmp_path: Path) -> None:
    class Full(Kept):
        def write(self, steps: int, metrics: Mapping[str, float]) -> None:
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full") as failure:
        run_in(tmp_path / "run", Full())
    assert any("The run is saved in" in note for note in failure.value.__notes__)
    with prl.Learner.resume(tmp_path / "run", log_to=[]) as learner:
        assert learner.run()


@pytest.mark.parametrize("fails_in", ["write", "close"])
def test_a_logger_of_the_toolkit_that_fails_is_named_once_and_the_run_goes_on(
    fails_in: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    writer = pytest.importorskip("pytorchrl.logging.tensorboard_writer").TensorBoardWriter
    calls: list[object] = []

    def fail(*arguments: object) -> None:
        calls.append(arguments)
        raise OSError("No space left on device")

    monkeypatch.setattr(writer, fails_in, fail)
    with prl.Learner(dqn_scheme(), 200, tmp_path / "run", log_to=["tensorboard"], log_every=50) as learner:
        assert learner.run()
    assert capsys.readouterr().err.count("The logger TensorBoardWriter") == 1
    assert len(calls) == 1


class FailsToClose(Kept):
    def close(self) -> None:
        raise ConnectionResetError("the server has gone")


def test_a_logger_that_cannot_be_closed_is_named_and_does_not_end_the_script(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_in(tmp_path / "run", FailsToClose())
    assert "The logger FailsToClose could not be closed: ConnectionResetError" in capsys.readouterr().err


def test_an_exception_in_the_write_of_a_logger_of_a_script_ends_the_run(tmp_path: Path) -> None:
    class FailsToWrite(Kept):
        def write(self, steps: int, metrics: Mapping[str, float]) -> None:
            raise ConnectionResetError("the server has gone")

    with pytest.raises(ConnectionResetError):
        run_in(tmp_path / "run", FailsToWrite())
