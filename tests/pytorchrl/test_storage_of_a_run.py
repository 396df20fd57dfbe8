"""A storage belongs to the run that made it: a copy of the run folder does not train into it."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pytorchrl as prl
from tests.support.compositions import dqn_scheme
from tests.support.folders import content

STORAGES: dict[str, Callable[[Path], Any]] = {
    "steps": lambda directory: prl.ReplayBuffer.create_factory(size=300, directory=directory),
    "priorities": lambda directory: prl.PERBuffer.create_factory(size=300, alpha=0.6, directory=directory),
    "episodes": lambda directory: prl.PersistentEpisodicBuffer.create_factory(size=300, directory=directory),
}


def scheme(kind: str, directory: Path) -> prl.Scheme:
    return dqn_scheme(storage=STORAGES[kind](directory))


def resumed(folder: Path, steps: int, given: prl.Scheme | None = None) -> int:
    """Resume a run, and return how many transitions it had stored."""
    learner = prl.Learner.resume(folder, scheme=given, target_steps=steps)
    stored: int = learner.scheme.storage.inserted
    learner.run()
    learner.close()
    return stored


@pytest.fixture(params=list(STORAGES))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def original(kind: str, tmp_path: Path) -> Path:
    """A run whose storage lies outside its folder."""
    learner = prl.Learner(scheme(kind, tmp_path / "outside"), 80, tmp_path / "original")
    learner.run()
    learner.close()
    return tmp_path / "original"


@pytest.mark.parametrize("by", ["config.json", "a scheme"])
def test_a_copied_run_does_not_train_into_the_storage_of_the_original(
    by: str, kind: str, original: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(original, tmp_path / "copy"))
    if by == "config.json":
        before = content(tmp_path / "outside")
        with pytest.raises(
            prl.CheckpointError, match=r"belongs to the run in .*original, and .*copy is a copy of that"
        ):
            prl.Learner.resume(copy, target_steps=160)
        assert content(tmp_path / "outside") == before
    else:
        given = scheme(kind, tmp_path / "outside")
        with pytest.raises(prl.CheckpointError, match=r"is a copy of that one.*Copy .*outside, too"):
            prl.Learner.resume(copy, scheme=given, target_steps=160)
        given.close()
    assert resumed(original, 120) == 80


def test_a_copied_run_with_a_copied_storage_is_resumed_as_the_original_is(
    kind: str, original: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(original, tmp_path / "copy"))
    shutil.copytree(tmp_path / "outside", tmp_path / "outside too")
    for steps in (120, 160):
        given = scheme(kind, tmp_path / "outside too")
        assert resumed(copy, steps, given) == resumed(original, steps) == steps - 40
    # Its config.json names the copied storage, which is its own now.
    assert resumed(copy, 200) == 160


def test_a_moved_run_is_resumed_again_and_again(kind: str, original: Path, tmp_path: Path) -> None:
    moved = original
    for steps in (120, 160, 200):
        moved = moved.rename(tmp_path / f"moved until {steps}")
        assert resumed(moved, steps) == steps - 40
    # Another run at its former place is another one.
    learner = prl.Learner(scheme(kind, tmp_path / "other storage"), 40, original)
    learner.run()
    learner.close()
    assert resumed(moved, 240) == 200


def test_a_new_run_that_goes_on_with_the_storage_of_another_owns_it(
    kind: str, original: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    learner = prl.Learner(scheme(kind, tmp_path / "outside"), 40, tmp_path / "new")
    learner.run()
    learner.close()
    owned = r"belongs to the run in .*new, and .*original is another run|lacks the commit .* may belong to another run"
    with pytest.raises(prl.CheckpointError, match=owned):
        prl.Learner.resume(original, target_steps=120)
    assert resumed(tmp_path / "new", 80) >= 100


@pytest.mark.parametrize("by", ["config.json", "a scheme"])
def test_where_a_storage_was_purged_another_run_begins_with_the_weights(
    by: str, kind: str, original: Path, tmp_path: Path
) -> None:
    shutil.rmtree(tmp_path / "outside")
    given = scheme(kind, tmp_path / "outside") if by == "a scheme" else None
    with pytest.raises(
        prl.CheckpointError, match=r"does not exist or is empty\. Restore it; .* train --from .*original"
    ):
        prl.Learner.resume(original, scheme=given, target_steps=120)
    if given is not None:
        given.close()
    with prl.Learner(scheme(kind, tmp_path / "outside"), 80, tmp_path / "new") as learner:
        assert prl.start_from(learner, original) == ["q"]
        learner.run()


def test_the_owner_of_a_storage_may_be_deleted(kind: str, original: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(original, tmp_path / "copy"))
    shutil.rmtree(original)
    assert resumed(copy, 120) == 80


def test_a_storage_of_an_earlier_version_belongs_to_the_run_that_is_resumed(
    kind: str, original: Path, tmp_path: Path
) -> None:
    (tmp_path / "outside/run.json").unlink()
    (original / "run_id").unlink()
    assert resumed(original, 120) == 80
    assert json.loads((tmp_path / "outside/run.json").read_text())["folder"] == str(original.resolve())


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"directory": 3}', "null"])
def test_a_damaged_note_of_the_owner_is_named_or_ignored(text: str, tmp_path: Path) -> None:
    learner = prl.Learner(scheme("steps", tmp_path / "outside"), 80, tmp_path / "run")
    learner.run()
    learner.close()
    note = tmp_path / "outside/run.json"
    note.write_text(text)
    if text in ("", "{"):
        with pytest.raises(prl.CheckpointError, match=r"run\.json.* is damaged.*Delete it"):
            prl.Learner.resume(tmp_path / "run", target_steps=120)
        note.unlink()
    assert resumed(tmp_path / "run", 120) == 80


def test_nothing_is_recorded_where_the_storage_lies_in_the_run_folder(tmp_path: Path) -> None:
    learner = prl.Learner(scheme("steps", tmp_path / "run/replay"), 80, tmp_path / "run")
    learner.run()
    learner.close()
    copy = Path(shutil.copytree(tmp_path / "run", tmp_path / "copy"))
    assert not list(tmp_path.rglob("run.json"))
    assert resumed(copy, 120) == resumed(tmp_path / "run", 120) == 80
