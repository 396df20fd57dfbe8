"""Writers requested by name must be known and installed, and all are closed if one cannot be created."""

import importlib
import sys
from pathlib import Path

import pytest

import pytorchrl as prl
from pytorchrl.logging import make_writers
from pytorchrl.logging import writers as module


def test_no_names_make_no_writers(tmp_path: Path) -> None:
    assert make_writers([], tmp_path / "run", {}) == []


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("wanbd", r"log_to: unknown destination 'wanbd'; did you mean 'wandb'\? \(choose from wandb, tensorboard\)"),
        ("TensorBoard", r"log_to: unknown destination 'TensorBoard'; did you mean 'tensorboard'\? \(choose from"),
        ("mlflow", r"log_to: unknown destination 'mlflow' \(choose from wandb, tensorboard\)"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_before_a_folder_is_created(
    tmp_path: Path, name: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        make_writers(["tensorboard", name], tmp_path / "run", {})
    assert not (tmp_path / "run").exists()


def test_an_unknown_setting_of_a_logger_is_answered_with_those_there_are() -> None:
    with pytest.raises(TypeError) as refused:
        prl.Wandb(name="ppo-{seed}")  # type: ignore[call-arg]
    assert str(refused.value) == (
        "Wandb: unknown argument 'name'; here it is run_name. There are project, entity, group, run_name, tags"
    )
    with pytest.raises(TypeError, match="TensorBoard: unknown argument 'path'; there are none"):
        prl.TensorBoard(path="here")
    with pytest.raises(TypeError, match=r"LinearSchedule: unknown argument 'finall'; did you mean 'final'\? There are"):
        prl.LinearSchedule(1.0, finall=0.0)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("name", "install"), [("wandb", "pip install wandb"), ("tensorboard", "pip install tensorboard")]
)
@pytest.mark.parametrize("leftover", [False, True], ids=["no folder", "a folder of that name"])
def test_a_missing_package_is_named_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, install: str, leftover: bool
) -> None:
    if leftover:
        (tmp_path / name).mkdir()
    monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    importlib.invalidate_caches()
    with pytest.raises(ModuleNotFoundError, match=f"log_to='{name}' needs a package: {install}"):
        make_writers([name], tmp_path / "run", {})
    assert not (tmp_path / "run").exists()


def test_a_name_given_twice_makes_one_writer(tmp_path: Path) -> None:
    writers = make_writers(["tensorboard", "tensorboard"], tmp_path, {})
    for writer in writers:
        writer.close()
    assert len(writers) == 1
    assert len(list((tmp_path / "tensorboard").iterdir())) == 1


class Recording:
    """A writer that records when it is created and closed."""

    def __init__(self, name: str, log: list[str]) -> None:
        self._name, self._log = name, log
        log.append(f"{name} made")

    def close(self) -> None:
        self._log.append(f"{self._name} closed")


@pytest.mark.parametrize("names", [["wandb", "tensorboard"], ["tensorboard", "wandb"]])
def test_created_writers_are_closed_if_a_later_one_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str]
) -> None:
    log: list[str] = []
    classes = {"wandb": "WandbWriter", "tensorboard": "TensorBoardWriter"}

    def failing(*_: object) -> None:
        raise PermissionError("the disk is read-only")

    monkeypatch.setattr(module, classes[names[0]], lambda *_: Recording(names[0], log))
    monkeypatch.setattr(module, classes[names[1]], failing)
    with pytest.raises(PermissionError, match="read-only"):
        make_writers(names, tmp_path, {})
    assert log == [f"{names[0]} made", f"{names[0]} closed"]


@pytest.mark.parametrize("names", [["wandb", "tensorboard"], ["tensorboard", "wandb"]])
def test_writers_are_returned_open_in_the_given_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str]
) -> None:
    log: list[str] = []
    created = {name: Recording(name, log) for name in names}
    monkeypatch.setattr(module, "WandbWriter", lambda *_: created["wandb"])
    monkeypatch.setattr(module, "TensorBoardWriter", lambda *_: created["tensorboard"])
    assert make_writers(names, tmp_path, {}) == [created[name] for name in names]
    assert log == [f"{name} made" for name in names]
