"""An error ends a run: its progress is saved, the error says how to continue, and the folder can be used again."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

import pytorchrl as prl
from pytorchrl.experiments.runs import checkpoint
from storages.transition import DONE, OBS, OBS2
from tests.support.comparison import assert_equal
from tests.support.compositions import dqn_scheme
from tests.support.toys import Counter

CLOCKS = ("seconds", "speed/steps_per_second")


class FailsOnce(gym.Wrapper[Any, Any, Any, Any]):
    """Raises an error in one step, counted over all environments of this class, and never again."""

    steps = 0
    fails_at = 0

    def step(self, action: Any) -> Any:
        FailsOnce.steps += 1
        if FailsOnce.steps == FailsOnce.fails_at:
            raise ConnectionError("the simulator does not answer")
        return self.env.step(action)


@pytest.fixture(autouse=True)
def _no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FailsOnce, "fails_at", 0)
    monkeypatch.setattr(NaNRewardOnce, "paid", False)


def fails_at(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FailsOnce, "steps", 0)
    monkeypatch.setattr(FailsOnce, "fails_at", step)


def envs(env: str, **arguments: Any) -> Any:
    return prl.VecEnv.create_factory(env, **({"num_envs": 2, "wrappers": [FailsOnce]} | arguments))


def dqn() -> prl.Scheme:
    return dqn_scheme(envs=envs("CartPole-v1"))


def dqn_with_memory() -> prl.Scheme:
    return prl.Scheme(
        prl.DQN.create_factory(start_steps=40, mini_batch_size=4, update_every=4, test_every=100, num_test_episodes=1),
        prl.OffPolicyActor.create_factory(hidden_sizes=(8,), memory="lstm", memory_size=4),
        prl.ReplayBuffer.create_factory(size=150, sequences=prl.Sequences(length=4)),
        envs("CartPole-v1"),
    )


def sac() -> prl.Scheme:
    return prl.Scheme(
        prl.SAC.create_factory(start_steps=40, mini_batch_size=8, update_every=4, test_every=0),
        prl.OffPolicyActor.create_factory(hidden_sizes=(8,)),
        prl.ReplayBuffer.create_factory(size=150),
        envs("Pendulum-v1"),
    )


def ppo() -> prl.Scheme:
    return prl.Scheme(
        prl.PPO.create_factory(num_epochs=2, num_mini_batch=2, test_every=100, num_test_episodes=1),
        prl.OnPolicyActor.create_factory(hidden_sizes=(8,)),
        prl.GAEBuffer.create_factory(size=16),
        envs("CartPole-v1"),
    )


SCHEMES: dict[str, Callable[[], prl.Scheme]] = {"dqn": dqn, "dqn with memory": dqn_with_memory, "sac": sac, "ppo": ppo}


def result_of(learner: prl.Learner) -> Any:
    state = learner.scheme.state_dict()
    learner.close()
    records = prl.read_metrics(learner.log_dir / "metrics.jsonl")
    return state, [{name: value for name, value in record.items() if name not in CLOCKS} for record in records]


def saved_steps(folder: Path) -> int:
    steps: int = checkpoint.load(folder / "checkpoint.pt")["scheme"]["collector"]["steps"]
    return steps


# During random actions, and later; in the first and in the second of two environments.
@pytest.mark.quick_share(0.4)
@pytest.mark.parametrize("fails", [13, 150])
@pytest.mark.parametrize("name", SCHEMES)
def test_a_run_resumed_after_a_failed_step_equals_the_run_without_the_failure(
    name: str, fails: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = prl.Learner(SCHEMES[name](), 240, tmp_path / "whole", log_every=30)
    assert whole.run()
    fails_at(fails, monkeypatch)
    learner = prl.Learner(SCHEMES[name](), 240, tmp_path / "run", log_every=30)
    with pytest.raises(ConnectionError, match="the simulator does not answer") as error:
        learner.run()
    learner.close()
    saved_at = saved_steps(tmp_path / "run")
    assert (
        f"The run is saved in {tmp_path / 'run'}, with the traceback in error.txt, as of {saved_at} of 240 steps; "
        f"continue with\n  "
        f"{learner.resume_command}"
    ) in error.value.__notes__
    assert learner.resume_command.endswith(f" --import {__name__}")
    # Evaluations step environments, too.
    assert saved_at <= (fails - 1) // 2 * 2
    kept = (tmp_path / "run" / "error.txt").read_text()
    assert kept.startswith("Traceback")
    assert f"ConnectionError: the simulator does not answer\nThe run is saved in {tmp_path / 'run'}" in kept
    resumed = prl.Learner.resume(tmp_path / "run", scheme=SCHEMES[name]())
    assert resumed.scheme.steps == saved_at
    assert resumed.run()
    assert not (tmp_path / "run" / "error.txt").exists()
    assert_equal(result_of(resumed), result_of(whole))


@pytest.mark.filterwarnings("ignore")  # gymnasium warns if a worker process raises an error
def test_a_failure_in_a_worker_process_loses_only_the_running_episodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def scheme() -> prl.Scheme:
        return dqn_scheme(envs=envs("CartPole-v1", mode="async"), algorithm={"test_every": 0})

    fails_at(7, monkeypatch)
    learner = prl.Learner(scheme(), 60, tmp_path / "run")
    with pytest.raises(ConnectionError, match="the simulator does not answer") as error:
        learner.run()
    learner.close()
    assert f"as of 12 of 60 steps; continue with\n  {learner.resume_command}" in error.value.__notes__[-1]
    monkeypatch.setattr(FailsOnce, "fails_at", 0)
    resumed = prl.Learner.resume(tmp_path / "run", scheme=scheme())
    assert "2 of 2 environments could not be restored" in capfd.readouterr().out
    assert resumed.run()
    assert resumed.scheme.storage.get_all_buffer_data()[DONE][6].all()
    resumed.close()


def test_a_step_that_cannot_be_stored_is_left_out_and_new_episodes_begin(tmp_path: Path) -> None:
    def scheme() -> prl.Scheme:
        return dqn_scheme(envs=prl.VecEnv.create_factory(NaNRewardOnce, env_kwargs={"length": 50}))

    learner = prl.Learner(scheme(), 30, tmp_path / "run")
    with pytest.raises(prl.SampleError, match=r"Reward of environment 0 is nan at step 4") as error:
        learner.run()
    assert "as of 4 of 30 steps" in error.value.__notes__[-1]
    learner.close()
    resumed = prl.Learner.resume(tmp_path / "run", scheme=scheme())
    assert resumed.run()
    stored = resumed.scheme.storage.get_all_buffer_data()
    assert stored[OBS][:7, 0, 0].tolist() == [0, 1, 2, 3, 0, 1, 2]
    assert stored[OBS2][:7, 0, 0].tolist() == [1, 2, 3, 4, 1, 2, 3]
    assert stored[DONE][:7, 0, 0].tolist() == [1, 0, 0, 0, 1, 0, 0]


class NaNRewardOnce(Counter):
    paid = False

    def step(self, action: Any) -> Any:
        observation, reward, *rest = super().step(action)
        if self.count == 5 and not NaNRewardOnce.paid:
            NaNRewardOnce.paid = True
            reward = float("nan")
        return observation, reward, *rest


def test_an_error_in_an_update_keeps_the_last_checkpoint_and_names_its_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = prl.Learner(dqn_scheme(), 200, tmp_path / "run")
    update = learner.scheme.algorithm.update

    def fail_later(batch: Any) -> Any:
        if learner.scheme.steps > 70:
            raise FloatingPointError("the loss is not finite")
        return update(batch)

    monkeypatch.setattr(learner.scheme.algorithm, "update", fail_later)
    with pytest.raises(FloatingPointError) as error:
        learner.run(checkpoint_every=60)
    half_done, saved = error.value.__notes__
    assert half_done == "The exception interrupted an update; the run was not saved in this incomplete state."
    assert f"as of 60 of 200 steps; continue with\n  {learner.resume_command}" in saved
    assert saved_steps(tmp_path / "run") == 60


def test_an_error_before_the_first_checkpoint_reports_that_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = prl.Learner(dqn_scheme(), 200, tmp_path / "run")

    def fail(_: Any) -> Any:
        raise FloatingPointError("the loss is not finite")

    monkeypatch.setattr(learner.scheme.algorithm, "update", fail)
    with pytest.raises(FloatingPointError) as error:
        learner.run()
    assert f"{tmp_path / 'run'} has no checkpoint to resume from" in error.value.__notes__[-1]


def test_after_an_error_in_an_evaluation_the_evaluation_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = prl.Learner(dqn(), 240, tmp_path / "whole", log_every=30)
    assert whole.run()
    learner = prl.Learner(dqn(), 240, tmp_path / "run", log_every=30)
    while learner.scheme.steps < 196:
        learner.step()
    # Training makes the first four of these steps, the evaluation the others.
    fails_at(7, monkeypatch)
    with pytest.raises(ConnectionError) as error:
        learner.run()
    assert "as of 200 of 240 steps" in error.value.__notes__[-1]
    learner.close()
    resumed = prl.Learner.resume(tmp_path / "run", scheme=dqn())
    assert resumed.run()
    assert_equal(result_of(resumed), result_of(whole))


def test_a_failure_to_save_is_reported_with_the_original_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = prl.Learner(dqn(), 100, tmp_path / "run")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    fails_at(5, monkeypatch)
    monkeypatch.setattr(checkpoint.os, "fsync", full)
    with pytest.raises(ConnectionError) as error:
        learner.run()
    unsaved = "The run could not be saved: [Errno 28] No space left on device; the checkpoint was not written"
    assert error.value.__notes__[0].startswith(unsaved)
    assert error.value.__notes__[0].endswith(f"{str(tmp_path / 'run' / 'checkpoint.pt')!r}")
    assert "has no checkpoint to resume from" in error.value.__notes__[1]


def test_a_learner_refuses_further_steps_after_a_failed_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = prl.Learner(dqn(), 100, tmp_path / "run")
    fails_at(4, monkeypatch)
    with pytest.raises(ConnectionError):
        learner.run()
    with pytest.raises(RuntimeError, match="their state is unknown; create new ones"):
        learner.run()
    learner.close()
    assert prl.Learner.resume(tmp_path / "run", scheme=dqn()).run()


# Using the folder again


def test_the_folder_of_a_run_without_metrics_and_checkpoints_is_reused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prl.Learner(dqn_scheme(seed=1), 100, tmp_path / "run").close()
    assert capsys.readouterr().out == ""
    learner = prl.Learner(dqn_scheme(seed=2), 60, tmp_path / "run")
    printed = capsys.readouterr().out
    assert printed == f"Replaced the previous run of {tmp_path / 'run'}, which had neither metrics nor checkpoints.\n"
    assert learner.run()
    learner.close()
    assert prl.Learner.resume(tmp_path / "run").scheme.config["seed"] == 2


def test_metrics_of_a_replaced_run_without_a_checkpoint_are_backed_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    learner = prl.Learner(dqn_scheme(), 400, tmp_path / "run", log_every=20)
    while learner.scheme.steps < 60:
        learner.step()
    learner.close()
    metrics = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    with pytest.raises(prl.CheckpointError, match=re.escape("start it again: Learner(scheme, target_steps, log_dir)")):
        prl.Learner.resume(tmp_path / "run")
    learner = prl.Learner(dqn_scheme(), 100, tmp_path / "run")
    assert f"Moved the previous run of {tmp_path / 'run'} to {tmp_path / 'run.backup-1'}." in capsys.readouterr().out
    assert (tmp_path / "run.backup-1" / "metrics.jsonl").read_bytes() == metrics
    assert learner.run()
    learner.close()
    assert prl.read_metrics(tmp_path / "run" / "metrics.jsonl")[-1]["steps"] == 100


def test_an_overwritten_run_is_kept_as_a_backup(tmp_path: Path) -> None:
    for seed in range(3):
        learner = prl.Learner(dqn_scheme(seed), 100, tmp_path / "run", overwrite=seed > 0)
        learner.run()
        learner.close()
    folders = [tmp_path / name for name in ("run.backup-1", "run.backup-2", "run")]
    resumed = [prl.Learner.resume(folder) for folder in folders]
    assert [one.scheme.run_seed for one in resumed] == [0, 1, 2]
    for one in resumed:
        one.close()


def test_a_run_whose_storage_the_new_run_has_opened_is_not_overwritten(tmp_path: Path) -> None:
    def scheme() -> prl.Scheme:
        return dqn_scheme(storage=prl.ReplayBuffer.create_factory(size=150, directory=tmp_path / "run" / "replay"))

    learner = prl.Learner(scheme(), 100, tmp_path / "run")
    learner.run()
    learner.close()
    again = scheme()
    with pytest.raises(FileExistsError, match=r"whose storage in .*replay the new one has opened"):
        prl.Learner(again, 100, tmp_path / "run", overwrite=True)
    again.close()


def test_a_run_saves_checkpoints_periodically_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Count(prl.Callback):
        saved = 0

        def on_checkpoint(self, learner: prl.Learner, path: Path) -> None:
            self.saved += 1

    monkeypatch.setattr("pytorchrl.learner._SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    count = Count()
    prl.Learner(dqn_scheme(), 100, tmp_path / "run", callbacks=[count]).run()
    assert count.saved > 5


def test_a_failed_resume_releases_the_storage(tmp_path: Path) -> None:
    storage = prl.ReplayBuffer.create_factory(size=150, directory=tmp_path / "run" / "replay")
    learner = prl.Learner(dqn_scheme(storage=storage), 60, tmp_path / "run")
    learner.run()
    learner.close()
    file = tmp_path / "run" / "checkpoint.pt"
    whole = file.read_bytes()
    state = checkpoint.load(file)
    del state["learner"]["seconds"]
    checkpoint.save(file, state)
    # The traceback refers to all objects of the attempt, so that none is collected.
    with pytest.raises(prl.CheckpointError) as caught:
        prl.Learner.resume(tmp_path / "run", target_steps=80)
    file.write_bytes(whole)
    resumed = prl.Learner.resume(tmp_path / "run", target_steps=80)
    assert resumed.run()
    resumed.close()
    assert caught.traceback
