"""Training, stopping and resuming a run, and the files that it leaves."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

import pytorchrl as prl
from pytorchrl.version import VERSION
from tests.support.comparison import assert_equal
from tests.support.compositions import SCHEMES, dqn_scheme, ppo_scheme
from tests.support.folders import content

CLOCKS = ("seconds", "speed/steps_per_second")


def without_clocks(folder: Path) -> list[dict[str, float]]:
    return [
        {k: v for k, v in record.items() if k not in CLOCKS} for record in prl.read_metrics(folder / "metrics.jsonl")
    ]


def state_of(learner: prl.Learner) -> dict[str, Any]:
    return learner.scheme.state_dict()


def next_batch(learner: prl.Learner) -> Any:
    storage = learner.scheme.storage
    if len(storage) == 0:
        return None
    storage.before_gradients()
    return next(iter(storage.generate_batches(1, None if storage.on_policy else 16)))


@pytest.mark.quick_share(0.35)
@pytest.mark.parametrize("name", SCHEMES)
def test_two_runs_with_equal_seeds_are_equal_bit_for_bit(name: str, tmp_path: Path) -> None:
    learners = [prl.Learner(SCHEMES[name](seed=3), 300, tmp_path / str(run), log_every=50) for run in range(2)]
    for learner in learners:
        assert learner.run()
    assert_equal(state_of(learners[0]), state_of(learners[1]))
    assert without_clocks(tmp_path / "0") == without_clocks(tmp_path / "1")
    assert_equal(next_batch(learners[0]), next_batch(learners[1]))


def test_a_run_with_its_storage_on_disk_resumes_like_one_in_memory(tmp_path: Path) -> None:
    def resumed_run(name: str, **on_disk: Any) -> prl.Learner:
        storage = prl.PERBuffer.create_factory(size=60, n_step=2, alpha=0.6, beta=0.4, epsilon=0.01, **on_disk)
        learner = prl.Learner(dqn_scheme(storage=storage), 10_000, tmp_path / name)
        for saved_at, left_at in ((250, 250), (400, 500)):
            while learner.scheme.steps < saved_at:
                learner.step()
            learner.save_checkpoint()
            while learner.scheme.steps < left_at:
                learner.step()
        learner.close()
        learner = prl.Learner.resume(tmp_path / name)
        assert learner.scheme.steps == 400
        while learner.scheme.steps < 450:
            learner.step()
        return learner

    one, two = resumed_run("memory"), resumed_run("disk", directory=tmp_path / "experience", commit_every=10)
    assert_equal(one.scheme.algorithm.state_dict(), two.scheme.algorithm.state_dict())
    assert_equal(one.scheme.storage.get_all_buffer_data(), two.scheme.storage.get_all_buffer_data())
    assert_equal(next_batch(one), next_batch(two))
    assert (tmp_path / "disk" / "checkpoint.pt").stat().st_size < (tmp_path / "memory" / "checkpoint.pt").stat().st_size
    two.close()


def test_a_new_target_below_the_steps_made_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    # Two copies of the environment overshoot an odd target.
    storage = prl.ReplayBuffer.create_factory(size=60, directory=tmp_path / "replay")
    learner = prl.Learner(dqn_scheme(storage=storage), 201, tmp_path / "run")
    learner.run()
    learner.close()

    def kept() -> dict[str, tuple[bytes, int]]:
        return {path: found for path, found in content(tmp_path).items() if not path.endswith("lock")}

    before = kept()
    message = (
        r"run has made 202 steps, more than the new target of 100; nothing was changed\. Give a target of at least 202"
    )
    with pytest.raises(ValueError, match=message):
        prl.Learner.resume(tmp_path / "run", target_steps=100)
    assert kept() == before
    for target in (None, 201, 202):
        resumed = prl.Learner.resume(tmp_path / "run", target_steps=target)
        assert resumed.done()
        resumed.close()


def test_a_new_run_says_that_its_storage_already_holds_transitions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(2):
        storage = prl.ReplayBuffer.create_factory(size=60, directory=tmp_path / "replay")
        learner = prl.Learner(dqn_scheme(storage=storage), 80, tmp_path / f"run-{number}")
        learner.run()
        learner.close()
        printed = capsys.readouterr().out
        told = f"ReplayBuffer: {tmp_path / 'replay'} holds 80 transitions already, from which this run learns, too"
        assert (told in printed) == (number == 1)
        assert ("transitions already" in printed) == (number == 1)
    prl.Learner.resume(tmp_path / "run-1").close()
    assert "transitions already" not in capsys.readouterr().out


def test_records_after_the_checkpoint_are_replaced_and_not_duplicated(tmp_path: Path) -> None:
    learner = prl.Learner(dqn_scheme(), 400, tmp_path / "run", log_every=50)
    while learner.scheme.steps < 200:
        learner.step()
    learner.save_checkpoint()
    while not learner.done():
        learner.step()
    prl.Learner.resume(tmp_path / "run").run()
    steps = [
        record["steps"] for record in prl.read_metrics(tmp_path / "run" / "metrics.jsonl") if "train/return" in record
    ]
    assert steps == sorted(set(steps))
    assert steps[-1] == 400


@pytest.mark.usefixtures("drawn_curves")
def test_a_run_with_damaged_metrics_is_refused_with_the_line_and_a_remedy(tmp_path: Path) -> None:
    learner = prl.Learner(dqn_scheme(), 100, tmp_path, log_every=20)
    learner.run()
    learner.close()
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "metrics.jsonl").write_text("".join([lines[0], "?\n", *lines[1:]]))
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    with pytest.raises(ValueError, match=r"metrics\.jsonl, line 2 is no JSON object .*; remove the line, or restore"):
        prl.Learner.resume(tmp_path, target_steps=200)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
    (tmp_path / "metrics.jsonl").write_text("".join(lines))
    with prl.Learner.resume(tmp_path, target_steps=200) as resumed:
        assert resumed.run()


def test_a_run_leaves_its_composition_versions_metrics_checkpoint_and_curve(tmp_path: Path) -> None:
    learner = prl.Learner(dqn_scheme(seed=7), 300, tmp_path / "run", log_every=50)
    learner.run()
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (
        config["algorithm"]
        == prl.DQN.create_factory(start_steps=40, mini_batch_size=16, test_every=100, num_test_episodes=2).config
    )
    assert config["storage"] == prl.ReplayBuffer.create_factory(size=150).config
    assert (config["seed"], config["target_steps"]) == (7, 300)
    versions = json.loads((tmp_path / "run" / "versions.json").read_text())
    assert versions["packages"]["torch"].partition("+")[0] == torch.__version__.partition("+")[0]
    assert "git_commit" in versions
    assert versions["machine"]["cores"] == os.cpu_count()
    assert len(versions["experiment"]) == 12
    metrics = learner.get_metrics()
    assert metrics["steps"] == 300
    assert {"train/return", "test/return", "losses/loss", "losses/q_value", "speed/steps_per_second"} <= metrics.keys()
    assert [r["steps"] for r in prl.read_metrics(tmp_path / "run" / "metrics.jsonl") if "test/return" in r] == [
        100,
        200,
        300,
    ]
    assert learner.curve_file.read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "run" / "checkpoint.pt").is_file()


def test_without_a_terminal_a_run_prints_progress_and_what_to_do_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    learner = prl.Learner(dqn_scheme(), 100, tmp_path / "run")
    learner.run()
    *progress, end, _, _, more = capsys.readouterr().out.splitlines()
    # Steps are seen by the update, of which some end two tenths.
    assert 5 <= len(progress) <= 10
    assert progress[-1].startswith(f"DQN in {tmp_path / 'run'}: 100 / 100 steps")
    assert end.startswith(f"Finished 100 steps, saved in {tmp_path / 'run'}")
    assert f"resume {tmp_path / 'run'} --target-steps 200" in more


def test_a_run_prints_nothing_where_silence_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    learner = prl.Learner(dqn_scheme(), 100, tmp_path / "run")
    learner.run(progress=False)
    assert capsys.readouterr().out == ""
    learner.print_info()
    assert "100 of 100 steps" in capsys.readouterr().out


@pytest.mark.long
@pytest.mark.parametrize("on_path", [True, False])
def test_the_resume_command_continues_the_run_in_the_same_directory(
    on_path: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    learner = prl.Learner(dqn_scheme(), 100, "runs/a run")
    learner.run()
    learner.close()
    here = [str(Path(sys.executable).parent)] if on_path else []
    monkeypatch.setenv("PATH", os.pathsep.join([*here, "/usr/bin", "/bin"]))
    command = f"{learner.resume_command} --target-steps 150"
    finished = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert "150 of 150 steps" in finished.stdout
    assert command.startswith("python") == on_path


def test_a_folder_that_holds_a_run_is_not_overwritten(tmp_path: Path) -> None:
    prl.Learner(dqn_scheme(), 10, tmp_path / "run").run()
    with pytest.raises(FileExistsError, match=r"holds a run already; continue it with Learner.resume"):
        prl.Learner(dqn_scheme(), 10, tmp_path / "run")


@pytest.mark.parametrize(("target", "every", "keep"), [(0, 10, 1), (1.5, 10, 1), (10, 0, 1), (10, 10, 0)])
def test_invalid_numbers_are_refused(target: Any, every: Any, keep: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"Learner: (target_steps|log_every|keep_checkpoints) must be an int from 1"):
        prl.Learner(dqn_scheme(), target, tmp_path / "run", log_every=every, keep_checkpoints=keep)
    assert not (tmp_path / "run").exists()


# Errors when a run is resumed


def finished_run(folder: Path) -> Path:
    prl.Learner(dqn_scheme(), 60, folder).run()
    return folder


def test_resuming_a_folder_that_is_not_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(prl.CheckpointError, match=r"is not a run folder: it has no config.json"):
        prl.Learner.resume(tmp_path)


def test_resuming_a_run_without_a_checkpoint_is_refused(tmp_path: Path) -> None:
    prl.Learner(dqn_scheme(), 60, tmp_path / "run")
    with pytest.raises(prl.CheckpointError, match=r"checkpoint.pt does not exist"):
        prl.Learner.resume(tmp_path / "run")


@pytest.mark.parametrize("kept", [0, 1, 100, 0.5, 0.99])
def test_resuming_a_truncated_checkpoint_is_refused_with_the_reason(kept: float, tmp_path: Path) -> None:
    file = finished_run(tmp_path / "run") / "checkpoint.pt"
    content = file.read_bytes()
    file.write_bytes(content[: int(kept if kept >= 1 else kept * len(content))])
    reason = "it is empty" if not kept else "it is truncated, or another kind of file"
    with pytest.raises(prl.CheckpointError, match=rf"checkpoint.pt is damaged and cannot be resumed from: {reason}; "):
        prl.Learner.resume(tmp_path / "run")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (lambda file: file.write_text("not a checkpoint"), "it is truncated, or another kind of file"),
        (lambda file: torch.save(Path("a"), file), "it contains objects other than tensors and plain data"),
        (lambda file: zipfile.ZipFile(file, "w").close(), "it is an archive, but not of tensors and plain data"),
        (lambda file: torch.save({"format": 99}, file), "has format 99, this version reads up to 4; upgrade"),
        (
            lambda file: torch.save({"format": 1}, file),
            r"has format 1, this version, \d\S+, reads 4; resume it with the version of pytorchrl that wrote it, which "
            r"versions.json",
        ),
        (
            lambda file: torch.save({"format": 1, "pytorchrl_version": "0.0.7"}, file),
            "resume it with the version of pytorchrl that wrote it, 0.0.7",
        ),
        (
            lambda file: torch.save({"format": 99, "pytorchrl_version": "9.1"}, file),
            "upgrade pytorchrl to resume it: 9.1 wrote it",
        ),
    ],
)
def test_a_file_that_is_not_a_checkpoint_is_refused_in_one_line(content: Any, reason: str, tmp_path: Path) -> None:
    file = finished_run(tmp_path / "run") / "checkpoint.pt"
    file.unlink()
    content(file)
    with pytest.raises(prl.CheckpointError, match=reason) as error:
        prl.Learner.resume(tmp_path / "run")
    assert "\n" not in str(error.value)
    assert "weights_only" not in str(error.value)


def test_a_checkpoint_and_a_file_of_weights_name_the_version_that_wrote_them(tmp_path: Path) -> None:
    with prl.Learner(dqn_scheme(), 60, tmp_path / "run") as learner:
        learner.run()
        files = [tmp_path / "run" / "checkpoint.pt", learner.save_policy(tmp_path / "policy.pt")]
    assert [torch.load(file, weights_only=True)["pytorchrl_version"] for file in files] == [VERSION] * 2


def test_resuming_another_composition_names_the_difference(tmp_path: Path) -> None:
    finished_run(tmp_path / "run")
    with pytest.raises(prl.CheckpointError, match=r"another composition; storage.size: 99 here, 150 in the checkpoint"):
        prl.Learner.resume(tmp_path / "run", scheme=dqn_scheme(size=99))
    with pytest.raises(prl.CheckpointError, match=r"algorithm.name: PPO here, DQN in the checkpoint"):
        prl.Learner.resume(tmp_path / "run", scheme=ppo_scheme())


def test_resuming_with_other_hyper_parameters_names_how_to_change_them(tmp_path: Path) -> None:
    finished_run(tmp_path / "run")
    factories = list(dqn_scheme().factories[:4])
    factories[0] = prl.DQN.create_factory(**{**factories[0].hyper_parameters, "lr": 0.03})
    said = r"before it resumes: scheme\.algorithm\.update_algorithm_parameter\('lr', 0\.03\)"
    with pytest.raises(prl.CheckpointError, match=said):
        prl.Learner.resume(tmp_path / "run", scheme=prl.Scheme(*factories))
    scheme = dqn_scheme()
    scheme.algorithm.update_algorithm_parameter("lr", 0.03)
    with prl.Learner.resume(tmp_path / "run", scheme=scheme) as learner:
        assert {group.stepper.learning_rate for group in learner.scheme.algorithm.training.groups.values()} == {0.03}


def test_a_policy_is_saved_at_a_path_of_either_kind(tmp_path: Path) -> None:
    with prl.Learner(dqn_scheme(), 20, tmp_path / "run") as learner:
        for path in (str(tmp_path / "text.pt"), tmp_path / "path.pt"):
            assert learner.save_policy(path) == Path(path)
            assert prl.load_policy(path).algorithm.actor is not None


def test_a_model_of_stable_baselines3_is_not_taken_for_a_damaged_checkpoint(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "model.zip", "w") as archive:
        for name in ("data", "policy.pth", "_stable_baselines3_version"):
            archive.writestr(name, b"")
    with pytest.raises(prl.CheckpointError, match="a model of stable-baselines3, whose files are not read") as error:
        prl.load_policy(tmp_path / "model.zip")
    assert "damaged" not in str(error.value)


def test_a_checkpoint_of_another_run_in_the_folder_is_refused(tmp_path: Path) -> None:
    finished_run(tmp_path / "run")
    prl.Learner(dqn_scheme(seed=5), 60, tmp_path / "other").run()
    (tmp_path / "other" / "checkpoint.pt").replace(tmp_path / "run" / "checkpoint.pt")
    with pytest.raises(prl.CheckpointError, match=r"seed: 0 here, 5 in the checkpoint"):
        prl.Learner.resume(tmp_path / "run")


def test_a_checkpoint_that_would_run_code_is_refused(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "evil"),)

    finished_run(tmp_path / "run")
    torch.save({"format": 1, "config": Evil()}, tmp_path / "run" / "checkpoint.pt")
    with pytest.raises(prl.CheckpointError):
        prl.Learner.resume(tmp_path / "run")
    assert not (tmp_path / "evil").exists()
