"""Training, stopping and resuming: what a user starts, and what is left when it ended."""

import json
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from compositions import SCHEMES, assert_equal, dqn_scheme, ppo_scheme
from toys import Counter

import pytorchrl as prl
from pytorchrl.experiments import checkpoint

CLOCKS = ("seconds", "speed/steps_per_second")


def without_clocks(folder: Path) -> list[dict[str, float]]:
    return [
        {k: v for k, v in record.items() if k not in CLOCKS} for record in prl.read_metrics(folder / "metrics.jsonl")
    ]


def everything(learner: prl.Learner) -> dict[str, Any]:
    return learner.scheme.state_dict()


def next_batch(learner: prl.Learner) -> Any:
    storage = learner.scheme.storage
    if len(storage) == 0:
        return None
    storage.before_gradients()
    return next(iter(storage.generate_batches(1, None if storage.on_policy else 16)))


@pytest.mark.parametrize("name", SCHEMES)
def test_two_runs_of_a_seed_are_equal_bit_for_bit(name: str, tmp_path: Path) -> None:
    learners = [prl.Learner(SCHEMES[name](seed=3), 300, tmp_path / str(run), log_every=50) for run in range(2)]
    for learner in learners:
        assert learner.run()
    assert_equal(everything(learners[0]), everything(learners[1]))
    assert without_clocks(tmp_path / "0") == without_clocks(tmp_path / "1")
    assert_equal(next_batch(learners[0]), next_batch(learners[1]))


@pytest.mark.parametrize("name", SCHEMES)
def test_a_resumed_run_has_what_was_saved(name: str, tmp_path: Path) -> None:
    learner = prl.Learner(SCHEMES[name](), 10_000, tmp_path / "run", log_every=50)
    while learner.scheme.steps < 250:
        learner.step()
    learner.save_checkpoint()
    resumed = prl.Learner.resume(tmp_path / "run")
    assert resumed.scheme.steps == learner.scheme.steps
    assert resumed.get_metrics() == learner.get_metrics()
    assert_equal(everything(resumed), everything(learner))
    one, two = next_batch(resumed), next_batch(learner)
    assert_equal(one, two)
    if one is not None:
        assert_equal(
            {k: v for k, v in resumed.scheme.algorithm.update(one).items() if k != "Errors"},
            {k: v for k, v in learner.scheme.algorithm.update(two).items() if k != "Errors"},
        )
        assert_equal(everything(resumed), everything(learner))
    assert resumed.scheme.algorithm.state_dict().keys() == learner.scheme.algorithm.state_dict().keys()


@pytest.mark.parametrize("name", SCHEMES)
def test_a_resumed_run_goes_on_to_the_target(name: str, tmp_path: Path) -> None:
    learner = prl.Learner(SCHEMES[name](), 200, tmp_path / "run", log_every=50)
    learner.run()
    learner.close()
    resumed = prl.Learner.resume(tmp_path / "run", target_steps=400)
    assert not resumed.done()
    assert resumed.run()
    assert resumed.scheme.steps >= 400
    steps = [record["steps"] for record in prl.read_metrics(tmp_path / "run" / "metrics.jsonl")]
    assert steps == sorted(steps)
    assert steps[-1] == resumed.scheme.steps


def test_resuming_the_same_checkpoint_twice_gives_the_same_run(tmp_path: Path) -> None:
    prl.Learner(dqn_scheme(), 200, tmp_path / "run").run()
    states = []
    for _ in range(2):
        resumed = prl.Learner.resume(tmp_path / "run", target_steps=300)
        while not resumed.done():
            resumed.step()
        states.append(everything(resumed))
    assert_equal(states[0], states[1])


def test_records_after_the_checkpoint_are_measured_again_not_twice(tmp_path: Path) -> None:
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


def test_a_run_leaves_its_composition_versions_metrics_checkpoint_and_curve(tmp_path: Path) -> None:
    learner = prl.Learner(dqn_scheme(seed=7), 300, tmp_path / "run", log_every=50)
    learner.run()
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (
        config["algorithm"]
        == prl.DQN.create_factory(start_steps=40, mini_batch_size=16, test_every=100, num_test_episodes=2).config
    )
    assert config["storage"] == {
        "name": "ReplayBuffer",
        "hyper_parameters": {
            "size": 150,
            "sequences": None,
            "prefetch": 0,
            "keep_on_device": False,
            "allow_nonfinite": False,
        },
    }
    assert (config["seed"], config["target_steps"]) == (7, 300)
    versions = json.loads((tmp_path / "run" / "versions.json").read_text())
    assert versions["packages"]["torch"] == torch.__version__
    assert "git_commit" in versions
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


def test_a_run_is_quiet_where_the_output_is_no_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    learner = prl.Learner(dqn_scheme(), 100, tmp_path / "run")
    learner.run()
    assert capsys.readouterr() == ("", "")
    learner.print_info()
    assert "100 of 100 steps" in capsys.readouterr().out


class PressesCtrlC(Counter):
    def step(self, action: Any) -> Any:
        if len(self.actions) == 6:
            os.kill(os.getpid(), signal.SIGINT)
        return super().step(action)


def test_ctrl_c_saves_and_says_how_to_resume(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scheme = dqn_scheme(envs=prl.VecEnv.create_factory(PressesCtrlC))
    learner = prl.Learner(scheme, 100, tmp_path / "run")
    handler = signal.getsignal(signal.SIGINT)
    assert not learner.run()
    assert signal.getsignal(signal.SIGINT) is handler
    assert learner.scheme.steps == 7
    printed = capsys.readouterr().out
    assert f"-m pytorchrl resume {tmp_path / 'run'}" in printed
    assert checkpoint.load(tmp_path / "run" / "checkpoint.pt")["scheme"]["collector"]["steps"] == learner.scheme.steps


@pytest.mark.parametrize("on_path", [True, False])
def test_the_resume_command_does_what_it_says_where_it_is_typed(
    on_path: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    learner = prl.Learner(dqn_scheme(), 100, "runs/a run")
    learner.run()
    learner.close()
    here = [str(Path(sys.executable).parent)] if on_path else []
    monkeypatch.setenv("PATH", os.pathsep.join([*here, "/usr/bin", "/bin"]))
    typed = f"{learner.resume_command} --target-steps 150"
    finished = subprocess.run(typed, shell=True, capture_output=True, text=True, check=True)
    assert "150 of 150 steps" in finished.stdout
    assert typed.startswith("python") == on_path


def test_checkpoints_are_saved_on_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved: list[int] = []
    learner = prl.Learner(dqn_scheme(), 200, tmp_path / "run")
    save = learner.save_checkpoint
    monkeypatch.setattr(learner, "save_checkpoint", lambda: (saved.append(learner.scheme.steps), save())[1])
    learner.run(checkpoint_every=60)
    assert saved == [60, 120, 180, 200]


def test_a_folder_that_holds_a_run_is_not_overwritten(tmp_path: Path) -> None:
    prl.Learner(dqn_scheme(), 10, tmp_path / "run")
    with pytest.raises(FileExistsError, match=r"holds a run already; continue it with Learner.resume"):
        prl.Learner(dqn_scheme(), 10, tmp_path / "run")


@pytest.mark.parametrize(("target", "every", "keep"), [(0, 10, 1), (1.5, 10, 1), (10, 0, 1), (10, 10, 0)])
def test_wrong_numbers_are_refused(target: Any, every: Any, keep: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"Learner: (target_steps|log_every|keep_checkpoints) must be an int from 1"):
        prl.Learner(dqn_scheme(), target, tmp_path / "run", log_every=every, keep_checkpoints=keep)
    assert not (tmp_path / "run").exists()


# What resuming refuses


def finished_run(folder: Path) -> Path:
    prl.Learner(dqn_scheme(), 60, folder).run()
    return folder


def test_resuming_a_folder_that_is_no_run_says_so(tmp_path: Path) -> None:
    with pytest.raises(prl.CheckpointError, match=r"is not a run folder: it has no config.json"):
        prl.Learner.resume(tmp_path)


def test_resuming_a_run_without_a_checkpoint_says_so(tmp_path: Path) -> None:
    prl.Learner(dqn_scheme(), 60, tmp_path / "run")
    with pytest.raises(prl.CheckpointError, match=r"checkpoint.pt does not exist"):
        prl.Learner.resume(tmp_path / "run")


@pytest.mark.parametrize("kept", [0, 1, 100, 0.5, 0.99])
def test_resuming_a_truncated_checkpoint_says_so(kept: float, tmp_path: Path) -> None:
    file = finished_run(tmp_path / "run") / "checkpoint.pt"
    content = file.read_bytes()
    file.write_bytes(content[: int(kept if kept >= 1 else kept * len(content))])
    reason = "it is empty" if not kept else "it was cut off, or is another kind of file"
    with pytest.raises(prl.CheckpointError, match=rf"checkpoint.pt is damaged and cannot be resumed from: {reason}; "):
        prl.Learner.resume(tmp_path / "run")


def test_a_single_changed_byte_of_a_checkpoint_is_noticed(tmp_path: Path) -> None:
    change_a_byte(finished_run(tmp_path / "run") / "checkpoint.pt")
    with pytest.raises(prl.CheckpointError, match=r"cannot be resumed from: its part archive/.* is not what was"):
        prl.Learner.resume(tmp_path / "run")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (lambda file: file.write_text("not a checkpoint"), "it was cut off, or is another kind of file"),
        (lambda file: torch.save(Path("a"), file), "it holds more than tensors and plain data, and nothing else is"),
        (lambda file: zipfile.ZipFile(file, "w").close(), "it is an archive, but not of tensors and plain data"),
    ],
)
def test_a_file_that_is_no_checkpoint_is_told_in_a_line(content: Any, reason: str, tmp_path: Path) -> None:
    file = finished_run(tmp_path / "run") / "checkpoint.pt"
    file.unlink()
    content(file)
    with pytest.raises(prl.CheckpointError, match=rf"cannot be resumed from: {reason}") as error:
        prl.Learner.resume(tmp_path / "run")
    assert "\n" not in str(error.value)
    assert "weights_only" not in str(error.value)


def test_resuming_another_composition_names_the_difference(tmp_path: Path) -> None:
    finished_run(tmp_path / "run")
    with pytest.raises(prl.CheckpointError, match=r"another composition; storage.size: 99 here, 150 in the checkpoint"):
        prl.Learner.resume(tmp_path / "run", scheme=dqn_scheme(size=99))
    with pytest.raises(prl.CheckpointError, match=r"algorithm.name: PPO here, DQN in the checkpoint"):
        prl.Learner.resume(tmp_path / "run", scheme=ppo_scheme())


def test_a_checkpoint_of_another_run_in_the_folder_is_refused(tmp_path: Path) -> None:
    finished_run(tmp_path / "run")
    prl.Learner(dqn_scheme(seed=5), 60, tmp_path / "other").run()
    (tmp_path / "other" / "checkpoint.pt").replace(tmp_path / "run" / "checkpoint.pt")
    with pytest.raises(prl.CheckpointError, match=r"seed: 0 here, 5 in the checkpoint"):
        prl.Learner.resume(tmp_path / "run")


def test_a_run_composed_with_a_function_is_resumed_with_its_scheme(tmp_path: Path) -> None:
    def scheme() -> prl.Scheme:
        return dqn_scheme(envs=prl.VecEnv.create_factory(Counter))

    prl.Learner(scheme(), 60, tmp_path / "run").run()
    with pytest.raises(prl.CompositionError, match=r"composed with the function Counter; make the scheme in a script"):
        prl.Learner.resume(tmp_path / "run")
    resumed = prl.Learner.resume(tmp_path / "run", scheme=scheme(), target_steps=80)
    assert resumed.run()


def test_a_checkpoint_that_would_run_code_is_refused(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "evil"),)

    finished_run(tmp_path / "run")
    torch.save({"format": 1, "config": Evil()}, tmp_path / "run" / "checkpoint.pt")
    with pytest.raises(prl.CheckpointError):
        prl.Learner.resume(tmp_path / "run")
    assert not (tmp_path / "evil").exists()


def test_a_checkpoint_from_the_future_is_refused(tmp_path: Path) -> None:
    finished_run(tmp_path / "run")
    torch.save({"format": 99}, tmp_path / "run" / "checkpoint.pt")
    with pytest.raises(prl.CheckpointError, match="has format 99, this version reads up to 2; upgrade"):
        prl.Learner.resume(tmp_path / "run")


def change_a_byte(file: Path) -> None:
    """In the middle, where the storage's tensors are."""
    content = bytearray(file.read_bytes())
    with zipfile.ZipFile(file) as archive:
        largest = max(archive.infolist(), key=lambda part: part.file_size)
    content[largest.header_offset + 200 + largest.file_size // 2] ^= 1
    file.write_bytes(content)


# Which checkpoints are kept


def run_with_checkpoints(folder: Path, keep: int) -> prl.Learner:
    """Saves at 60, 120, 180 and 200 steps."""
    learner = prl.Learner(dqn_scheme(), 200, folder, keep_checkpoints=keep)
    assert learner.run(checkpoint_every=60)
    learner.close()
    return learner


def checkpoints(folder: Path) -> dict[str, int]:
    return {
        file.name: checkpoint.load(file)["scheme"]["collector"]["steps"] for file in sorted(folder.glob("checkpoint*"))
    }


def test_the_newest_checkpoints_are_kept(tmp_path: Path) -> None:
    for keep, kept in ((1, [200]), (2, [200, 180]), (3, [200, 180, 120])):
        folder = tmp_path / str(keep)
        run_with_checkpoints(folder, keep)
        names = ["checkpoint.pt", *(f"checkpoint-{age}.pt" for age in range(1, keep))]
        assert checkpoints(folder) == dict(zip(names, kept, strict=True))
        # A resumed run keeps as many.
        prl.Learner.resume(folder, target_steps=220).run()
        assert list(checkpoints(folder).values())[-1] == 220
        assert len(checkpoints(folder)) == keep


@pytest.mark.parametrize("damage", [change_a_byte, lambda file: file.write_bytes(b""), lambda file: file.unlink()])
def test_a_damaged_newest_checkpoint_falls_back_to_the_one_before(
    damage: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    state = everything(run_with_checkpoints(folder, 3))
    records = without_clocks(folder)
    damage(folder / "checkpoint.pt")
    damage(folder / "checkpoint-1.pt")
    damaged = (folder / "checkpoint.pt").exists()
    learner = prl.Learner.resume(folder)
    assert learner.scheme.steps == 120
    printed = capsys.readouterr().out
    assert (f"{folder / 'checkpoint-1.pt'} is damaged: it" in printed) == damaged
    assert f"Resumed from {folder / 'checkpoint-2.pt'}, saved at 120 steps." in printed
    assert learner.run()
    assert_equal(everything(learner), state)
    assert without_clocks(folder) == records
    assert checkpoints_without_damaged(folder) == {"checkpoint.pt": 200, "checkpoint-1.pt": 120}
    assert (folder / "checkpoint.damaged").exists() == damaged


def checkpoints_without_damaged(folder: Path) -> dict[str, int]:
    return {
        file.name: checkpoint.load(file)["scheme"]["collector"]["steps"]
        for file in sorted(folder.glob("checkpoint*.pt"))
    }


def test_where_no_checkpoint_is_whole_the_newest_is_named(tmp_path: Path) -> None:
    run_with_checkpoints(tmp_path / "run", 2)
    for file in (tmp_path / "run").glob("checkpoint*.pt"):
        file.write_bytes(b"")
    with pytest.raises(prl.CheckpointError, match=r"run/checkpoint.pt is damaged .* it is empty"):
        prl.Learner.resume(tmp_path / "run")


def test_the_actor_of_the_best_evaluation_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = prl.Learner(dqn_scheme(), 300, tmp_path / "run")
    returns = iter([5.0, 9.0, 7.0, 8.0])
    monkeypatch.setattr(learner.scheme, "evaluate", lambda _: prl.scheme.evaluation.Evaluation((next(returns),), (1,)))
    with pytest.raises(prl.CheckpointError, match=r"best_weights.pt does not exist"):
        learner.use_best_weights()
    weights = []
    for steps in (100, 200, 300):
        while learner.scheme.steps < steps:
            learner.step()
        weights.append(learner.scheme.algorithm.get_weights())
    learner.save_checkpoint()
    resumed = prl.Learner.resume(tmp_path / "run")
    monkeypatch.setattr(resumed.scheme, "evaluate", learner.scheme.evaluate)
    resumed.evaluate()
    resumed.use_best_weights()
    assert_equal(resumed.scheme.algorithm.get_weights(), weights[1])


# What stops a run


SCRIPT = """
import os, signal, sys
import gymnasium
import pytorchrl as prl
from compositions import dqn_scheme

folder, mode, number, times = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])

class SendsSignals(gymnasium.Wrapper):
    steps = 0

    def step(self, action):
        SendsSignals.steps += 1
        if SendsSignals.steps == 33:
            for _ in range(times):
                os.kill(os.getpid(), number) if mode == "sync" else os.killpg(0, number)
        return self.env.step(action)

if __name__ == "__main__":
    envs = prl.VecEnv.create_factory("CartPole-v1", mode=mode, wrappers=[SendsSignals])
    learner = prl.Learner(dqn_scheme(envs=envs, algorithm={"test_every": 0}), 100, folder)
    learner.run()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if mode == "sync":
        learner.close()
"""


@pytest.mark.parametrize(
    ("mode", "number", "times"),
    [("sync", signal.SIGTERM, 2), ("async", signal.SIGTERM, 2), ("async", signal.SIGINT, 1)],
)
def test_a_signal_ends_the_step_saves_and_says_how_to_resume_also_where_it_reaches_all_processes(
    mode: str, number: int, times: int, tmp_path: Path
) -> None:
    finished = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "run"), mode, str(int(number)), str(times)],
        capture_output=True,
        text=True,
        timeout=60,
        start_new_session=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stderr == ""
    stopped_at = checkpoint.load(tmp_path / "run" / "checkpoint.pt")["scheme"]["collector"]["steps"]
    # In another process the signal may come a step later.
    assert 33 <= stopped_at <= 35
    assert f"Stopped at {stopped_at} of 100 steps; continue with" in finished.stdout
    assert f"-m pytorchrl resume {tmp_path / 'run'}" in finished.stdout


def test_a_checkpoint_of_an_earlier_version_is_refused_with_the_way_out(tmp_path: Path) -> None:
    finished_run(tmp_path / "run")
    torch.save({"format": 1}, tmp_path / "run" / "checkpoint.pt")
    with pytest.raises(prl.CheckpointError, match=r"has format 1, this version reads 2; resume it with the version of"):
        prl.Learner.resume(tmp_path / "run")


def test_a_save_that_fails_leaves_the_last_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = prl.Learner(dqn_scheme(), 200, tmp_path / "run")
    learner.step()
    file = learner.save_checkpoint()
    content = file.read_bytes()

    def fail(*_: Any) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(checkpoint.os, "fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        learner.save_checkpoint()
    assert file.read_bytes() == content
    assert [path.name for path in (tmp_path / "run").iterdir() if "partial" in path.name] == []


def test_rewards_that_are_not_finite_end_the_run_and_are_not_stored(tmp_path: Path) -> None:
    learner = prl.Learner(dqn_scheme(envs=prl.VecEnv.create_factory(PaysNaN)), 100, tmp_path / "run")
    with pytest.raises(prl.SampleError, match=r"ReplayBuffer: Reward of environment 0 is nan at step 1"):
        learner.run()
    assert len(learner.scheme.storage) == 1


class PaysNaN(Counter):
    def step(self, action: Any) -> Any:
        observation, reward, *rest = super().step(action)
        return observation, reward if self.count == 1 else float("nan"), *rest
