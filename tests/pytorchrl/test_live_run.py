"""A run can be read during training without changing it, and is trained by one process at a time."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pytorchrl as prl
from pytorchrl.__main__ import main
from pytorchrl.commands.comparing import plot
from pytorchrl.commands.inspect import inspect
from pytorchrl.experiments.runs import run_lock
from pytorchrl.experiments.runs.run_lock import RunInUseError
from pytorchrl.report import write_report
from storages.persistent.log.lock import Lock, NoLocksError
from tests.support.comparison import assert_equal
from tests.support.compositions import dqn_scheme
from tests.support.folders import content
from tests.support.processes import suspend, wait_for

TRAINING = """
import sys
import pytorchrl as prl
from tests.support.compositions import dqn_scheme

learner = prl.Learner(dqn_scheme(algorithm={"test_every": 50}), 10_000_000, sys.argv[1], log_every=10)
learner.run(checkpoint_every=60)
"""


@pytest.fixture
def live(tmp_path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A process that trains in the folder "run", suspended after its first checkpoint."""
    process = subprocess.Popen(
        [sys.executable, "-c", TRAINING, str(tmp_path / "run")],
        stdout=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        wait_for((tmp_path / "run" / "checkpoint.pt").exists, process)
        suspend(process)
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.long
def test_reading_a_live_run_changes_no_byte_of_it(live: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = content(tmp_path / "run")
    assert prl.read_metrics(tmp_path / "run" / "metrics.jsonl")
    inspect(tmp_path / "run", output=tmp_path / "storage.png")
    plot((tmp_path / "run",), tmp_path / "curve.png")
    write_report([tmp_path / "run"], tmp_path / "report.html")
    for command in ("ls", "show", "evaluations", "evaluate"):
        folder = tmp_path if command == "ls" else tmp_path / "run"
        monkeypatch.setattr(sys, "argv", ["python -m pytorchrl", command, str(folder)])
        main()
    assert content(tmp_path / "run") == before


@pytest.mark.long
def test_a_live_run_is_refused_by_an_error_that_names_its_process(
    live: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = content(tmp_path / "run")
    in_use = rf"run is in use by process {live.pid} on host .*only read.*end it there, or close\(\) its learner"
    with pytest.raises(RunInUseError, match=in_use):
        prl.Learner.resume(tmp_path / "run")
    with pytest.raises(RunInUseError, match=in_use):
        prl.Learner(dqn_scheme(), 100, tmp_path / "run")
    monkeypatch.setattr(sys, "argv", ["python -m pytorchrl", "resume", str(tmp_path / "run")])
    with pytest.raises(SystemExit, match=f"^error: .*process {live.pid} on host"):
        main()
    assert content(tmp_path / "run") == before
    # After the end of the process, even by a kill, the run can be resumed.
    live.kill()
    live.wait()
    prl.Learner.resume(tmp_path / "run").close()


def test_a_run_that_was_resumed_and_not_stepped_keeps_its_metrics(tmp_path: Path) -> None:
    learner = prl.Learner(dqn_scheme(), 400, tmp_path / "run", log_every=20)
    while learner.scheme.steps < 100:
        learner.step()
    learner.save_checkpoint()
    while learner.scheme.steps < 200:
        learner.step()
    learner.close()
    before = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    prl.Learner.resume(tmp_path / "run").close()
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == before
    resumed = prl.Learner.resume(tmp_path / "run")
    resumed.save_checkpoint()
    steps = [record["steps"] for record in prl.read_metrics(tmp_path / "run" / "metrics.jsonl")]
    assert max(steps) == 100
    resumed.close()


def test_a_second_learner_of_the_same_process_takes_the_run_over(tmp_path: Path) -> None:
    first = prl.Learner(dqn_scheme(), 200, tmp_path / "run")
    first.step()
    first.save_checkpoint()
    second = prl.Learner.resume(tmp_path / "run")
    for write in (first.save_checkpoint, lambda: first.log({"mine/number": 1.0})):
        with pytest.raises(
            RunInUseError, match="another learner of this process took the run over; continue with that"
        ):
            write()
    assert second.run()
    second.close()


def test_a_learner_that_could_not_be_created_releases_the_lock_of_the_run(tmp_path: Path) -> None:
    prl.Learner(dqn_scheme(), 60, tmp_path / "run").run()
    with pytest.raises(FileExistsError) as error:
        prl.Learner(dqn_scheme(), 60, tmp_path / "run")
    # Its traceback refers to the objects that were created.
    assert error.tb is not None
    Lock(tmp_path / "run").release()


def test_a_storage_in_the_run_folder_itself_locks_the_run(tmp_path: Path) -> None:
    def scheme() -> prl.Scheme:
        return dqn_scheme(storage=prl.ReplayBuffer.create_factory(size=50, directory=tmp_path / "run"))

    learner = prl.Learner(scheme(), 60, tmp_path / "run")
    learner.step()
    with pytest.raises(prl.PersistenceError, match="is in use by process"):
        prl.Learner(scheme(), 60, tmp_path / "run")
    learner.run()
    learner.close()
    with prl.Learner.resume(tmp_path / "run", target_steps=80) as resumed:
        assert resumed.run()


def test_runs_are_trained_without_locks_if_the_file_system_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(_: Path) -> None:
        raise NoLocksError("no locks")

    monkeypatch.setattr(run_lock, "Lock", no_locks)
    learner = prl.Learner(dqn_scheme(), 60, tmp_path / "run")
    assert learner.run()
    learner.close()
    resumed = prl.Learner.resume(tmp_path / "run")
    assert_equal(resumed.scheme.state_dict(), learner.scheme.state_dict())
    resumed.close()
