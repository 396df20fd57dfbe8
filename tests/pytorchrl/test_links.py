"""A run folder from a stranger may contain symbolic links: no file is written through one."""

from collections.abc import Callable
from pathlib import Path

import pytest

import pytorchrl as prl
from pytorchrl.experiments.runs import checkpoint
from pytorchrl.experiments.runs.run_folder import RunFolder
from pytorchrl.logging.metrics_file import MetricsFile
from pytorchrl.logging.writers import make_writers
from storages.persistent import PersistenceError
from tests.support.compositions import dqn_scheme


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    file = tmp_path / "mine.txt"
    file.write_text('{"steps": 1}\n')
    return file


def _save_checkpoint(folder: Path) -> None:
    checkpoint.save(folder / "checkpoint.pt", {})


def _create_run(folder: Path) -> None:
    RunFolder(folder).create({"storage": {"hyper_parameters": {}}})


def _truncate_metrics(folder: Path) -> None:
    (folder / "metrics.jsonl").write_text('{"steps": 1}\n{"steps": 2}\n')
    MetricsFile(folder / "metrics.jsonl", resumed_at=1).begin()


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("config.json", _create_run),
        ("config.json.new", _create_run),
        ("config.partial", _create_run),
        ("versions.json", _create_run),
        ("versions.json.new", _create_run),
        ("metrics.jsonl.new", _truncate_metrics),
        ("metrics.partial", _truncate_metrics),
        ("checkpoint.pt", _save_checkpoint),
        ("checkpoint.pt.new", _save_checkpoint),
    ],
)
def test_files_of_a_run_are_not_written_through_links(
    name: str, write: Callable[[Path], None], tmp_path: Path, mine: Path
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    place = folder / name
    place.symlink_to(mine if name != "config.json" else tmp_path / "not there")
    write(folder)
    assert mine.read_text() == '{"steps": 1}\n'
    assert not (tmp_path / "not there").exists()


def test_metrics_are_not_appended_through_a_link(tmp_path: Path, mine: Path) -> None:
    (tmp_path / "metrics.jsonl").symlink_to(mine)
    with pytest.raises(PersistenceError, match=r"metrics\.jsonl is a symbolic link"):
        MetricsFile(tmp_path / "metrics.jsonl").write({"steps": 2})
    assert mine.read_text() == '{"steps": 1}\n'


@pytest.mark.parametrize(("log_to", "name"), [("tensorboard", "tensorboard"), ("wandb", "wandb")])
def test_a_log_folder_that_is_a_link_is_refused(log_to: str, name: str, tmp_path: Path) -> None:
    pytest.importorskip(log_to)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / name).symlink_to(elsewhere)
    with pytest.raises(PersistenceError, match=f"{name} is a symbolic link"):
        make_writers([log_to], tmp_path, {})
    assert not list(elsewhere.iterdir())


@pytest.mark.usefixtures("drawn_curves")
def test_a_picture_is_not_drawn_through_a_link(tmp_path: Path, mine: Path) -> None:
    folder = tmp_path / "run"
    learner = prl.Learner(dqn_scheme(), 100, folder)
    for name in ("learning_curve.png.new", "learning_curve.partial.png"):
        (folder / name).symlink_to(mine)
    learner.run()
    learner.close()
    assert (folder / "learning_curve.png").read_bytes().startswith(b"\x89PNG")
    assert mine.read_text() == '{"steps": 1}\n'
