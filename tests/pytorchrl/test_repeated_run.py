"""A run is begun again from the configuration of another, in another folder."""

import json
import shutil
import sys
from pathlib import Path

import pytest

import pytorchrl as prl
from pytorchrl.__main__ import main
from pytorchrl.experiments.runs import storage_paths
from tests.support.comparison import assert_equal
from tests.support.compositions import dqn_scheme, ppo_scheme
from tests.support.data_sets import cloning, recorded
from tests.support.folders import content


def trained(learner: prl.Learner, checkpoint_every: int | None = None) -> prl.Learner:
    learner.run(checkpoint_every=checkpoint_every)
    learner.close()
    return learner


def assert_equal_weights(one: prl.Learner, other: prl.Learner) -> None:
    assert_equal(one.scheme.algorithm.get_weights(), other.scheme.algorithm.get_weights())


def test_a_repeated_run_equals_the_first_which_stays_as_it_is(tmp_path: Path) -> None:
    first = trained(prl.Learner(ppo_scheme(3), 96, tmp_path / "first", log_every=32, keep_checkpoints=2), 48)
    before = content(tmp_path / "first")
    again = trained(prl.Learner.repeat(tmp_path / "first", tmp_path / "again"))
    assert_equal_weights(first, again)
    assert content(tmp_path / "first") == before
    configs = [json.loads((tmp_path / name / "config.json").read_text()) for name in ("first", "again")]
    assert configs[0] == configs[1]
    assert configs[1]["checkpoint_every"] == 48


def test_only_the_configuration_of_the_run_is_read(tmp_path: Path) -> None:
    first = trained(prl.Learner(dqn_scheme(), 60, tmp_path / "first"))
    (tmp_path / "sent").mkdir()
    shutil.copy(tmp_path / "first" / "config.json", tmp_path / "sent")
    assert_equal_weights(first, trained(prl.Learner.repeat(tmp_path / "sent", tmp_path / "again")))


def test_what_is_given_replaces_what_the_run_had(tmp_path: Path) -> None:
    class Counting(prl.Callback):
        steps = 0

        def on_step(self, learner: prl.Learner) -> None:
            self.steps += 1

    first = trained(prl.Learner(dqn_scheme(), 120, tmp_path / "first", callbacks=[prl.StopAtReturn(1)]))
    counting = Counting()
    other = prl.Learner.repeat(
        tmp_path / "first", tmp_path / "other", seed=5, target_steps=140, device="cpu", callbacks=[counting]
    )
    trained(other)
    assert other.scheme.config == dqn_scheme(5).config
    assert (first.scheme.steps, other.scheme.steps) == (100, 140)
    assert counting.steps > 0
    with pytest.raises(AssertionError):
        assert_equal_weights(first, other)
    expected = trained(prl.Learner(dqn_scheme(5), 140, tmp_path / "expected"))
    assert_equal_weights(other, expected)


@pytest.mark.parametrize("place", ["first/kept/replay", "elsewhere/replay"], ids=["in the run folder", "beside it"])
def test_a_storage_on_disk_begins_empty_in_the_new_folder(place: str, tmp_path: Path) -> None:
    storage = prl.ReplayBuffer.create_factory(size=150, directory=str(tmp_path / place))
    first = trained(prl.Learner(dqn_scheme(storage=storage), 60, tmp_path / "first"))
    before = content(tmp_path / place)
    again = trained(prl.Learner.repeat(tmp_path / "first", tmp_path / "again"))
    assert_equal_weights(first, again)
    assert content(tmp_path / place) == before
    new = tmp_path / "again" / ("kept/replay" if place.startswith("first") else "replay")
    assert Path(again.scheme.config["storage"]["hyper_parameters"]["directory"]) == new
    assert any(new.iterdir())
    ids = [json.loads((tmp_path / name / "versions.json").read_text())["experiment"] for name in ("first", "again")]
    assert ids[0] == ids[1]


def test_storages_of_equal_names_and_of_folders_above_have_directories_of_their_own(tmp_path: Path) -> None:
    directories = [
        tmp_path / "a" / "replay",
        tmp_path / "b" / "replay",
        tmp_path / "first" / "replay",
        tmp_path,
        Path("/"),
    ]
    storages = [{"hyper_parameters": {"directory": str(directory)}} for directory in directories]
    config = {"storage": storages[0], "sources": {str(number): one for number, one in enumerate(storages[1:])}}
    changed = storage_paths.in_another_run(config, tmp_path / "first", tmp_path / "again")
    assert [Path(place) for place in storage_paths.directories_of(changed).values()] == [
        tmp_path / "again" / name for name in ("replay-2", "replay-3", "replay", tmp_path.name, "storage")
    ]
    assert storage_paths.in_another_run(changed, tmp_path / "again", tmp_path / "again") == changed


def test_a_run_that_learns_from_data_is_repeated_with_the_data_that_the_user_names(tmp_path: Path) -> None:
    data = recorded(tmp_path / "data.npz")
    first = trained(prl.Learner(cloning(data), 5, tmp_path / "first"))
    with pytest.raises(
        prl.CompositionError, match=r"the run learns from the data set .*--data .*or in a script by data="
    ):
        prl.Learner.repeat(tmp_path / "first", tmp_path / "again")
    moved = data.rename(tmp_path / "moved.npz")
    assert_equal_weights(first, trained(prl.Learner.repeat(tmp_path / "first", tmp_path / "again", data=[moved])))


def test_a_folder_that_holds_a_run_is_refused_and_kept(tmp_path: Path) -> None:
    storage = prl.ReplayBuffer.create_factory(size=150, directory=str(tmp_path / "first" / "replay"))
    trained(prl.Learner(dqn_scheme(storage=storage), 20, tmp_path / "first"))
    before = content(tmp_path / "first")
    with pytest.raises(FileExistsError, match="holds a run already"):
        prl.Learner.repeat(tmp_path / "first", tmp_path / "first", seed=1)
    with pytest.raises(ValueError, match="target_steps must be an int from 1, got 0") as failed:
        prl.Learner.repeat(tmp_path / "first", tmp_path / "failed", target_steps=0)
    # The storage that was made before the error is free again, while the error is kept.
    of_failed = prl.ReplayBuffer.create_factory(size=150, directory=str(tmp_path / "failed" / "replay"))
    of_failed("cpu", None, None, None).close()
    assert failed.tb is not None
    with pytest.raises(prl.DeviceError, match="'gpu' is not a torch device"):
        prl.Learner.repeat(tmp_path / "first", tmp_path / "again", device="gpu")
    assert content(tmp_path / "first") == before
    assert not (tmp_path / "again").exists()
    with pytest.raises(prl.CheckpointError, match="does not exist"):
        prl.Learner.repeat(tmp_path / "missing", tmp_path / "again")


class RepeatedDQN(prl.DQN):
    """Defined here, as in a script."""


def test_classes_of_a_script_are_named(tmp_path: Path) -> None:
    scheme = dqn_scheme()
    algorithm, *others = scheme.factories
    scheme.close()
    own = RepeatedDQN.create_factory(**algorithm.hyper_parameters)
    trained(prl.Learner(prl.Scheme(own, *others[:3]), 20, tmp_path / "first"))
    assert isinstance(prl.Learner.repeat(tmp_path / "first", tmp_path / "here").scheme.algorithm, RepeatedDQN)
    config_file = tmp_path / "first" / "config.json"
    config_file.write_text(config_file.read_text().replace('"RepeatedDQN"', '"Unknown"'))
    with pytest.raises(prl.CompositionError, match=r"the class Unknown of a script; .*--import MODULE"):
        prl.Learner.repeat(tmp_path / "first", tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_the_command_repeats_a_run_and_says_where_its_curve_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trained(prl.Learner(dqn_scheme(), 100, tmp_path / "first"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["pytorchrl", "repeat", "first", "again/seed-4", "--seed", "4"])
    capsys.readouterr()
    main()
    assert "Learning curve: again/seed-4/learning_curve.png" in capsys.readouterr().out
    config = json.loads(Path("again/seed-4/config.json").read_text())
    assert config == json.loads(Path("first/config.json").read_text()) | {"seed": 4}
    monkeypatch.setattr(sys, "argv", ["pytorchrl", "repeat", "first", "other", "--seed", "-1"])
    with pytest.raises(SystemExit, match="error: --seed must be at least 0, got -1"):
        main()


@pytest.mark.parametrize(
    ("name", "seed", "expected"), [("ours-seed-3", 7, "ours-seed-7"), ("ours", 7, "ours"), ("ours-seed-3", None, None)]
)
def test_a_name_in_wandb_that_ends_with_the_seed_has_that_of_the_repeated_run(
    name: str, seed: int | None, expected: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "disabled")
    trained(prl.Learner(ppo_scheme(3), 32, tmp_path / "first", log_to=[prl.Wandb(run_name=name)]))
    trained(prl.Learner.repeat(tmp_path / "first", tmp_path / "again", seed=seed))
    (logger,) = json.loads((tmp_path / "again" / "config.json").read_text())["log_to"]
    assert logger["hyper_parameters"]["run_name"] == (expected or name)
